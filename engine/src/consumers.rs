//! The consumers of a plan, and the lookup of their credentials.

use std::sync::{Arc, Mutex, PoisonError};

use postern_proto::plan::v1 as wire;
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
use siphasher::sip128::SipHasher24;

pub use crate::password::{LONGEST_SALT, MOST_ITERATIONS};
use crate::{
    budget::Budget,
    load_error::{LoadError, PlanPart},
    password::Password,
    replays::KeyReplays,
    strings::Strings,
};

/// All consumers of a plan. A lookup costs the same for ten as for ten thousand.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    by_api_key: FxHashMap<[u8; 32], Arc<Consumer>>,
    known_keys: KnownKeys,
    by_username: FxHashMap<Arc<str>, (Arc<Consumer>, Password)>,
    by_hmac_key: FxHashMap<Arc<str>, HmacKey>,
    by_name: FxHashMap<Arc<str>, Arc<Consumer>>,
    /// The most rounds that any password has.
    most_rounds: u32,
}

/// A named caller.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) name: Arc<str>,
    pub(crate) groups: Vec<Arc<str>>,
}

/// A secret that requests are signed with, and its consumer. Its `Debug` does not show the secret.
pub(crate) struct HmacKey {
    consumer: Arc<Consumer>,
    secret: Vec<u8>,
    replays: KeyReplays,
}

impl HmacKey {
    pub(crate) fn consumer(&self) -> &Arc<Consumer> {
        &self.consumer
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }

    pub(crate) fn replays(&self) -> &KeyReplays {
        &self.replays
    }
}

impl std::fmt::Debug for HmacKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "HmacKey({} bytes)", self.secret.len())
    }
}

impl Consumers {
    pub(crate) fn load(consumers: &[wire::Consumer], strings: &Strings) -> Result<Self, LoadError> {
        let mut loaded = Self::default();
        for wire in consumers {
            let name = strings.name(wire.name)?;
            let place = PlanPart::Consumer(Arc::clone(&name));
            loaded.add(wire, name, strings).map_err(|error| error.within(place))?;
        }
        loaded.known_keys = KnownKeys::new(consumers.iter().flat_map(|consumer| &consumer.api_key_sha256));
        Ok(loaded)
    }

    fn add(&mut self, wire: &wire::Consumer, name: Arc<str>, strings: &Strings) -> Result<(), LoadError> {
        let groups = wire.groups.iter().map(|group| strings.get(*group)).collect::<Result<_, _>>()?;
        let consumer = Arc::new(Consumer { name: Arc::clone(&name), groups });
        if self.by_name.insert(Arc::clone(&name), Arc::clone(&consumer)).is_some() {
            return Err(LoadError::Repeated { what: "consumer", name });
        }
        for digest in &wire.api_key_sha256 {
            let size = digest.len();
            let digest = <[u8; 32]>::try_from(digest.as_slice()).map_err(|_| LoadError::Digest { size })?;
            if self.by_api_key.insert(digest, Arc::clone(&consumer)).is_some() {
                return Err(LoadError::Repeated { what: "API key of consumer", name });
            }
        }
        for wire in &wire.hmac {
            let id = strings.get(wire.id)?;
            let replays = KeyReplays::new(&id, &wire.secret);
            let key = HmacKey { consumer: Arc::clone(&consumer), secret: wire.secret.clone(), replays };
            if self.by_hmac_key.insert(Arc::clone(&id), key).is_some() {
                return Err(LoadError::Repeated { what: "HMAC key", name: id });
            }
        }
        if let Some(wire) = &wire.basic_auth {
            let username = strings.get(wire.username)?;
            self.most_rounds = self.most_rounds.max(wire.iterations);
            let credential = (consumer, Password::load(wire)?);
            if self.by_username.insert(Arc::clone(&username), credential).is_some() {
                return Err(LoadError::Repeated { what: "user name", name: username });
            }
        }
        Ok(())
    }

    /// The consumer who has this API key.
    pub(crate) fn by_api_key(&self, key: &[u8]) -> Option<Arc<Consumer>> {
        let fingerprint = self.known_keys.fingerprint(key);
        if let Some(consumer) = self.known_keys.find(fingerprint) {
            return Some(consumer);
        }
        self.by_new_api_key(key, fingerprint)
    }

    #[inline(never)]
    fn by_new_api_key(&self, key: &[u8], fingerprint: u128) -> Option<Arc<Consumer>> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let consumer = self.by_api_key.get(&digest)?;
        self.known_keys.keep(fingerprint, consumer);
        Some(Arc::clone(consumer))
    }

    /// The consumer of this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Consumer>> {
        self.by_name.get(name)
    }

    /// The HMAC key of this name.
    pub(crate) fn by_hmac_key(&self, id: &str) -> Option<&HmacKey> {
        self.by_hmac_key.get(id)
    }

    /// The consumer of this user name, if this is its password. A wrong password takes as long as an unknown user name.
    pub(crate) fn by_password(&self, username: &[u8], password: &[u8], budget: &Budget) -> Option<&Arc<Consumer>> {
        let found = std::str::from_utf8(username).ok().and_then(|username| self.by_username.get(username));
        match found {
            Some((consumer, expected)) => expected.is(password, self.most_rounds, budget).then_some(consumer),
            None => {
                Password::nobodys().is(password, self.most_rounds, budget);
                None
            }
        }
    }
}

/// The keys that were found good before, by a fingerprint that costs a tenth of a SHA-256.
///
/// A fingerprint does not reveal its key. A caller cannot construct a key with the fingerprint of another one, since it
/// knows neither that key nor the secret of the SipHash. Only keys of consumers are kept, so there are never more
/// entries than keys.
#[derive(Default)]
struct KnownKeys {
    /// The hasher, with its secret.
    hasher: SipHasher24,
    consumers: Mutex<FxHashMap<u128, Arc<Consumer>>>,
}

impl KnownKeys {
    /// Makes the secret of the digests of all keys. Whoever knows these has the plan already.
    fn new<'a>(digests: impl Iterator<Item = &'a Vec<u8>>) -> Self {
        let mut all = Sha256::new();
        digests.for_each(|digest| all.update(digest));
        let [secret, _] = *<[u8; 32]>::from(all.finalize()).as_chunks().0 else { return Self::default() };
        Self { hasher: SipHasher24::new_with_key(&secret), consumers: Mutex::default() }
    }

    fn fingerprint(&self, key: &[u8]) -> u128 {
        self.hasher.hash(key).as_u128()
    }

    fn find(&self, fingerprint: u128) -> Option<Arc<Consumer>> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner).get(&fingerprint).cloned()
    }

    fn keep(&self, fingerprint: u128, consumer: &Arc<Consumer>) {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner).insert(fingerprint, Arc::clone(consumer));
    }
}

/// Shows nothing of which keys were used.
impl std::fmt::Debug for KnownKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KnownKeys")
    }
}
