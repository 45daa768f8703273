//! What readers see of releases: which revision a node is to run and runs, and the conditions of single resources.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postern_base::node::NodeIdentity;
use postern_compile::{
    attach::{Kinship, Scope},
    lint::Finding,
};
use postern_model::Bundle;

use super::{
    HeldBack, Opens, PlanUse, Release,
    builds::Builds,
    directory::Following,
    examine::stays_guarded,
    generations::Generations,
    in_force, observed,
    plans::{Uses, uses_of},
    removals::{Removable, Removals},
};
use crate::{
    catalogue::{ResourceKey, digests},
    condition::{Condition, ConditionType, Conditions, Truth},
    fleet::Sighting,
    lifecycle::Lifecycle,
    rollout::{Rollout, RolloutReport, Standing},
    store::NodeRecord,
};

/// Where a node stands among the revisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeStanding {
    /// The revision that it is to run.
    pub target: Option<u64>,
    /// The live revision that it runs, if any.
    pub running: Option<u64>,
    /// The reason for which it refuses the revision that it is to run.
    pub refused: Option<String>,
}

/// What is known of live revisions, as of one moment. A value, cheap to create and to keep.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub(super) rollout: Option<Rollout>,
    pub(super) live: BTreeMap<u64, Release>,
    pub(super) lifecycles: BTreeMap<u64, Arc<Lifecycle>>,
    pub(super) uses: Uses,
    pub(super) known: Arc<BTreeMap<String, NodeRecord>>,
    pub(super) generations: Arc<Generations>,
    pub(super) directory: Following,
    pub(super) builds: Builds,
    pub(super) removable: Removable,
    pub(super) builds: Builds,
}

impl View {
    /// The digests of the filter builds that a revision is for, the one that is served first. `None` if it is not kept, or
    /// if that is not known.
    pub fn filters(&self, number: u64) -> Option<&[String]> {
        self.builds.of(number).map(Vec::as_slice)
    }

    /// The filter builds that were last taken back, unless a revision has brought them again.
    pub fn filters_taken_back(&self) -> Option<&[String]> {
        self.builds.taken_back().map(Vec::as_slice)
    }

    /// The revision in force: the candidate, or the last good revision if the candidate was rolled back.
    pub fn in_force(&self) -> Option<u64> {
        self.rollout.as_ref().and_then(in_force)
    }

    /// The latest revision, in force or not, which the next one follows.
    pub fn latest(&self) -> Option<u64> {
        self.rollout.as_ref().map(Rollout::candidate)
    }

    /// The live revisions and the one that was rolled back, latest first.
    pub fn live(&self) -> impl Iterator<Item = u64> {
        self.live.keys().rev().copied()
    }

    /// The resources of a live revision, as they are served.
    pub fn bundle(&self, number: u64) -> Option<&Arc<Bundle>> {
        self.live.get(&number).map(|release| &release.bundle)
    }

    /// The warnings about what is in force, sorted by file and line.
    pub fn findings(&self) -> Arc<[Finding]> {
        let release = self.in_force().and_then(|number| self.live.get(&number));
        release.map(|release| Arc::clone(&release.findings)).unwrap_or_default()
    }

    /// What a change would remove from what is in force.
    pub fn removals(&self, after: &Bundle) -> Removals {
        let before = self.in_force().and_then(|number| self.bundle(number));
        Removals::between(before.map(Arc::as_ref), after, self.removable)
    }

    /// Refuses a change that removes the last authentication step of a route, or all resources.
    pub fn stays_guarded(&self, after: &Bundle, nodes: &[NodeIdentity]) -> Result<(), Opens> {
        let before = self.in_force().and_then(|number| self.bundle(number));
        stays_guarded(before.map(Arc::as_ref), after, nodes)
    }

    /// The revision that a node is to run.
    pub fn revision_for(&self, node: &NodeIdentity) -> Option<u64> {
        self.rollout.as_ref().map(|rollout| rollout.revision_for(node))
    }

    /// Where every node of the fleet stands among the revisions.
    pub fn standings(&self, fleet: &[Sighting]) -> BTreeMap<String, NodeStanding> {
        let mut standings: BTreeMap<String, NodeStanding> = BTreeMap::new();
        for (number, release) in &self.live {
            for observed in fleet.iter().map(|node| observed(node, &release.publication)) {
                let target = self.revision_for(&observed.node);
                let standing = standings.entry(observed.node.id.clone()).or_default();
                standing.target = target;
                let wanted = target == Some(*number);
                match observed.standing {
                    // A node for which two revisions are identical runs the one that it is to run.
                    Standing::Acked if wanted || standing.running.is_none() => standing.running = Some(*number),
                    Standing::Nacked(reason) if wanted => standing.refused = Some(reason),
                    Standing::Unsupported => standing.target = None,
                    Standing::Acked | Standing::Nacked(_) | Standing::Pending => {}
                }
            }
        }
        standings
    }

    /// Which resources of a live revision concern which of these nodes; `None` if the revision is not live.
    pub fn concerns(&self, number: u64, nodes: &[NodeIdentity]) -> Option<Concerns> {
        Some(Concerns::of(self.bundle(number)?, nodes))
    }

    /// The conditions of a resource in a revision: those of the revision, for the nodes that the resource concerns.
    /// `None` if the revision does not have the resource, or is not remembered.
    pub fn resource_conditions(&self, number: u64, key: &ResourceKey, concerns: &Concerns) -> Option<Conditions> {
        let unconcerned = concerns.others(key)?;
        let mut conditions = self.lifecycles.get(&number)?.conditions_of(&key.label());
        conditions.observed(self.generation(number, key));
        let about = |condition: &Condition| condition.node.as_deref().is_some_and(|node| unconcerned.contains(node));
        if !conditions.iter().any(about) {
            return Some(conditions);
        }
        conditions.retain(|condition| !about(condition));
        sum_up(&mut conditions);
        Some(conditions)
    }

    /// How many times the content of a resource has changed up to a revision. `None` if that is not known, or the
    /// revision does not have the resource.
    pub fn generation(&self, number: u64, key: &ResourceKey) -> Option<u64> {
        self.generations.of(key, number)
    }

    /// What the followed directory says that is not in force, because it was taken back.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.directory.held_back(self.in_force().and_then(|number| self.bundle(number)).map(Arc::as_ref))
    }

    /// The lifecycle of a revision, or `None` if it is not remembered.
    pub fn lifecycle(&self, number: u64) -> Option<&Lifecycle> {
        self.lifecycles.get(&number).map(Arc::as_ref)
    }

    /// The revisions that brought a plan to nodes, latest first.
    pub fn plan_uses(&self, label: &str) -> Vec<PlanUse> {
        uses_of(&self.uses, label)
    }

    /// The nodes that were connected when a rollout last ended, with what they ran. After a restart this includes those
    /// that have not reconnected.
    pub fn known_nodes(&self) -> &BTreeMap<String, NodeRecord> {
        &self.known
    }

    /// The state of the rollout.
    pub fn report(&self) -> Option<RolloutReport> {
        self.rollout.as_ref().map(RolloutReport::of)
    }

    /// Whether the rollout was rolled back, and starts again if the nodes that refused leave.
    pub fn may_start_again(&self, now: SystemTime) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.may_start_again(now))
    }

    /// Whether the rollout is under way.
    pub fn is_under_way(&self) -> bool {
        self.rollout.as_ref().is_some_and(Rollout::is_under_way)
    }
}

/// Which resources of a revision concern which nodes. Computed once for all nodes that the same resources select.
#[derive(Debug)]
pub struct Concerns {
    all: BTreeSet<ResourceKey>,
    groups: Vec<(BTreeSet<ResourceKey>, BTreeSet<String>)>,
}

impl Concerns {
    fn of(bundle: &Bundle, nodes: &[NodeIdentity]) -> Self {
        let kinship = Kinship::of([bundle]);
        let mut groups: BTreeMap<_, (BTreeSet<ResourceKey>, BTreeSet<String>)> = BTreeMap::new();
        for node in nodes {
            let keys = || Scope::of(bundle, node).concerning().map(ResourceKey::from).collect();
            let group = groups.entry(kinship.signature(node)).or_insert_with(|| (keys(), BTreeSet::new()));
            group.1.insert(node.id.clone());
        }
        Self { all: digests(bundle).into_keys().collect(), groups: groups.into_values().collect() }
    }

    /// The nodes that a resource does not concern; `None` if the resource does not exist.
    fn others(&self, key: &ResourceKey) -> Option<BTreeSet<&str>> {
        let others = self.groups.iter().filter(|(resources, _)| !resources.contains(key));
        self.all.contains(key).then(|| others.flat_map(|(_, nodes)| nodes).map(String::as_str).collect())
    }
}

/// Sets the condition of all nodes together from those of each.
fn sum_up(conditions: &mut Conditions) {
    let ready = |condition: &&Condition| condition.kind == ConditionType::Ready && condition.node.is_some();
    let nodes: Vec<_> = conditions.iter().filter(ready).cloned().collect();
    let count = |truth: Truth| nodes.iter().filter(|condition| condition.status == truth).count();
    let share = format!("{} of {} nodes run it", count(Truth::True), nodes.len());
    let refused = nodes.iter().find(|condition| condition.status == Truth::False);
    let (status, reason, message) = match refused {
        Some(refused) => {
            let node = refused.node.as_deref().unwrap_or_default();
            (Truth::False, refused.reason.clone(), format!("node `{node}`: {}", refused.message))
        }
        None if nodes.is_empty() => (Truth::Unknown, "NoNodes".to_owned(), "no live node is to run it".to_owned()),
        None if count(Truth::True) == nodes.len() => (Truth::True, "Acked".to_owned(), share),
        None => (Truth::Unknown, "Pending".to_owned(), share),
    };
    let since = nodes.iter().map(|condition| condition.last_transition_time).max();
    let since = since.or_else(|| Some(conditions.get(ConditionType::Ready, None)?.last_transition_time));
    let at = UNIX_EPOCH + Duration::from_millis(since.unwrap_or_default());
    conditions.set((ConditionType::Ready, None), status, (&reason, message), at);
}
