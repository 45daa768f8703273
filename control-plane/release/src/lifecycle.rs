//! The conditions of a revision at each step of its life (docs/rules.md, Lifecycle). Pure; [`crate::rollout`] decides
//! which nodes a revision concerns.

use std::time::SystemTime;

use postern_model::{Diagnostic, Diagnostics};
use serde::{Deserialize, Serialize};

use crate::{
    condition::{Condition, ConditionType, Conditions, Truth},
    rollout::{Observed, Standing},
};

const LOADED: &str = "the filter has loaded it at the gate";

/// A revision's conditions, and those of its resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    conditions: Conditions,
    /// Errors of single resources: the resource's label, then the message.
    wrong: Vec<(String, String)>,
    /// Why its rollout failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
}

/// Why the rollout of a revision failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Failure {
    /// A node refused it, or went away.
    Refused {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
    /// Somebody sent all nodes back.
    Aborted,
}

/// The most refusals of nodes that are kept of a revision that is no longer live.
const MOST_REFUSALS: usize = 50;

impl Lifecycle {
    /// The lifecycle of a revision that was accepted: `Scheduled` is true.
    pub fn scheduled(now: SystemTime) -> Self {
        let mut conditions = Conditions::default();
        let words = ("Accepted", "it was taken in and is waiting to be loaded");
        conditions.set((ConditionType::Scheduled, None), Truth::True, words, now);
        Self { conditions, wrong: Vec::new(), failure: None }
    }

    /// Records that the revision compiles, and that the filter loaded it at the gate: `Initialized` is true.
    pub fn initialized(&mut self, now: SystemTime) {
        self.wrong.clear();
        let words = ("Loaded", LOADED);
        self.conditions.set((ConditionType::Initialized, None), Truth::True, words, now);
    }

    /// Records that parts of the revision are no longer valid, and are served as refusals: `Initialized` is false.
    pub fn invalid(&mut self, diagnostics: &Diagnostics, now: SystemTime) {
        let named = |diagnostic: &Diagnostic| Some((diagnostic.resource.clone()?, diagnostic.to_string()));
        self.wrong = diagnostics.iter().filter_map(named).collect();
        let words = ("Invalid", diagnostics.to_string());
        self.conditions.set((ConditionType::Initialized, None), Truth::False, words, now);
    }

    /// Sets `Ready` from the nodes that are to run the revision, which must be sorted by name: for each node true,
    /// false or unknown, and true for all together when every live node is ready. Nodes that are gone, and
    /// those that are not supported, are forgotten.
    pub fn observe<'a>(&mut self, concerned: &'a [Observed], now: SystemTime) {
        let counts = |observed: &&Observed| observed.connected && observed.standing != Standing::Unsupported;
        let live: Vec<_> = concerned.iter().filter(counts).collect();
        let ready = |observed: &&'a Observed| {
            let (status, words) = match &observed.standing {
                Standing::Pending | Standing::Unsupported => (Truth::Unknown, ("Pending", "it has not answered yet")),
                Standing::Acked => (Truth::True, ("Acked", "it runs this revision")),
                Standing::Nacked(reason) => (Truth::False, ("Rejected", reason.as_str())),
            };
            (observed.node.id.as_str(), status, words)
        };
        self.conditions.set_nodes(ConditionType::Ready, live.iter().map(ready), now);
        self.sum_up(&live, now);
    }

    fn sum_up(&mut self, live: &[&Observed], now: SystemTime) {
        let acked = live.iter().filter(|observed| observed.standing == Standing::Acked).count();
        let refused = live.iter().find_map(|observed| match &observed.standing {
            Standing::Nacked(reason) => Some(format!("node `{}`: {reason}", observed.node.id)),
            Standing::Pending | Standing::Acked | Standing::Unsupported => None,
        });
        let share = format!("{acked} of {} nodes run it", live.len());
        let (status, words) = match refused {
            Some(refused) => (Truth::False, ("Rejected", refused)),
            None if live.is_empty() => (Truth::Unknown, ("NoNodes", "no live node is to run it".to_owned())),
            None if acked == live.len() => (Truth::True, ("Acked", share)),
            None => (Truth::Unknown, ("Pending", share)),
        };
        self.conditions.set((ConditionType::Ready, None), status, words, now);
    }

    /// Records why its rollout failed; `None` if the rollout started again.
    pub fn failed(&mut self, failure: Option<Failure>, now: SystemTime) {
        let words = match &failure {
            Some(Failure::Refused { node, reason }) => {
                Some((Truth::False, "Rejected", format!("node `{node}`: {reason}")))
            }
            Some(Failure::Aborted) => Some((Truth::False, "Aborted", "somebody sent all nodes back".to_owned())),
            None => None,
        };
        if let Some((status, reason, message)) = words {
            self.conditions.set((ConditionType::Ready, None), status, (reason, message), now);
        }
        self.failure = failure;
    }

    /// Why its rollout failed, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Forgets all messages, since they may name what was purged. That its rollout failed, and at which node, is kept.
    pub fn forget_words(&mut self) {
        (self.conditions, self.wrong) = Default::default();
        if let Some(Failure::Refused { reason, .. }) = &mut self.failure {
            "the reason was purged".clone_into(reason);
        }
    }

    /// Records that no node is to run it any more, because a later revision took its place. What nodes refused of it, and
    /// why it failed, is kept.
    pub fn superseded(&mut self, now: SystemTime) {
        let mut left = MOST_REFUSALS;
        self.conditions.retain_mut(|condition| {
            let stays = condition.node.is_none() || (condition.status == Truth::False && left > 0);
            left = left.saturating_sub(usize::from(stays && condition.node.is_some()));
            stays
        });
        if self.failure.is_none() {
            let words = ("Superseded", "a later revision took its place");
            self.conditions.set((ConditionType::Ready, None), Truth::Unknown, words, now);
        }
    }

    /// The conditions of the revision.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The errors for which `Initialized` is false, one a line; empty if it is not.
    pub fn errors(&self) -> Vec<String> {
        let initialized = self.conditions.get(ConditionType::Initialized, None);
        let invalid = initialized.filter(|condition| condition.status == Truth::False);
        invalid.map(|condition| condition.message.lines().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// The conditions of one resource, by its label such as "RoutePolicy `users-api`": those of the revision, without
    /// errors that are about other resources only.
    pub fn conditions_of(&self, resource: &str) -> Conditions {
        let mut conditions = self.conditions.clone();
        let Some(Condition { status: Truth::False, reason, last_transition_time, .. }) =
            self.conditions.get(ConditionType::Initialized, None)
        else {
            return conditions;
        };
        let mine: Vec<_> =
            self.wrong.iter().filter(|(label, _)| label == resource).map(|(_, message)| message.as_str()).collect();
        let (status, words) = match (self.wrong.is_empty(), mine.is_empty()) {
            (true, _) => return conditions,
            (false, false) => (Truth::False, (reason.as_str(), mine.join("\n"))),
            (false, true) => (Truth::True, ("Loaded", LOADED.to_owned())),
        };
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(*last_transition_time);
        conditions.set((ConditionType::Initialized, None), status, words, at);
        conditions
    }
}
