//! The nodes that have asked for what is in force, by who they say they are, and where each stands with a snapshot.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Observed, Standing};
use crate::{
    digest::Digest,
    fleet::NodeReport,
    node::NodeIdentity,
    publication::Publication,
    snapshot::{ResourceType, Selection, Snapshot},
};

/// Who asked. The fleet knows nodes by their names alone; a rollout by tags needs all that they say of themselves.
#[derive(Debug, Default)]
pub struct Audience(Mutex<BTreeMap<String, NodeIdentity>>);

impl Audience {
    /// A node asked.
    pub fn add(&self, node: &NodeIdentity) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.get(&node.id) != Some(node) {
            nodes.insert(node.id.clone(), node.clone());
        }
    }

    /// Every node of the fleet with regard to a revision. One that has not asked yet is known by its name and service.
    pub fn observe(&self, fleet: &[NodeReport], publication: &Publication) -> Vec<Observed> {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Computed once for all nodes of a group, which have the same snapshot.
        let mut groups = BTreeMap::new();
        let observed = |report: &NodeReport| {
            let named =
                || NodeIdentity { id: report.id.clone(), service: report.service.clone(), ..NodeIdentity::default() };
            let node = nodes.get(&report.id).cloned().unwrap_or_else(named);
            let snapshot = publication.snapshot_for(&node);
            let group = groups.entry(Arc::as_ptr(&snapshot)).or_insert_with(|| (versions(&snapshot), snapshot));
            Observed { node, connected: report.connected, standing: standing(report, &group.1, &group.0) }
        };
        fleet.iter().map(observed).collect()
    }
}

/// Where a node stands with a snapshot: it runs it if it runs all that it subscribed to of it, and refuses it if it
/// refuses anything of it.
fn standing(report: &NodeReport, snapshot: &Snapshot, versions: &BTreeMap<ResourceType, Digest>) -> Standing {
    for (kind, status) in &report.types {
        if let Some(refused) = status.refused.as_ref().filter(|refused| versions.get(kind) == Some(&refused.version)) {
            let reason = refused.reason.as_ref().unwrap_or(&refused.message);
            return Standing::Nacked(format!("{kind}: {reason}"));
        }
    }
    if report.revision.as_ref() == Some(snapshot.revision()) { Standing::Acked } else { Standing::Pending }
}

fn versions(snapshot: &Snapshot) -> BTreeMap<ResourceType, Digest> {
    ResourceType::ALL.map(|kind| (kind, snapshot.select(kind, &Selection::Everything).version)).into()
}
