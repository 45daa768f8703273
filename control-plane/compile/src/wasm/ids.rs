//! What contexts are called.

/// A root context: the filter under one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootId(pub(super) u32);

/// A stream's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub(super) u32);
