//! What steps may call while they run: what answers at once. What a run may have to wait for is an [`Ask`](crate::Ask).

use std::{collections::HashMap, fmt::Debug, sync::Arc};

use smallvec::SmallVec;

use crate::jwt::{Entry, SignatureCheck, TokenCache, TokenKey, Verified};

/// A value that all workers share. Most are one bucket, and need no allocation.
pub type SharedValue = SmallVec<[u8; 16]>;

/// The host could not do what it was called for. It has logged why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// The worker that a run runs on.
pub trait Host: Debug {
    /// Loads a shared value and its version. An absent value is empty and has version 0.
    fn load(&mut self, key: &Arc<str>) -> Result<(SharedValue, u32), Unavailable>;

    /// Stores a shared value that was made from this version; `false` if another worker has changed it since. Version 0
    /// stores it only if it is absent.
    fn store(&mut self, key: &Arc<str>, value: SharedValue, version: u32) -> Result<bool, Unavailable>;

    /// The verified token that this worker remembers under a key, if any.
    fn recall(&mut self, key: &TokenKey) -> Option<Arc<Verified>>;

    /// Remembers a token that was found good. A host may ignore this.
    fn remember(&mut self, entry: Entry);

    /// Whether a signature is good. `None` if the host cannot tell, or not faster than the engine.
    fn verify(&mut self, _check: &SignatureCheck) -> Option<bool> {
        None
    }
}

/// A host with a single worker, which keeps shared values in its own memory.
#[derive(Debug, Default)]
pub struct Alone {
    /// The shared values and their versions, by name.
    pub values: HashMap<Arc<str>, (SharedValue, u32)>,
    /// The tokens that were found good.
    pub tokens: TokenCache,
}

impl Host for Alone {
    fn load(&mut self, key: &Arc<str>) -> Result<(SharedValue, u32), Unavailable> {
        Ok(self.values.get(key).cloned().unwrap_or_default())
    }

    fn store(&mut self, key: &Arc<str>, value: SharedValue, version: u32) -> Result<bool, Unavailable> {
        let known = self.values.entry(Arc::clone(key)).or_default();
        let is_current = version == known.1;
        if is_current {
            *known = (value, known.1.wrapping_add(1).max(1));
        }
        Ok(is_current)
    }

    fn recall(&mut self, key: &TokenKey) -> Option<Arc<Verified>> {
        self.tokens.recall(key)
    }

    fn remember(&mut self, entry: Entry) {
        self.tokens.remember(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_what_was_made_from_the_current_version_only() {
        let (mut host, key): (_, Arc<str>) = (Alone::default(), "key".into());
        let mut check = |value: &[u8], version, expect: (bool, &[u8], u32)| {
            let stored = host.store(&key, value.into(), version).unwrap();
            let (known, version) = host.load(&key).unwrap();
            assert_eq!((stored, known.as_slice(), version), expect);
        };
        check(b"first", 0, (true, b"first", 1));
        check(b"next", 1, (true, b"next", 2));
        check(b"late", 1, (false, b"next", 2));
        check(b"new", 0, (false, b"next", 2));
    }
}
