//! Where a node of the fleet stands with a revision, by what it said.

use std::sync::Arc;

use postern_compile::snapshot::ResourceType;

use crate::{
    fleet::{Refusal, Sighting},
    publication::Publication,
    rollout::{Observed, Standing},
};

/// A node with regard to a revision: it runs it if it runs all that it subscribed to of it, and refuses it if it refuses
/// anything of it.
pub fn observed(sighting: &Sighting, release: &Publication) -> Observed {
    let standing = if let Some(reason) = refusal(sighting, release) {
        Standing::Nacked(reason)
    } else if sighting.revision.as_ref() == Some(release.revision()) {
        Standing::Acked
    } else {
        Standing::Pending
    };
    Observed { node: Arc::clone(&sighting.node), connected: sighting.connected, standing }
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
