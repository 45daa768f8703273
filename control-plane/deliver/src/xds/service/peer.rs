//! The node at the other end of a stream.

use postern_base::node::NodeIdentity;

use crate::xds::session::Session;

/// A node that has identified itself.
pub(super) struct Peer {
    pub(super) node: NodeIdentity,
    /// The number of its stream.
    pub(super) stream: u64,
    pub(super) session: Session,
}
