//! Where a node of the fleet stands with a revision, derived from its sighting; and what is stored of it.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use postern_compile::snapshot::ResourceType;

use crate::{
    fleet::{Nack, Sighting},
    publication::Publication,
    rollout::{Observed, Rollout, Standing},
    store::{NodeRecord, milliseconds},
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

/// The records of connected nodes to be stored.
pub(super) fn known(observed: &[Observed], rollout: &Rollout, now: SystemTime) -> BTreeMap<String, NodeRecord> {
    let record = |observed: &Observed| {
        // A node that has not acknowledged the new revision runs the previous one, if it ever ran it.
        let revision = match observed.standing {
            Standing::Acked => Some(rollout.candidate()),
            Standing::Unsupported => None,
            Standing::Pending | Standing::Nacked(_) => rollout.stable().filter(|_| rollout.is_witness(&observed.node)),
        };
        let service = observed.node.service.clone();
        (observed.node.id.clone(), NodeRecord { service, revision, seen: milliseconds(now) })
    };
    observed.iter().filter(|observed| observed.connected).map(record).collect()
}
