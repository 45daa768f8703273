//! Tokens that were found good, so that the next request with the same one costs a lookup. A worker has one cache; the
//! engine asks for what is in it and says what to put there.
//!
//! An entry is good for one scope only: a digest of everything that its token was checked against. A step with other
//! issuers, keys or rules has another scope, in this plan or the next. Only tokens whose signatures were good get in,
//! so no caller can fill it, or aim at a slow place of it, without an issuer's help.

use std::{collections::VecDeque, fmt, hash::Hasher, sync::Arc};

use rustc_hash::{FxHashMap, FxHasher};

use crate::{cel::Map, header};

const MOST_ENTRIES: usize = 1024;
const MOST_BYTES: usize = 4 << 20;

/// A verified token: what it says, and how long it is good.
#[derive(Debug, PartialEq)]
pub struct Verified {
    pub(crate) claims: Arc<Map>,
    /// The value of each header that the step makes of a claim; `None` if the token has no such claim.
    pub(crate) headers: Vec<Option<header::Value>>,
    /// The consumer that the token names.
    pub(crate) consumer: Option<Arc<str>>,
    /// The time from which it is good, in nanoseconds since 1970.
    pub(crate) from: u64,
    /// The time from which it is no longer good.
    pub(crate) until: u64,
}

impl Verified {
    pub(crate) fn is_good_at(&self, now: u64) -> bool {
        self.from <= now && now < self.until
    }
}

/// The key of an entry: the token and the scope that it was checked under.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey {
    pub(crate) scope: [u8; 32],
    pub(crate) token: Arc<[u8]>,
}

impl TokenKey {
    /// The length of the token in bytes.
    pub(crate) fn size(&self) -> usize {
        self.token.len()
    }

    fn is(&self, other: &Self) -> bool {
        is_equal(&self.scope, &other.scope) && is_equal(&self.token, &other.token)
    }
}

/// Compares eight bytes at a time. The comparison of slices in wasm32 takes them one by one.
pub(super) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let ((ones, one_rest), (others, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let number = |chunk: &[u8; 8]| u64::from_le_bytes(*chunk);
    one_rest == other_rest
        && ones.len() == others.len()
        && ones.iter().zip(others).all(|(one, other)| number(one) == number(other))
}

/// Shows only the size of the token: logs must not carry tokens.
impl fmt::Debug for TokenKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenKey").field("token", &self.token.len()).finish_non_exhaustive()
    }
}

/// A token that was found good.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub(crate) key: TokenKey,
    pub(crate) verified: Arc<Verified>,
    /// About how many bytes of memory it takes.
    pub(crate) weight: usize,
}

/// The tokens that a worker found good, bounded in number and bytes. The oldest one that was not used since it was last
/// looked at is dropped first.
#[derive(Debug, Default)]
pub struct TokenCache {
    slots: FxHashMap<u64, Slot>,
    /// The slots, the oldest first.
    order: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    /// Whether it was used since it was last looked at for dropping.
    used: bool,
}

impl TokenCache {
    /// The verified token under a key. The caller checks whether it is still good.
    pub fn recall(&mut self, key: &TokenKey) -> Option<Arc<Verified>> {
        let slot = self.slots.get_mut(&hash(key)).filter(|slot| slot.entry.key.is(key))?;
        slot.used = true;
        Some(Arc::clone(&slot.entry.verified))
    }

    /// Adds a token that was found good. Drops others if there is no room.
    pub fn remember(&mut self, entry: Entry) {
        let (hash, weight) = (hash(&entry.key), entry.weight);
        if weight > MOST_BYTES {
            return;
        }
        // What has the same hash is the same token, out of date, or a rarity that is not worth a list.
        match self.slots.insert(hash, Slot { entry, used: false }) {
            Some(old) => self.bytes = self.bytes.saturating_sub(old.entry.weight),
            None => self.order.push_back(hash),
        }
        self.bytes = self.bytes.saturating_add(weight);
        while self.slots.len() > MOST_ENTRIES || self.bytes > MOST_BYTES {
            self.forget_one();
        }
    }

    fn forget_one(&mut self) {
        while let Some(hash) = self.order.pop_front() {
            match self.slots.get_mut(&hash) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    self.order.push_back(hash);
                }
                _ => {
                    if let Some(slot) = self.slots.remove(&hash) {
                        self.bytes = self.bytes.saturating_sub(slot.entry.weight);
                    }
                    return;
                }
            }
        }
        // Not reached: every slot has its place in the order.
        (self.slots, self.bytes) = (FxHashMap::default(), 0);
    }
}

fn hash(key: &TokenKey) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(&key.scope);
    hasher.write(&key.token);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(scope: u8, token: &str, weight: usize) -> Entry {
        let verified =
            Verified { claims: Arc::default(), headers: vec![], consumer: Some(token.into()), from: 0, until: 9 };
        let key = TokenKey { scope: [scope; 32], token: token.as_bytes().into() };
        Entry { key, verified: Arc::new(verified), weight }
    }

    fn knows(cache: &mut TokenCache, scope: u8, token: &str) -> bool {
        let key = TokenKey { scope: [scope; 32], token: token.as_bytes().into() };
        let found = cache.recall(&key);
        assert!(found.as_ref().is_none_or(|found| found.consumer.as_deref() == Some(token)));
        found.is_some()
    }

    #[test]
    fn finds_a_token_in_its_own_scope_only() {
        let mut cache = TokenCache::default();
        cache.remember(entry(1, "a", 10));
        assert!(knows(&mut cache, 1, "a"));
        assert!(!knows(&mut cache, 2, "a") && !knows(&mut cache, 1, "b") && !knows(&mut cache, 1, ""));
    }

    #[test]
    fn stays_within_its_number_and_keeps_what_is_used() {
        let mut cache = TokenCache::default();
        cache.remember(entry(1, "used", 10));
        for number in 0..5000 {
            assert!(knows(&mut cache, 1, "used"));
            cache.remember(entry(1, &number.to_string(), 10));
            assert!(cache.slots.len() <= MOST_ENTRIES && cache.order.len() == cache.slots.len());
        }
        assert!(knows(&mut cache, 1, "4999") && !knows(&mut cache, 1, "0"));
        assert_eq!(cache.bytes, cache.slots.len() * 10);
    }

    #[test]
    fn stays_within_its_bytes() {
        let mut cache = TokenCache::default();
        for number in 0..100 {
            cache.remember(entry(1, &number.to_string(), 1 << 20));
            assert!(cache.bytes <= MOST_BYTES);
        }
        cache.remember(entry(1, "huge", MOST_BYTES + 1));
        assert!(!knows(&mut cache, 1, "huge") && knows(&mut cache, 1, "99"));
    }

    #[test]
    fn replaces_a_token_that_it_knows() {
        let mut cache = TokenCache::default();
        cache.remember(entry(1, "a", 10));
        cache.remember(entry(1, "a", 20));
        assert_eq!((cache.slots.len(), cache.order.len(), cache.bytes), (1, 1, 20));
    }

    #[test]
    fn says_nothing_of_a_token_in_logs() {
        let text = format!("{:?}", entry(1, "secret", 1).key);
        assert!(!text.contains("secret") && !text.contains("115"), "{text}");
    }
}
