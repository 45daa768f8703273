//! Which revision brought which plan to which nodes, and when, so that the label in a log line can be resolved. Bounded
//! and free of I/O; time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use postern_base::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Release;
use crate::fleet::Sighting;

/// The maximum number of remembered uses; the latest are kept.
const MOST_USES: usize = 500;
/// The maximum number of node names that are remembered for each.
const MOST_NODES: usize = 50;

/// A plan in one revision: who got it from there, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanUse {
    /// The plan's label, as filter state, logs and records have it.
    pub label: String,
    /// The number of the revision.
    pub revision: u64,
    /// Since when nodes are served it by this revision, in milliseconds since 1970.
    pub since: u64,
    /// Until when; absent while they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The groups of nodes that it is for, by what selects them.
    pub groups: BTreeSet<String>,
    /// How many nodes have acknowledged the revision with it.
    pub acknowledged: usize,
    /// The first of these, and when each did, in milliseconds since 1970.
    pub nodes: BTreeMap<String, u64>,
}

/// Uses in the order in which they began. Shared with views: copied on write.
pub(super) type Uses = VecDeque<Arc<PlanUse>>;

/// The uses of a plan, latest first.
pub(super) fn uses_of(uses: &Uses, label: &str) -> Vec<PlanUse> {
    uses.iter().rev().filter(|used| used.label == label).map(|used| PlanUse::clone(used)).collect()
}

/// The remembered uses.
#[derive(Debug, Default)]
pub(super) struct Plans {
    uses: Uses,
    /// The revision that each node last acknowledged.
    told: HashMap<String, Digest>,
    changed: bool,
}

impl Plans {
    /// Resumes with the uses that an earlier process stored.
    pub(super) fn remembered(uses: Uses) -> Self {
        Self { uses, ..Self::default() }
    }

    /// Records that nodes are served these releases, and no others, from now on.
    pub(super) fn serve<'r>(&mut self, live: impl IntoIterator<Item = (&'r u64, &'r Release)>, now: u64) {
        let mut served = BTreeSet::new();
        for (number, release) in live {
            for (group, label) in release.publication.plans() {
                self.of(&label, *number, now, |used| {
                    used.groups.insert(group);
                });
                served.insert((label, *number));
            }
        }
        let over =
            |used: &&mut Arc<PlanUse>| used.until.is_none() && !served.contains(&(used.label.clone(), used.revision));
        for used in self.uses.iter_mut().filter(over) {
            (Arc::make_mut(used).until, self.changed) = (Some(now), true);
        }
    }

    /// Records the nodes that have acknowledged a release since the last call.
    pub(super) fn look(&mut self, fleet: &[Sighting], live: &BTreeMap<u64, Release>, now: u64) {
        for Sighting { node, revision, .. } in fleet {
            let Some(revision) = revision.as_ref().filter(|revision| self.told.get(&node.id) != Some(*revision)) else {
                continue;
            };
            let of_it = |(_, release): &(&u64, &Release)| release.publication.revision() == revision;
            let Some((number, release)) = live.iter().find(of_it) else { continue };
            let (group, label) = release.publication.plan_for(node);
            self.of(&label, *number, now, |used| {
                used.groups.insert(group);
                used.acknowledged = used.acknowledged.saturating_add(1);
                if used.nodes.len() < MOST_NODES {
                    used.nodes.entry(node.id.clone()).or_insert(now);
                }
            });
            self.told.insert(node.id.clone(), revision.clone());
            self.changed = true;
        }
        if self.told.len() > fleet.len() {
            let there: BTreeSet<_> = fleet.iter().map(|sighting| sighting.node.id.as_str()).collect();
            self.told.retain(|node, _| there.contains(node.as_str()));
        }
    }

    /// All uses.
    pub(super) fn all(&self) -> &Uses {
        &self.uses
    }

    /// The uses to be stored, or `None` if they have not changed since the last call.
    pub(super) fn changes(&mut self) -> Option<&Uses> {
        std::mem::take(&mut self.changed).then_some(&self.uses)
    }

    /// Updates the use of a plan by a revision. Creates it if it is new.
    fn of(&mut self, label: &str, revision: u64, now: u64, note: impl FnOnce(&mut PlanUse)) {
        let same = |used: &&mut Arc<PlanUse>| used.label == label && used.revision == revision && used.until.is_none();
        if let Some(used) = self.uses.iter_mut().rev().find(same) {
            return note(Arc::make_mut(used));
        }
        if self.uses.len() >= MOST_USES {
            self.uses.pop_front();
        }
        let (label, groups, nodes) = (label.to_owned(), BTreeSet::new(), BTreeMap::new());
        let mut used = PlanUse { label, revision, since: now, until: None, groups, acknowledged: 0, nodes };
        note(&mut used);
        self.uses.push_back(Arc::new(used));
        self.changed = true;
    }
}
