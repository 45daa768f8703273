//! Where a node of the fleet stands with a revision, derived from its sighting.

use std::sync::Arc;

use postern_compile::snapshot::ResourceType;

use crate::{
    fleet::{Nack, Sighting},
    publication::Publication,
    rollout::{Observed, Standing},
};

/// A node's standing with a release, if it is supported: it runs the release if it runs all of it that it subscribed to, and refuses it if
/// it refuses any part of it.
pub fn observed(sighting: &Sighting, release: &Publication) -> Observed {
    let standing = if sighting.unsupported {
        Standing::Unsupported
    } else if let Some(reason) = refusal(sighting, release) {
        Standing::Nacked(reason)
    } else if sighting.revision.as_ref() == Some(release.revision()) {
        Standing::Acked
    } else {
        Standing::Pending
    };
    Observed { node: Arc::clone(&sighting.node), connected: sighting.connected, standing }
}

/// The reason for which a node refuses a release, or `None`. A refusal of another release does not count.
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
    let of_this = |(kind, refusal): &&(ResourceType, Arc<Nack>)| refusal.is_of(*kind, &snapshot);
    let (kind, refusal) = sighting.refused.iter().find(of_this)?;
    Some(format!("{kind}: {}", refusal.reason.as_ref().unwrap_or(&refusal.message)))
}
