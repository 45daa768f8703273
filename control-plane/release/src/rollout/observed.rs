//! Where a node of the fleet stands with a revision.

use std::sync::Arc;

use postern_base::node::NodeIdentity;

/// One node as the fleet knows it, with regard to the revision that it is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Who it is.
    pub node: Arc<NodeIdentity>,
    /// Whether it has a stream open.
    pub connected: bool,
    /// Where it stands with the new revision.
    pub standing: Standing,
}

/// Where a node stands with a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has not answered, or was not asked.
    Pending,
    /// It runs it.
    Acked,
    /// It refused it, for this reason.
    Nacked(String),
}
