//! What Envoys understand, by version. An Envoy ignores unknown fields, except for a line in its own log, so
//! configuration that relies on a newer field must not reach an older node.
//!
//! The list of everything that we emit and that is newer than the oldest supported Envoy. Code that emits something
//! newer adds it here, and checks the [`Feature`] where it is used.

use std::fmt;

/// The oldest supported Envoy. It knows everything that is not in [`SINCE`].
pub const OLDEST: Version = Version { major: 1, minor: 36 };

/// Newer features: the name in messages, and the first version that has it.
const SINCE: [(Feature, &str, Version); 2] = [
    (Feature::PathRewrite, "`path_rewrite` of a route", Version { major: 1, minor: 37 }),
    (Feature::HostRewrite, "`host_rewrite` of a route", Version { major: 1, minor: 37 }),
];

/// A version of Envoy. Patch versions add no fields, so they are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// Parses `1.36.4`. `None` if it does not start with two numbers.
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

/// A feature that not every supported Envoy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// The path of `rewrite` is sent to the upstream.
    PathRewrite,
    /// The host of `rewrite` is sent to the upstream.
    HostRewrite,
}

impl Feature {
    /// The message for users of the feature on a node that lacks it.
    pub fn missing(self) -> String {
        let row = SINCE.iter().find(|(feature, ..)| *feature == self);
        let (words, since) = row.map_or(("it", OLDEST), |(_, words, since)| (*words, *since));
        format!("{words} came with Envoy {since}, and this node is older: its routes answer 500")
    }
}

/// What a node understands of its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Support {
    /// Everything.
    #[default]
    Full,
    /// Everything except these features.
    Lacks(Vec<Feature>),
    /// Too little to be served: every request is refused.
    None,
}

impl Support {
    /// The support of a node by its version. Without a version, it is not an Envoy, or is served files, and counts as
    /// full.
    pub fn of(version: Option<&str>) -> Self {
        let Some(version) = version.and_then(Version::read) else { return Self::Full };
        let lacks: Vec<_> = SINCE.iter().filter(|(.., since)| version < *since).map(|(feature, ..)| *feature).collect();
        match lacks {
            _ if version < OLDEST => Self::None,
            lacks if lacks.is_empty() => Self::Full,
            lacks => Self::Lacks(lacks),
        }
    }

    /// Whether the node lacks a feature.
    pub fn lacks(&self, feature: Feature) -> bool {
        match self {
            Self::Full => false,
            Self::Lacks(lacks) => lacks.contains(&feature),
            Self::None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_each_version_lacks() {
        let check = |version: Option<&str>, expect| assert_eq!(Support::of(version), expect, "{version:?}");
        check(None, Support::Full);
        check(Some("a build of our own"), Support::Full);
        check(Some("1.40.0"), Support::Full);
        check(Some("1.37.0"), Support::Full);
        check(Some("2.0.0"), Support::Full);
        check(Some("1.36.4"), Support::Lacks(vec![Feature::PathRewrite, Feature::HostRewrite]));
        check(Some("1.35.9"), Support::None);
        check(Some("0.99.9"), Support::None);
    }
}
