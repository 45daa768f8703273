//! Conditions: how far a revision, or a resource in it, has come on its way to the nodes, for people and scripts.
//!
//! The form is that of Kubernetes' status conditions, with the node where one reports for itself. The types are, in
//! order, `Scheduled`, `Initialized` and `Ready` (docs/rules.md, Lifecycle). This module has values only;
//! [`lifecycle`](crate::lifecycle) decides them.

use std::{collections::BTreeSet, time::SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::milliseconds;

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    /// It was taken in, and is on its way.
    Scheduled,
    /// It was compiled, and the filter has loaded it at the gate.
    Initialized,
    /// It runs: on one node, or, without a node, on every live node that it concerns.
    Ready,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Truth {
    /// It does.
    True,
    /// It does not, and will not by itself.
    False,
    /// It is not known yet.
    Unknown,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: Truth,
    /// Why, for machines: one word in UpperCamelCase.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// The node that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The generation of the resource that it is about, in what is shown of a single resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<u64>,
    /// Since when the status is what it is, in milliseconds since 1970.
    pub last_transition_time: u64,
}

impl Condition {
    fn new((kind, node): (ConditionType, Option<&str>), status: Truth, words: (&str, &str), at: u64) -> Self {
        let (reason, message, node) = (words.0.to_owned(), words.1.to_owned(), node.map(str::to_owned));
        Self { kind, status, reason, message, node, observed_generation: None, last_transition_time: at }
    }

    /// Updates the condition. Its time changes only when its status does. An unchanged condition allocates nothing,
    /// since there are thousands of them.
    fn update(&mut self, status: Truth, (reason, message): (&str, &str), at: u64) {
        if self.status != status {
            (self.status, self.last_transition_time) = (status, at);
        }
        if self.reason != reason {
            reason.clone_into(&mut self.reason);
        }
        if self.message != message {
            message.clone_into(&mut self.message);
        }
    }
}

/// All conditions of one thing, at most one of a type and node, in the order of types and nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// Sets the condition of a type and node. Its time changes only when its status does.
    pub fn set(
        &mut self,
        (kind, node): (ConditionType, Option<&str>),
        status: Truth,
        (reason, message): (&str, impl AsRef<str>),
        now: SystemTime,
    ) {
        let (words, at) = ((reason, message.as_ref()), milliseconds(now));
        match self.0.binary_search_by(|other| (other.kind, other.node.as_deref()).cmp(&(kind, node))) {
            Ok(place) => {
                if let Some(condition) = self.0.get_mut(place) {
                    condition.update(status, words, at);
                }
            }
            Err(place) => self.0.insert(place, Condition::new((kind, node), status, words, at)),
        }
    }

    /// Sets the conditions of a type for exactly these nodes, which must be sorted by name. Conditions of that type
    /// about other nodes are removed.
    pub fn set_nodes<'a>(
        &mut self,
        kind: ConditionType,
        nodes: impl IntoIterator<Item = (&'a str, Truth, (&'a str, &'a str))>,
        now: SystemTime,
    ) {
        let at = milliseconds(now);
        let first = self.0.partition_point(|other| (other.kind, other.node.is_some()) < (kind, true));
        let behind = self.0.partition_point(|other| other.kind <= kind);
        let others = self.0.split_off(behind);
        let mut known = self.0.split_off(first).into_iter().peekable();
        for (node, status, words) in nodes {
            while known.next_if(|other| other.node.as_deref() < Some(node)).is_some() {}
            let condition = match known.next_if(|other| other.node.as_deref() == Some(node)) {
                Some(mut condition) => {
                    condition.update(status, words, at);
                    condition
                }
                None => Condition::new((kind, Some(node)), status, words, at),
            };
            self.0.push(condition);
        }
        self.0.extend(others);
    }

    /// Removes the conditions that are about these nodes.
    pub fn forget(&mut self, nodes: &BTreeSet<String>) {
        self.0.retain(|condition| !condition.node.as_ref().is_some_and(|node| nodes.contains(node)));
    }

    /// Sets the generation of the resource that they are about.
    pub fn observed(&mut self, generation: Option<u64>) {
        for condition in &mut self.0 {
            condition.observed_generation = generation;
        }
    }

    /// Keeps only the conditions for which `fits` returns true.
    pub fn retain(&mut self, fits: impl Fn(&Condition) -> bool) {
        self.0.retain(fits);
    }

    /// Like [`Self::retain`], for a predicate that counts.
    pub(crate) fn retain_mut(&mut self, fits: impl FnMut(&Condition) -> bool) {
        self.0.retain(fits);
    }

    /// The condition of a type for a node or, without a node, for all nodes together.
    pub fn get(&self, kind: ConditionType, node: Option<&str>) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.kind == kind && condition.node.as_deref() == node)
    }

    /// Whether the condition exists and is true.
    pub fn holds(&self, kind: ConditionType, node: Option<&str>) -> bool {
        self.get(kind, node).is_some_and(|condition| condition.status == Truth::True)
    }

    /// All conditions, sorted by type and node.
    pub fn iter(&self) -> std::slice::Iter<'_, Condition> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn keeps_the_time_of_the_last_transition_and_not_of_the_last_word() {
        let mut conditions = Conditions::default();
        let ready = (ConditionType::Ready, None);
        conditions.set(ready, Truth::Unknown, ("Waiting", "0 of 2"), at(1));
        conditions.set(ready, Truth::Unknown, ("Waiting", "1 of 2"), at(2));
        let found = conditions.get(ConditionType::Ready, None).unwrap();
        assert_eq!((found.message.as_str(), found.last_transition_time), ("1 of 2", 1_000));
        conditions.set(ready, Truth::True, ("Acked", "2 of 2"), at(3));
        assert_eq!(conditions.get(ConditionType::Ready, None).unwrap().last_transition_time, 3_000);
    }

    #[test]
    fn stand_in_the_order_of_a_life_and_of_nodes() {
        let mut conditions = Conditions::default();
        for (kind, node) in [
            (ConditionType::Ready, Some("b")),
            (ConditionType::Ready, Some("a")),
            (ConditionType::Scheduled, None),
            (ConditionType::Ready, None),
            (ConditionType::Initialized, None),
        ] {
            conditions.set((kind, node), Truth::True, ("Test", ""), at(0));
        }
        let order: Vec<_> = conditions.iter().map(|condition| (condition.kind, condition.node.as_deref())).collect();
        use ConditionType::{Initialized, Ready, Scheduled};
        let expect = [(Scheduled, None), (Initialized, None), (Ready, None), (Ready, Some("a")), (Ready, Some("b"))];
        assert_eq!(order, expect);
    }

    #[test]
    fn of_nodes_are_those_of_exactly_these_nodes() {
        let mut conditions = Conditions::default();
        conditions.set((ConditionType::Initialized, None), Truth::True, ("Test", ""), at(0));
        let mut check = |nodes: &[(&'static str, Truth)], now: u64, expect: &[(&str, Truth, u64)]| {
            let nodes = nodes.iter().map(|(node, status)| (*node, *status, ("Test", "")));
            conditions.set_nodes(ConditionType::Ready, nodes, at(now));
            conditions.set((ConditionType::Ready, None), Truth::Unknown, ("Test", ""), at(now));
            let all = conditions.iter();
            let found: Vec<_> =
                all.filter_map(|it| Some((it.node.as_deref()?, it.status, it.last_transition_time / 1000))).collect();
            assert_eq!(found, expect);
            assert_eq!(conditions.iter().count(), expect.len() + 2, "what is about all of them is left alone");
        };
        use Truth::{False, True, Unknown};
        check(&[("b", Unknown), ("d", Unknown)], 1, &[("b", Unknown, 1), ("d", Unknown, 1)]);
        let expect = [("a", True, 2), ("b", Unknown, 1), ("c", Unknown, 2), ("d", False, 2), ("e", True, 2)];
        check(&[("a", True), ("b", Unknown), ("c", Unknown), ("d", False), ("e", True)], 2, &expect);
        check(&[("b", True), ("e", True)], 3, &[("b", True, 3), ("e", True, 2)]);
        check(&[], 4, &[]);
    }

    #[test]
    fn is_written_as_kubernetes_writes_it() {
        let mut conditions = Conditions::default();
        let ready = (ConditionType::Ready, Some("edge-1"));
        conditions.set(ready, Truth::False, ("Rejected", "the plan cannot be decoded"), at(7));
        let expect = r#"[{"type":"Ready","status":"False","reason":"Rejected","message":"the plan cannot be decoded","node":"edge-1","lastTransitionTime":7000}]"#;
        assert_eq!(serde_json::to_string(&conditions).unwrap(), expect);
        assert_eq!(serde_json::from_str::<Conditions>(expect).unwrap(), conditions);
    }
}
