//! What is in force: for every node, the snapshot of the group that it belongs to. Streams follow publications; which
//! node is in which group is decided here and nowhere else.

use std::sync::Arc;

use crate::{digest::Digest, node::NodeIdentity, snapshot::Snapshot};

/// One revision, as nodes are served it. Immutable; streams share it.
#[derive(Debug)]
pub struct Publication {
    revision: Digest,
    snapshot: Arc<Snapshot>,
}

impl Publication {
    /// The same for every node.
    pub fn uniform(snapshot: Snapshot) -> Self {
        Self { revision: snapshot.revision().clone(), snapshot: Arc::new(snapshot) }
    }

    /// The revision that is in force.
    pub fn revision(&self) -> &Digest {
        &self.revision
    }

    /// What this node is served. Nodes of one group get the same `Arc`, so that what is made of it can be shared too.
    pub fn snapshot_for(&self, _node: &NodeIdentity) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }
}
