//! The tokens that this worker found good: one cache for all plans of a VM, since an entry says itself what it is good for.

use std::{cell::RefCell, sync::Arc};

use postern_engine::jwt::{Entry, TokenCache, TokenKey, Verified};

thread_local! {
    static TOKENS: RefCell<TokenCache> = RefCell::default();
}

/// What is known of a token.
pub(crate) fn recall(key: &TokenKey) -> Option<Arc<Verified>> {
    TOKENS.with_borrow_mut(|tokens| tokens.recall(key))
}

/// Keeps a token that was found good.
pub(crate) fn remember(entry: Entry) {
    TOKENS.with_borrow_mut(|tokens| tokens.remember(entry));
}
