//! The callers that a plan knows, and the credentials that prove to be one of them.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;
use rustc_hash::FxHashMap;

use crate::{password::Password, plan::LoadError, strings::Strings};

/// The most rounds that a password may cost: every wrong one holds up a worker for that long.
pub const MOST_ITERATIONS: u32 = 10_000;
/// The longest salt of a password.
pub const LONGEST_SALT: usize = 64;

/// The callers that credentials belong to. Looking one up costs the same for ten as for ten thousand.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    by_api_key: FxHashMap<[u8; 32], Arc<Consumer>>,
    by_username: FxHashMap<Arc<str>, (Arc<Consumer>, Password)>,
    by_name: FxHashMap<Arc<str>, Arc<Consumer>>,
    /// The rounds of the costliest password.
    most_rounds: u32,
}

/// A named caller.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) name: Arc<str>,
    pub(crate) groups: Vec<Arc<str>>,
}

impl Consumers {
    pub(crate) fn load(consumers: &[wire::Consumer], strings: &Strings) -> Result<Self, LoadError> {
        let mut loaded = Self::default();
        for wire in consumers {
            let name = strings.name(wire.name)?;
            let place = format!("consumer `{name}`");
            loaded.add(wire, name, strings).map_err(|error| error.within(place))?;
        }
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

    /// The consumer whose API key has this SHA-256 digest.
    pub(crate) fn by_api_key(&self, digest: &[u8; 32]) -> Option<&Arc<Consumer>> {
        self.by_api_key.get(digest)
    }

    /// The consumer of this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Consumer>> {
        self.by_name.get(name)
    }

    /// The consumer of this user name, if this is its password. It takes as long to find that it is not as to find that
    /// there is no such user.
    pub(crate) fn by_password(&self, username: &[u8], password: &[u8]) -> Option<&Arc<Consumer>> {
        let found = std::str::from_utf8(username).ok().and_then(|username| self.by_username.get(username));
        match found {
            Some((consumer, expected)) => expected.is(password, self.most_rounds).then_some(consumer),
            None => {
                Password::nobodys().is(password, self.most_rounds);
                None
            }
        }
    }
}
