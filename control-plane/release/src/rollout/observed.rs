//! Where a node of the fleet stands with a revision, as plain values.

use std::sync::Arc;

use postern_base::node::NodeIdentity;

/// A node, with regard to the revision that it is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The node's identity.
    pub node: Arc<NodeIdentity>,
    /// Whether it has an open stream.
    pub connected: bool,
    /// Its standing with the candidate.
    pub standing: Standing,
}

/// The standing of a node with a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has not answered, or was not sent the revision.
    Pending,
    /// It accepted the revision.
    Acked,
    /// It refused the revision, for this reason.
    Nacked(String),
    /// It is not supported, so that it is not served the revision and its answer is not waited for.
    Unsupported,
}
