//! Which Envoys can be served, and what the bootstrap of a node allows.
//!
//! An Envoy ignores unknown fields, except for a line in its own log, and refuses what it cannot run. So nothing is
//! served to an Envoy that would do either with something that is generated: see [`unsupported`]. Code that emits a field
//! which [`OLDEST`] does not know raises [`OLDEST`], or asks [`Support`] whether a node has it.

use std::fmt;

use postern_base::node::{NodeIdentity, WASM_RUNTIME};

/// The oldest supported Envoy. It knows every field that is generated.
pub const OLDEST: Version = Version { major: 1, minor: 37 };

/// A version of Envoy. Patch versions add no fields, so they are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// Parses `1.37.0`. `None` if it does not start with two numbers.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        Some(Self { major: parts.next()?.parse().ok()?, minor: parts.next()?.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why an Envoy is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// It would ignore or refuse what is generated.
    #[error("Envoy {0} is older than {OLDEST}, the oldest supported version")]
    TooOld(String),
    /// It cannot run the filter.
    #[error("Envoy {0} is built without the Wasm runtime V8 (extension `{WASM_RUNTIME}`), which the filter needs")]
    WithoutWasm(String),
}

/// Returns why a node is not served, or `None` if it is. A node without a version is not an Envoy, or is served files, and
/// counts as supported; so does an Envoy that does not list its extensions.
pub fn unsupported(node: &NodeIdentity) -> Option<Unsupported> {
    let envoy = node.envoy.as_ref()?;
    if Version::read(envoy).is_some_and(|version| version < OLDEST) {
        return Some(Unsupported::TooOld(envoy.clone()));
    }
    node.lacks_wasm.then(|| Unsupported::WithoutWasm(envoy.clone()))
}

/// What the bootstrap of a node allows. Nodes that differ in it are served differently.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Support {
    /// Regular expressions of any size. Otherwise Envoy refuses those of more than 100 instructions, unless they have a
    /// deprecated field.
    pub large_regexes: bool,
}

impl Support {
    /// The support of a node.
    pub fn of(node: &NodeIdentity) -> Self {
        Self { large_regexes: node.large_regexes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_which_envoys_can_be_served() {
        let check = |version: Option<&str>, lacks_wasm, expect: Option<&str>| {
            let node = NodeIdentity { envoy: version.map(str::to_owned), lacks_wasm, ..NodeIdentity::default() };
            assert_eq!(unsupported(&node).map(|reason| reason.to_string()).as_deref(), expect, "{version:?}");
        };
        check(None, false, None);
        check(None, true, None);
        check(Some("a build of our own"), false, None);
        for version in ["1.37.0", "1.40.0", "2.0.0"] {
            check(Some(version), false, None);
        }
        check(Some("1.36.4"), false, Some("Envoy 1.36.4 is older than 1.37, the oldest supported version"));
        check(Some("0.99.9"), true, Some("Envoy 0.99.9 is older than 1.37, the oldest supported version"));
        let without = "Envoy 1.38.3 is built without the Wasm runtime V8 (extension `envoy.wasm.runtime.v8`), which the \
                       filter needs";
        check(Some("1.38.3"), true, Some(without));
    }
}
