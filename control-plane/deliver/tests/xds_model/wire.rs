//! The messages of the protocol, as plain values that are not the server's types.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The types, in the order in which changes must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Secret,
    Cluster,
    Endpoints,
    Extension,
    Listener,
    Routes,
    /// Virtual hosts, which exist in the incremental variant only.
    Hosts,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Secret, Self::Cluster, Self::Endpoints, Self::Extension, Self::Listener, Self::Routes, Self::Hosts];

    /// The types of a variant.
    pub(crate) fn all(variant: Variant) -> &'static [Self] {
        match variant {
            Variant::World => Self::ALL.split_last().map_or(&[], |(_, others)| others),
            Variant::Delta => &Self::ALL,
        }
    }

    /// LDS and CDS: a response is the complete state, and a first request without names is a wildcard.
    pub(crate) fn is_full_state(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    World,
    Delta,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) content: String,
    /// The other names of a virtual host.
    pub(crate) aliases: BTreeSet<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) kind: Kind,
    pub(crate) nonce: String,
    pub(crate) version: String,
    pub(crate) resources: Vec<Resource>,
    pub(crate) removed: Vec<String>,
    /// Names of virtual hosts that match nothing.
    pub(crate) vacant: Vec<String>,
    /// Whether another response was refused before this one was answered.
    pub(crate) crossed: bool,
    /// What was in force and wanted when it was sent.
    pub(crate) target: Contents,
    /// What of `target` was not asked for again since.
    pub(crate) stands_for: Contents,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) nonce: String,
    /// A NACK, and the resources that its message names.
    pub(crate) refuses: Option<Vec<String>>,
    pub(crate) wish: Wish,
}

#[derive(Debug, Clone)]
pub(crate) enum Wish {
    All { names: Vec<String>, version: String },
    Changes { subscribe: Vec<String>, unsubscribe: Vec<String>, initial: BTreeMap<String, String> },
}

impl Response {
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.removed.iter().any(|it| it == name) || self.resources.iter().any(|it| it.name == name)
    }

    pub(crate) fn has(&self, name: &str, content: &str) -> bool {
        self.resources.iter().any(|it| it.name == name && it.content == content)
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} is {:.6}:", self.kind, self.nonce, self.version)?;
        self.resources.iter().try_for_each(|it| write!(f, " {}={}", it.name, it.content))?;
        self.removed.iter().try_for_each(|name| write!(f, " -{name}"))?;
        self.vacant.iter().try_for_each(|name| write!(f, " no {name}"))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refuses {
            None => write!(f, "{:?} [{}]", self.kind, self.nonce)?,
            Some(named) => write!(f, "{:?} [{}] refused {named:?}", self.kind, self.nonce)?,
        }
        match &self.wish {
            Wish::All { names, version } => write!(f, " wants {names:?}, has {version:.6}"),
            Wish::Changes { subscribe, unsubscribe, initial } => {
                write!(f, " wants {subscribe:?}, leaves {unsubscribe:?}, has")?;
                initial.iter().try_for_each(|(name, version)| write!(f, " {name}={version:.6}"))
            }
        }
    }
}

/// Contents by name.
pub(crate) type Contents = BTreeMap<String, String>;
