//! Identifiers of contexts.

/// The id of a root context: the filter with one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootId(pub(super) u32);

/// The id of a stream's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub(super) u32);
