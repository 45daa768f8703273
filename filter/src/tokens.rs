//! The tokens that this worker found good. All plans of a VM share one cache, since the key of an entry includes the
//! rules that it is good for.

use std::{cell::RefCell, sync::Arc};

use postern_engine::jwt::{Entry, TokenCache, TokenKey, Verified};

thread_local! {
    static TOKENS: RefCell<TokenCache> = RefCell::default();
}

/// The verified token under a key, if it is remembered.
pub(crate) fn recall(key: &TokenKey) -> Option<Arc<Verified>> {
    TOKENS.with_borrow_mut(|tokens| tokens.recall(key))
}

/// Remembers a token that was found good.
pub(crate) fn remember(entry: Entry) {
    TOKENS.with_borrow_mut(|tokens| tokens.remember(entry));
}
