//! What Envoys understand, by their version. Envoy ignores fields that it does not know, and says so only in its own log:
//! what relies on one must not reach a node that is too old for it.
//!
//! This is the one list of what we emit that is newer than the oldest Envoy that we support. Whoever emits something newer
//! adds it here, and names the [`Feature`] where it is used.

use std::fmt;

/// The oldest Envoy that is served. All that is not in [`SINCE`] is known to it.
pub const OLDEST: Version = Version { major: 1, minor: 36 };

/// What is newer, the words that Envoy has for it, and the version that it came with.
const SINCE: [(Feature, &str, Version); 2] = [
    (Feature::PathRewrite, "`path_rewrite` of a route", Version { major: 1, minor: 37 }),
    (Feature::HostRewrite, "`host_rewrite` of a route", Version { major: 1, minor: 37 }),
];

/// A version of Envoy. Patches add no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// Reads `1.36.4`; `None` if it does not start with two numbers.
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

/// Something that not every Envoy knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// The path that `rewrite` left is what the upstream gets.
    PathRewrite,
    /// The same for the host.
    HostRewrite,
}

impl Feature {
    /// What users are told who rely on it.
    pub fn missing(self) -> String {
        let row = SINCE.iter().find(|(feature, ..)| *feature == self);
        let (words, since) = row.map_or(("it", OLDEST), |(_, words, since)| (*words, *since));
        format!("{words} came with Envoy {since}, and this node is older: its routes answer 500")
    }
}

/// How much of what we emit a node understands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Support {
    /// All of it.
    #[default]
    Full,
    /// All but these.
    Lacks(Vec<Feature>),
    /// Too little: every request is refused.
    None,
}

impl Support {
    /// What a node of this version understands. One that names no version is no Envoy, or is served files, and is taken
    /// to know everything.
    pub fn of(version: Option<&str>) -> Self {
        let Some(version) = version.and_then(Version::read) else { return Self::Full };
        let lacks: Vec<_> = SINCE.iter().filter(|(.., since)| version < *since).map(|(feature, ..)| *feature).collect();
        match lacks {
            _ if version < OLDEST => Self::None,
            lacks if lacks.is_empty() => Self::Full,
            lacks => Self::Lacks(lacks),
        }
    }

    /// Whether something is not understood.
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
