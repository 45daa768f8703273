//! What releases show to whoever asks: which revision a node is to run and runs, and where single resources are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, UNIX_EPOCH},
};

use super::Releases;
use crate::{
    attach::Scope,
    catalogue::ResourceKey,
    condition::{Condition, ConditionType, Conditions, Truth},
    fleet::Sighting,
    model::{Bundle, Resource},
    node::NodeIdentity,
    publication::Kinship,
    rollout::{Observed, Rollout, Standing},
};

/// Where a node is among the revisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeStanding {
    /// The revision that it is to run.
    pub target: Option<u64>,
    /// The one that it runs, if it is one of those that are live.
    pub running: Option<u64>,
    /// Why it refuses the one that it is to run.
    pub refused: Option<String>,
}

impl Releases {
    /// The revision that is in force: the one that spreads or has spread, or the last good one if it went back.
    pub fn in_force(&self) -> Option<u64> {
        let rollout = self.rollout.as_ref()?;
        if rollout.is_back() { rollout.last_good() } else { Some(rollout.candidate()) }
    }

    /// The revisions that nodes run or are to run, and the one that went back, the latest first.
    pub fn live(&self) -> impl Iterator<Item = u64> {
        self.live.keys().rev().copied()
    }

    /// The resources of a live revision, as they are served.
    pub fn bundle(&self, number: u64) -> Option<&Bundle> {
        self.live.get(&number).map(|release| &release.bundle)
    }

    /// The revision that a node is to run.
    pub fn revision_for(&self, node: &NodeIdentity) -> Option<u64> {
        self.rollout.as_ref().map(|rollout| rollout.revision_for(node))
    }

    /// Where every node of the fleet is among the revisions.
    pub fn standings(&self, fleet: &[Sighting]) -> BTreeMap<String, NodeStanding> {
        let mut standings: BTreeMap<String, NodeStanding> = BTreeMap::new();
        for (number, release) in &self.live {
            for observed in fleet.iter().map(|node| Observed::new(node, &release.publication)) {
                let target = self.revision_for(&observed.node);
                let standing = standings.entry(observed.node.id.clone()).or_default();
                standing.target = target;
                let wanted = target == Some(*number);
                match observed.standing {
                    // A node for which two revisions are the same runs the one that it is to.
                    Standing::Acked if wanted || standing.running.is_none() => standing.running = Some(*number),
                    Standing::Nacked(reason) if wanted => standing.refused = Some(reason),
                    Standing::Acked | Standing::Nacked(_) | Standing::Pending => {}
                }
            }
        }
        standings
    }

    /// The conditions of a resource in a live revision: those of the revision, for the nodes that the resource concerns.
    /// `None` if the revision does not have it, or is not live.
    pub fn resource_conditions(&self, number: u64, key: &ResourceKey, nodes: &[NodeIdentity]) -> Option<Conditions> {
        let bundle = self.bundle(number)?;
        let mut conditions = self.lifecycles.get(&number)?.conditions_of(&key.label());
        let unconcerned = unconcerned(bundle, key, nodes);
        if !conditions.iter().any(|condition| condition.node.as_ref().is_some_and(|node| unconcerned.contains(node))) {
            return Some(conditions);
        }
        conditions.forget(&unconcerned);
        sum_up(&mut conditions);
        Some(conditions)
    }

    /// The rollout under way, or the last one.
    pub fn rollout(&self) -> Option<&Rollout> {
        self.rollout.as_ref()
    }
}

/// The nodes that a resource does not concern. Nodes that the same resources select are looked at once.
fn unconcerned(bundle: &Bundle, key: &ResourceKey, nodes: &[NodeIdentity]) -> BTreeSet<String> {
    let kinship = Kinship::of([bundle]);
    let mut known = BTreeMap::new();
    let mut concerned = |node: &NodeIdentity| {
        *known.entry(kinship.signature(node)).or_insert_with(|| has(&Scope::of(bundle, node), key))
    };
    nodes.iter().filter(|node| !concerned(node)).map(|node| node.id.clone()).collect()
}

/// Whether a resource is among those that concern a group of nodes.
fn has(scope: &Scope<'_>, key: &ResourceKey) -> bool {
    fn any<T>(resources: &[&Resource<T>], key: &ResourceKey) -> bool {
        resources.iter().any(|resource| resource.name == key.name && resource.mesh == key.mesh)
    }
    match key.kind.as_str() {
        "Gateway" => any(&scope.gateways, key),
        "Service" => any(&scope.services, key),
        "EnvoyResource" => any(&scope.envoy_resources, key),
        "Consumer" => any(&scope.consumers, key),
        "Agent" => any(&scope.agents, key),
        "Issuer" => any(&scope.issuers, key),
        "RoutePolicy" => any(&scope.route_policies, key),
        "TrafficPermission" => any(&scope.traffic_permissions, key),
        "Timeout" => any(&scope.timeouts, key),
        "AccessLog" => any(&scope.access_logs, key),
        _ => scope.settings.is_some_and(|settings| any(&[settings], key)),
    }
}

/// Says of all nodes together what they say one by one.
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
