//! The cycles between modules that are known and not untied yet. This list may only shrink: `cargo xtask tidy` fails when a
//! module joins a cycle without being here, and when one that is here is in none any more.

/// Sibling modules that need each other.
#[derive(Debug)]
pub(crate) struct KnownCycle {
    /// The root of the crate.
    pub(crate) root: &'static str,
    /// Their parent; `crate` for the root.
    pub(crate) level: &'static str,
    pub(crate) modules: &'static [&'static str],
}

/// All of them, by crate and level.
pub(crate) const KNOWN: &[KnownCycle] = &[];
