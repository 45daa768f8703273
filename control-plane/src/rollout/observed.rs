//! Where a node of the fleet stands with a revision.

use std::sync::Arc;

use crate::{
    fleet::{Refusal, Sighting},
    node::NodeIdentity,
    publication::Publication,
    snapshot::ResourceType,
};

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

impl Observed {
    /// A node with regard to a revision: it runs it if it runs all that it subscribed to of it, and refuses it if it
    /// refuses anything of it.
    pub fn new(sighting: &Sighting, release: &Publication) -> Self {
        let standing = if let Some(reason) = refusal(sighting, release) {
            Standing::Nacked(reason)
        } else if sighting.revision.as_ref() == Some(release.revision()) {
            Standing::Acked
        } else {
            Standing::Pending
        };
        Self { node: Arc::clone(&sighting.node), connected: sighting.connected, standing }
    }
}

/// Why a node refuses a revision. What it refused may be of another one.
fn refusal(sighting: &Sighting, release: &Publication) -> Option<String> {
    if let Some((revision, reason)) = &sighting.refused_policies
        && revision == release.revision()
    {
        return Some(format!("policies: {reason}"));
    }
    if sighting.refused.is_empty() {
        return None;
    }
    let snapshot = release.snapshot_for(&sighting.node);
    let of_this = |(kind, refusal): &&(ResourceType, Arc<Refusal>)| refusal.is_of(*kind, &snapshot);
    let (kind, refusal) = sighting.refused.iter().find(of_this)?;
    Some(format!("{kind}: {}", refusal.reason.as_ref().unwrap_or(&refusal.message)))
}
