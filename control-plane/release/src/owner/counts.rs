//! Counters of proposals and rollouts.

use std::time::Duration;

use postern_base::durations;
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use crate::{
    releases::{Applied, ApplyError},
    rollout::{RolloutReport, State},
    store::StoreError,
};

/// Counters of proposals, by result.
#[derive(Debug, Default)]
pub struct Proposals {
    /// Proposals that became revisions.
    pub created: Counter,
    /// Proposals that equal the latest revision.
    pub unchanged: Counter,
    /// Proposals that were invalid, or that the filter refused.
    pub invalid: Counter,
    /// Proposals that conflicted with another revision.
    pub conflict: Counter,
    /// Proposals that failed for another reason.
    pub failed: Counter,
}

/// Counters of rollouts, by result.
#[derive(Debug, Default)]
pub struct Rollouts {
    /// Rollouts that started.
    pub started: Counter,
    /// Rollouts that reached all nodes.
    pub completed: Counter,
    /// Rollouts that were rolled back because nodes refused the revision.
    pub rolled_back: Counter,
    /// Rollouts that a user aborted.
    pub aborted: Counter,
}

/// The counters of the owner.
#[derive(Debug)]
pub struct Counts {
    /// Counters of proposals.
    pub proposals: Proposals,
    /// Counters of rollouts.
    pub rollouts: Rollouts,
    /// The time to accept a proposal: compilation, gate and store.
    pub applies: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        let (proposals, rollouts) = Default::default();
        Self { proposals, rollouts, applies: durations::histogram() }
    }
}

impl Counts {
    /// Counts a proposal by its result, and how long it took.
    pub(super) fn applied(&self, applied: &Result<Applied, ApplyError>, took: Duration) {
        let Proposals { created, unchanged, invalid, conflict, failed } = &self.proposals;
        let counter = match applied {
            Ok(Applied::Revision(_)) => created,
            Ok(Applied::Unchanged(_)) => unchanged,
            Err(ApplyError::Compile(_)) => invalid,
            Err(ApplyError::Store(StoreError::Conflict { .. })) => conflict,
            Err(_) => failed,
        };
        counter.inc();
        self.applies.observe(took.as_secs_f64());
    }

    /// Counts a rollout whose state has changed.
    pub(super) fn rollout(&self, before: Option<&RolloutReport>, now: &RolloutReport) {
        let same = before.filter(|report| report.candidate == now.candidate);
        let under_way = |state: &State| matches!(state, State::Progressing | State::Paused);
        if same.is_none() && under_way(&now.state) {
            self.rollouts.started.inc();
        }
        // A rollout that a restart finds at its end was counted by the earlier process.
        if !same.is_some_and(|report| under_way(&report.state)) {
            return;
        }
        let counter = match now.state {
            State::Completed => &self.rollouts.completed,
            State::RolledBack { .. } => &self.rollouts.rolled_back,
            State::Aborted => &self.rollouts.aborted,
            State::Progressing | State::Paused => return,
        };
        counter.inc();
    }
}
