//! A rollout as it is shown by the API.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Rollout, State};

/// Where the rollout is, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutReport {
    /// The revision that spreads, or spread last.
    pub candidate: u64,
    /// The last good revision, which new nodes get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<u64>,
    /// The step under way, from 1.
    pub step: usize,
    /// How many there are.
    pub steps: usize,
    /// The nodes that refused the candidate and left: it was started again without them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without: BTreeSet<String>,
    /// What became of it.
    #[serde(flatten)]
    pub state: State,
}

impl RolloutReport {
    /// The report of a rollout as it is now.
    pub(crate) fn of(rollout: &Rollout) -> Self {
        let (step, steps) = rollout.progress();
        let (candidate, last_good, state) = (rollout.candidate(), rollout.last_good(), rollout.state().clone());
        Self { candidate, last_good, step, steps, without: rollout.without().clone(), state }
    }
}
