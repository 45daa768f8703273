//! What is counted of proposals and rollouts.

use std::time::Duration;

use postern_base::counter::{Counter, Histogram};

use crate::{
    releases::{Applied, ApplyError},
    rollout::{RolloutReport, State},
    store::StoreError,
};

/// What came of proposals.
#[derive(Debug, Default)]
pub struct Proposals {
    /// They became revisions.
    pub created: Counter,
    /// They said what the latest revision says.
    pub unchanged: Counter,
    /// They were wrong, or the filter refused them.
    pub invalid: Counter,
    /// Another revision came in between.
    pub conflict: Counter,
    /// They could not be taken in for another reason.
    pub failed: Counter,
}

/// What came of rollouts.
#[derive(Debug, Default)]
pub struct Rollouts {
    /// They began.
    pub started: Counter,
    /// They reached all nodes.
    pub completed: Counter,
    /// They went back because nodes refused them.
    pub rolled_back: Counter,
    /// Somebody ended them.
    pub aborted: Counter,
}

/// What is counted of changes.
#[derive(Debug, Default)]
pub struct Counts {
    /// What came of proposals.
    pub proposals: Proposals,
    /// What came of rollouts.
    pub rollouts: Rollouts,
    /// How long it takes to take a proposal in: compiling, gate and store.
    pub applies: Histogram,
}

impl Counts {
    /// A proposal was taken in, or was not.
    pub(super) fn applied(&self, applied: &Result<Applied, ApplyError>, took: Duration) {
        let Proposals { created, unchanged, invalid, conflict, failed } = &self.proposals;
        let counter = match applied {
            Ok(Applied::Revision(_)) => created,
            Ok(Applied::Unchanged(_)) => unchanged,
            Err(ApplyError::Compile(_)) => invalid,
            Err(ApplyError::Store(StoreError::Conflict { .. })) => conflict,
            Err(_) => failed,
        };
        counter.increment();
        self.applies.observe(took);
    }

    /// A rollout is elsewhere than it was.
    pub(super) fn rollout(&self, before: Option<&RolloutReport>, now: &RolloutReport) {
        let same = before.filter(|report| report.candidate == now.candidate);
        let under_way = |state: &State| matches!(state, State::Progressing | State::Paused);
        if same.is_none() && under_way(&now.state) {
            self.rollouts.started.increment();
        }
        // What a restart finds at its end has ended before.
        if !same.is_some_and(|report| under_way(&report.state)) {
            return;
        }
        match now.state {
            State::Completed => self.rollouts.completed.increment(),
            State::RolledBack { .. } => self.rollouts.rolled_back.increment(),
            State::Aborted => self.rollouts.aborted.increment(),
            State::Progressing | State::Paused => {}
        }
    }
}
