//! The loaded plan. Loading checks everything at once and refuses the whole for one bad part, so that nothing that
//! runs later checks again.

use std::{collections::HashMap, sync::Arc};

use postern_proto::plan::v1::{self as wire, FORMAT};
use prost::Message;

use crate::chain::Chain;

/// All that a filter needs to decide requests.
#[derive(Debug)]
pub struct Plan {
    revision: Arc<str>,
    routes: HashMap<Arc<str>, usize>,
    chains: Vec<Chain>,
    consumers: Consumers,
}

impl Plan {
    /// Loads an encoded plan, whole or not at all.
    pub fn load(bytes: &[u8]) -> Result<Self, LoadError> {
        let wire = wire::Plan::decode(bytes)?;
        if wire.format != FORMAT {
            return Err(LoadError::Format(wire.format));
        }
        let strings = Strings::new(wire.strings);
        let chains = wire
            .chains
            .iter()
            .enumerate()
            .map(|(index, chain)| Chain::load(chain, &strings).map_err(|error| error.within(format!("chain {index}"))))
            .collect::<Result<Vec<_>, _>>()?;
        let routes = load_routes(&wire.routes, &strings, chains.len())?;
        let consumers = Consumers::load(&wire.consumers, &strings)?;
        Ok(Self { revision: wire.revision.into(), routes, chains, consumers })
    }

    /// The chain that guards the route of this name. A route that the plan does not know has none: its requests pass.
    pub fn chain(&self, route: &str) -> Option<&Chain> {
        self.routes.get(route).and_then(|index| self.chains.get(*index))
    }

    /// What the control plane calls the revision that this plan comes from.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The callers that the plan knows.
    pub fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// How many routes have a chain.
    pub fn routes(&self) -> usize {
        self.routes.len()
    }
}

fn load_routes(
    routes: &[wire::Route],
    strings: &Strings,
    chains: usize,
) -> Result<HashMap<Arc<str>, usize>, LoadError> {
    let mut loaded = HashMap::with_capacity(routes.len());
    for route in routes {
        let name = strings.get(route.name)?;
        let chain = usize::try_from(route.chain).unwrap_or(usize::MAX);
        if chain >= chains {
            let error = LoadError::Index { what: "chain", index: route.chain, size: chains };
            return Err(error.within(format!("route `{name}`")));
        }
        if loaded.insert(Arc::clone(&name), chain).is_some() {
            return Err(LoadError::Repeated { what: "route", name });
        }
    }
    Ok(loaded)
}

/// The callers that credentials belong to. Looking one up costs the same for ten as for ten thousand.
#[derive(Debug, Default)]
pub struct Consumers {
    by_api_key: HashMap<[u8; 32], Arc<str>>,
}

impl Consumers {
    fn load(consumers: &[wire::Consumer], strings: &Strings) -> Result<Self, LoadError> {
        let mut by_api_key = HashMap::new();
        for consumer in consumers {
            let name = strings.name(consumer.name)?;
            for digest in &consumer.api_key_sha256 {
                let digest = <[u8; 32]>::try_from(digest.as_slice())
                    .map_err(|_| LoadError::Digest { size: digest.len() }.within(format!("consumer `{name}`")))?;
                if by_api_key.insert(digest, Arc::clone(&name)).is_some() {
                    return Err(LoadError::Repeated { what: "API key of consumer", name });
                }
            }
        }
        Ok(Self { by_api_key })
    }

    /// The consumer whose API key has this SHA-256 digest.
    pub fn by_api_key(&self, digest: &[u8; 32]) -> Option<&Arc<str>> {
        self.by_api_key.get(digest)
    }
}

/// The plan's strings by index.
#[derive(Debug)]
pub(crate) struct Strings(Vec<Arc<str>>);

impl Strings {
    fn new(strings: Vec<String>) -> Self {
        Self(strings.into_iter().map(Arc::from).collect())
    }

    fn get(&self, index: u32) -> Result<Arc<str>, LoadError> {
        let found = usize::try_from(index).ok().and_then(|index| self.0.get(index));
        found.cloned().ok_or(LoadError::Index { what: "string", index, size: self.0.len() })
    }

    /// The name of something that logs mention: it must be fit to stand there unquoted.
    pub(crate) fn name(&self, index: u32) -> Result<Arc<str>, LoadError> {
        let fits = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=');
        self.checked(index, "name", fits)
    }

    /// A header's name: an RFC 9110 token in lower case, of a header that a policy may touch.
    pub(crate) fn header_name(&self, index: u32) -> Result<Arc<str>, LoadError> {
        let token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let fits = |name: &str| !name.is_empty() && name != "host" && name.bytes().all(token);
        self.checked(index, "header name", fits)
    }

    /// A header's value: no control characters but the tab, so that no value can start a header of its own.
    pub(crate) fn header_value(&self, index: u32) -> Result<Arc<str>, LoadError> {
        let fits = |value: &str| value.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control());
        self.checked(index, "header value", fits)
    }

    fn checked(&self, index: u32, what: &'static str, fits: impl Fn(&str) -> bool) -> Result<Arc<str>, LoadError> {
        let text = self.get(index)?;
        if fits(&text) { Ok(text) } else { Err(LoadError::Unfit { what, text }) }
    }
}

/// Why a plan was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are no plan.
    #[error("the plan cannot be decoded: {0}")]
    Decode(#[from] prost::DecodeError),
    /// The plan was written for another engine.
    #[error("plan format {0} is not supported, this engine loads format {FORMAT}")]
    Format(u32),
    /// A step's policy came later than this engine.
    #[error("a policy that this engine does not know")]
    UnknownPolicy,
    /// An index points nowhere.
    #[error("{what} {index} does not exist, there are {size}")]
    Index {
        /// What is indexed.
        what: &'static str,
        /// The index.
        index: u32,
        /// How many there are.
        size: usize,
    },
    /// Two of what there must be one of.
    #[error("{what} `{name}` is there twice")]
    Repeated {
        /// What it is.
        what: &'static str,
        /// Which it is.
        name: Arc<str>,
    },
    /// A string that cannot be what it is used for.
    #[error("`{}` is not a valid {what}", text.escape_debug())]
    Unfit {
        /// What it is used for.
        what: &'static str,
        /// The string.
        text: Arc<str>,
    },
    /// A digest that is not SHA-256.
    #[error("an API key's digest has {size} bytes instead of 32")]
    Digest {
        /// Its size.
        size: usize,
    },
    /// Where in the plan the error is.
    #[error("{place}: {error}")]
    Within {
        /// The place.
        place: String,
        /// What is wrong there.
        error: Box<LoadError>,
    },
}

impl LoadError {
    /// The same error with the place that it stands in.
    pub(crate) fn within(self, place: impl Into<String>) -> Self {
        Self::Within { place: place.into(), error: Box::new(self) }
    }
}
