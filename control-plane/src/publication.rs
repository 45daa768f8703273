//! What is in force: for every node, the snapshot of the group that it belongs to. Streams follow publications; which
//! node is in which group is decided here and nowhere else.

use std::sync::Arc;

use crate::{
    digest::Digest,
    node::NodeIdentity,
    rollout::{Audience, Rollout},
    snapshot::Snapshot,
};

/// One revision, or two during a rollout, as nodes are served them. Immutable; streams share it.
#[derive(Debug)]
pub struct Publication {
    revision: Digest,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// The same for every node.
    Uniform(Arc<Snapshot>),
    /// To each node what the rollout says.
    Split(Box<Split>),
}

#[derive(Debug)]
struct Split {
    rollout: Rollout,
    last_good: Arc<Publication>,
    candidate: Arc<Publication>,
    audience: Arc<Audience>,
}

impl Publication {
    /// The same for every node.
    pub fn uniform(snapshot: Snapshot) -> Self {
        Self { revision: snapshot.revision().clone(), content: Content::Uniform(Arc::new(snapshot)) }
    }

    /// The candidate of a rollout for the nodes that it says, and the last good revision for all others. The audience
    /// learns of every node that asks.
    pub fn split(rollout: Rollout, last_good: Arc<Self>, candidate: Arc<Self>, audience: Arc<Audience>) -> Self {
        let revision = if rollout.is_back() { last_good.revision() } else { candidate.revision() }.clone();
        Self { revision, content: Content::Split(Box::new(Split { rollout, last_good, candidate, audience })) }
    }

    /// The revision that is in force, or spreads.
    pub fn revision(&self) -> &Digest {
        &self.revision
    }

    /// What this node is served. Nodes of one group get the same `Arc`, so that what is made of it can be shared too.
    pub fn snapshot_for(&self, node: &NodeIdentity) -> Arc<Snapshot> {
        match &self.content {
            Content::Uniform(snapshot) => Arc::clone(snapshot),
            Content::Split(split) => {
                split.audience.add(node);
                let on_candidate = split.rollout.revision_for(node) == split.rollout.candidate();
                if on_candidate { &split.candidate } else { &split.last_good }.snapshot_for(node)
            }
        }
    }
}
