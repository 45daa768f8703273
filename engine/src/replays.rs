//! The signatures that were admitted, so that each passes once in the whole Envoy.
//!
//! Each key has a memory of its own: no other consumer can fill it or displace anything in it, and every step, route
//! and revision shares it. It is in shared data, spread over several values by a hash under a secret of the key, so
//! that nobody can aim at one of them; each value is changed by compare-and-swap. A signature is never forgotten while
//! it could be admitted again.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use siphasher::sip128::SipHasher24;

use crate::host::{Host, SharedValue};

/// The most signatures of one key that are remembered.
pub const MOST_SIGNATURES: u32 = 262_144;

const SECOND: u64 = 1_000_000_000;
/// How many shared values the signatures of one key are spread over. Changing the number would forget what was
/// remembered.
const SETS: u64 = 64;
const MOST_TRIES: u32 = 64;

/// How many signatures one step wants remembered, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// How long, in nanoseconds.
    pub(crate) window: u64,
    /// How many signatures of one key.
    pub(crate) capacity: u32,
}

/// How signatures are remembered, for all steps of a plan together.
#[derive(Debug)]
pub(crate) struct Replays {
    window: u64,
    most_in_set: usize,
}

/// The memory of one key.
pub(crate) struct KeyReplays {
    prefix: String,
    /// The hasher, under a secret that is made of the key's.
    hasher: SipHasher24,
}

/// The result of remembering a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remembered {
    /// It is new, and is remembered now.
    New,
    /// It was admitted before, or is so old that it may have been.
    Before,
    /// There is no room for it.
    Full,
    /// The shared data is not available.
    Unknown,
}

impl KeyReplays {
    pub(crate) fn new(id: &str, secret: &[u8]) -> Self {
        let digest = <[u8; 32]>::from(Sha256::new().chain_update(b"postern.replays\0").chain_update(secret).finalize());
        let [secret, _] = *digest.as_chunks().0 else {
            return Self { prefix: String::new(), hasher: SipHasher24::new() };
        };
        Self { prefix: ["postern.replays/", id, "/"].concat(), hasher: SipHasher24::new_with_key(&secret) }
    }

    /// The hash that a signature is remembered by.
    pub(crate) fn hash(&self, signature: &[u8]) -> u64 {
        self.hasher.hash(signature).h1
    }

    fn name(&self, hash: u64) -> Arc<str> {
        let set = hash.checked_rem(SETS).unwrap_or_default();
        [self.prefix.as_str(), &set.to_string()].concat().into()
    }
}

impl std::fmt::Debug for KeyReplays {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyReplays")
    }
}

impl Replays {
    /// Combines the demands of all steps: the longest window and the largest capacity, since they share the memory.
    pub(crate) fn new(demands: impl Iterator<Item = Demand>) -> Self {
        let (window, capacity) = demands
            .fold((0, 0), |(window, capacity), demand| (demand.window.max(window), demand.capacity.max(capacity)));
        Self { window, most_in_set: most_in_set(capacity) }
    }

    /// Remembers a signature that was made at this time, in nanoseconds since 1970.
    pub(crate) fn remember(&self, host: &mut dyn Host, key: &KeyReplays, hash: u64, made: u64, now: u64) -> Remembered {
        let name = key.name(hash);
        for _ in 0..MOST_TRIES {
            let Ok((value, version)) = host.load(&name) else { return Remembered::Unknown };
            let mut seen = Seen::decode(&value, self.window, now);
            if seen.has(hash) || made <= seen.forgotten {
                return Remembered::Before;
            }
            if seen.entries.len() >= self.most_in_set {
                return Remembered::Full;
            }
            seen.entries.push((hash, made));
            match host.store(&name, seen.encode(), version) {
                Ok(true) => return Remembered::New,
                Ok(false) => {}
                Err(_) => return Remembered::Unknown,
            }
        }
        Remembered::Unknown
    }
}

/// The capacity of one value: its share and eight standard deviations more, so that in practice no value is full before
/// the others.
fn most_in_set(capacity: u32) -> usize {
    let share = u64::from(capacity).div_ceil(SETS);
    let room = share.saturating_add(share.isqrt().saturating_mul(8)).saturating_add(8);
    usize::try_from(room).unwrap_or(usize::MAX)
}

/// One shared value.
struct Seen {
    /// The latest time of a signature that was dropped. A signature that is not later may be one of those, and is
    /// refused. So neither a longer window nor a clock that was ahead for a while makes an old signature new.
    forgotten: u64,
    /// Signatures, and when they were made.
    entries: Vec<(u64, u64)>,
}

impl Seen {
    /// Decodes a shared value, without what need not be remembered any more.
    fn decode(value: &[u8], window: u64, now: u64) -> Self {
        let (numbers, _) = value.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut seen = Self { forgotten: numbers.next().unwrap_or_default(), entries: Vec::new() };
        while let (Some(hash), Some(made)) = (numbers.next(), numbers.next()) {
            if made.saturating_add(window).saturating_add(SECOND) > now {
                seen.entries.push((hash, made));
            } else {
                seen.forgotten = seen.forgotten.max(made);
            }
        }
        seen
    }

    fn encode(&self) -> SharedValue {
        let mut value = SharedValue::from_slice(&self.forgotten.to_le_bytes());
        for (hash, made) in &self.entries {
            value.extend_from_slice([hash.to_le_bytes(), made.to_le_bytes()].as_flattened());
        }
        value
    }

    fn has(&self, hash: u64) -> bool {
        self.entries.iter().any(|(other, _)| *other == hash)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "test code")]
mod tests {
    use super::*;
    use crate::host::Alone;

    const NOW: u64 = 1_600_000_000 * SECOND;

    fn replays(window: u64, capacity: u32) -> Replays {
        Replays::new([Demand { window: window * SECOND, capacity }].into_iter())
    }

    fn remember(
        replays: &Replays,
        host: &mut Alone,
        key: &KeyReplays,
        signature: &str,
        made: u64,
        now: u64,
    ) -> Remembered {
        let (made, now) = (NOW + made * SECOND, NOW + now * SECOND);
        replays.remember(host, key, key.hash(signature.as_bytes()), made, now)
    }

    #[test]
    fn admits_a_signature_once_and_each_key_has_its_own_memory() {
        let (replays, mut host) = (replays(60, 10), Alone::default());
        let (one, other) = (KeyReplays::new("one", b"secret"), KeyReplays::new("other", b"another"));
        assert_eq!(remember(&replays, &mut host, &one, "s", 0, 0), Remembered::New);
        assert_eq!(remember(&replays, &mut host, &one, "s", 0, 1), Remembered::Before);
        assert_eq!(remember(&replays, &mut host, &other, "s", 0, 1), Remembered::New);
    }

    #[test]
    fn forgets_nothing_that_is_good_however_many_come() {
        let (replays, mut host) = (replays(60, 100), Alone::default());
        let (victim, busy) = (KeyReplays::new("victim", b"secret"), KeyReplays::new("busy", b"another"));
        assert_eq!(remember(&replays, &mut host, &victim, "s", 0, 0), Remembered::New);
        let came =
            |host: &mut Alone, key: &KeyReplays, number: u32| remember(&replays, host, key, &number.to_string(), 0, 1);
        let full = (0..5_000).filter(|number| came(&mut host, &busy, *number) == Remembered::Full).count();
        assert!(full > 3_000, "only {full} were refused");
        let own = (0..5_000).filter(|number| came(&mut host, &victim, *number) == Remembered::Full).count();
        assert!(own > 3_000, "only {own} were refused");
        assert_eq!(remember(&replays, &mut host, &victim, "s", 0, 61), Remembered::Before);
        assert_eq!(remember(&replays, &mut host, &victim, "t", 62, 62), Remembered::New, "there is room again");
    }

    #[test]
    fn has_room_for_what_is_declared() {
        for capacity in [1, 12, 1000, 33_100] {
            let (replays, mut host, key) = (replays(60, capacity), Alone::default(), KeyReplays::new("k", b"secret"));
            let new = |number: &u32| remember(&replays, &mut host, &key, &number.to_string(), 0, 0) == Remembered::New;
            assert_eq!((0..capacity).filter(new).count(), capacity as usize);
        }
    }

    #[test]
    fn makes_no_old_signature_new_by_a_longer_window_or_a_jumping_clock() {
        let (short, long, mut host) = (replays(60, 10), replays(600, 10), Alone::default());
        let key = KeyReplays::new("k", b"secret");
        let same_set = (0..10_000).map(|number: u32| number.to_string());
        let hash = |text: &String| key.hash(text.as_bytes()) % SETS;
        let mut texts = same_set.filter(|text| hash(text) == 0);
        let (old, later, newest) = (texts.next().unwrap(), texts.next().unwrap(), texts.next().unwrap());
        assert_eq!(remember(&short, &mut host, &key, &old, 0, 0), Remembered::New);
        assert_eq!(remember(&short, &mut host, &key, &later, 100, 100), Remembered::New, "which forgets the first");
        assert_eq!(remember(&long, &mut host, &key, &old, 0, 101), Remembered::Before);
        assert_eq!(remember(&long, &mut host, &key, &later, 100, 101), Remembered::Before);
        assert_eq!(remember(&long, &mut host, &key, &newest, 101, 101), Remembered::New);
    }

    #[test]
    fn finds_the_same_in_another_plan_with_another_rate() {
        let (small, large, mut host) = (replays(60, 10), replays(60, 200_000), Alone::default());
        let key = || KeyReplays::new("k", b"secret");
        assert_eq!(remember(&small, &mut host, &key(), "s", 0, 0), Remembered::New);
        assert_eq!(remember(&large, &mut host, &key(), "s", 0, 1), Remembered::Before);
    }
}
