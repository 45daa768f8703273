//! What became of each revision. What is in force, or spreads, is told by the rollout; why one failed is kept with the
//! revision, so that a later one does not make it forgotten.

use std::{sync::Arc, time::SystemTime};

use schemars::JsonSchema;
use serde::Serialize;

use super::{Releases, View};
use crate::{
    condition::Truth,
    lifecycle::Failure,
    rollout::{Rollout, State},
};

/// The most nodes that are named for a revision.
const MOST_NODES: usize = 20;

/// What became of a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum RevisionState {
    /// It is on its way to the nodes.
    Progressing {
        /// The step under way, from 1.
        step: usize,
        /// The number of steps.
        steps: usize,
    },
    /// It is on its way, and goes no further until it is resumed.
    Paused {
        /// The step under way, from 1.
        step: usize,
        /// The number of steps.
        steps: usize,
    },
    /// Every node is to run it.
    InForce,
    /// The last good revision, while a later one is on its way.
    LastGood,
    /// A node refused it or went away, and all nodes went back.
    RolledBack {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
    /// Somebody sent all nodes back.
    Aborted,
    /// A later revision took its place.
    Superseded,
}

/// A node that refused a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NodeRefusal {
    /// The node.
    pub node: String,
    /// Why.
    pub reason: String,
}

impl Releases {
    /// Keeps with the revision that its rollout failed; forgets it if the rollout started again.
    pub(super) fn note_failure(&mut self, now: SystemTime) {
        let Some(rollout) = &self.rollout else { return };
        let Some(lifecycle) = self.lifecycles.get_mut(&rollout.candidate()) else { return };
        let failure = failure_of(rollout);
        if lifecycle.failure().is_some() != failure.is_some() {
            Arc::make_mut(lifecycle).failed(failure, now);
        }
    }
}

fn failure_of(rollout: &Rollout) -> Option<Failure> {
    match rollout.state() {
        State::RolledBack { node, reason } => Some(Failure::Refused { node: node.clone(), reason: reason.clone() }),
        State::Aborted => Some(Failure::Aborted),
        State::Progressing | State::Paused | State::Completed => None,
    }
}

impl View {
    /// What became of a revision.
    pub fn state(&self, number: u64) -> RevisionState {
        let Some(rollout) = &self.rollout else { return RevisionState::Superseded };
        let (step, steps) = rollout.progress();
        if rollout.candidate() == number {
            return match rollout.state().clone() {
                State::Progressing => RevisionState::Progressing { step, steps },
                State::Paused => RevisionState::Paused { step, steps },
                State::Completed => RevisionState::InForce,
                State::RolledBack { node, reason } => RevisionState::RolledBack { node, reason },
                State::Aborted => RevisionState::Aborted,
            };
        }
        if rollout.last_good() == Some(number) {
            return if rollout.is_back() { RevisionState::InForce } else { RevisionState::LastGood };
        }
        match self.lifecycles.get(&number).and_then(|lifecycle| lifecycle.failure()) {
            Some(Failure::Refused { node, reason }) => {
                RevisionState::RolledBack { node: node.clone(), reason: reason.clone() }
            }
            Some(Failure::Aborted) => RevisionState::Aborted,
            None => RevisionState::Superseded,
        }
    }

    /// The nodes that refused a revision, as far as is known.
    pub fn refusals(&self, number: u64) -> Vec<NodeRefusal> {
        let Some(lifecycle) = self.lifecycles.get(&number) else { return Vec::new() };
        let refused = lifecycle.conditions().iter().filter(|condition| condition.status == Truth::False);
        let refused = refused.filter_map(|condition| {
            Some(NodeRefusal { node: condition.node.clone()?, reason: condition.message.clone() })
        });
        refused.take(MOST_NODES).collect()
    }

    /// The digest of a live revision, as the store has it.
    pub fn digest(&self, number: u64) -> Option<&str> {
        self.live.get(&number).map(|release| &*release.digest)
    }

    /// The digest of the live revision that has this publication.
    pub fn digest_of(&self, publication: &str) -> Option<&str> {
        let mut live = self.live.values();
        live.find(|release| release.publication.revision().as_str() == publication).map(|release| &*release.digest)
    }
}
