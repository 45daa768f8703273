//! How a revision spreads: to all nodes at once, or to some first.

use std::{collections::BTreeMap, time::Duration};

use postern_base::node::NodeIdentity;
use postern_model::RolloutStep;
use serde::{Deserialize, Serialize};

/// The way from the first node to the last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// Every node gets it now.
    #[default]
    AllAtOnce,
    /// These nodes first, one step after the other, and all the others after the last step.
    Canary(Vec<Step>),
}

impl Strategy {
    pub(super) fn steps(&self) -> &[Step] {
        match self {
            Self::AllAtOnce => &[],
            Self::Canary(steps) => steps,
        }
    }
}

impl From<&[RolloutStep]> for Strategy {
    fn from(steps: &[RolloutStep]) -> Self {
        let pick = |step: &RolloutStep| match &step.tags {
            Some(tags) => Pick::Tags(tags.clone()),
            // Who names no tags names a share: admission sees to it.
            None => Pick::Share(step.share.unwrap_or(100)),
        };
        let steps: Vec<_> = steps.iter().map(|step| Step { nodes: pick(step), pause: step.pause }).collect();
        if steps.is_empty() { Self::AllAtOnce } else { Self::Canary(steps) }
    }
}

/// One step of a canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Which nodes it adds.
    pub nodes: Pick,
    /// How long they must have run it before the next step.
    pub pause: Duration,
}

/// Which nodes a step adds to those of the steps before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pick {
    /// So many in a hundred of those that are live when the step starts, rounded up: at least one.
    Share(u8),
    /// All that have these tags, those that come later too.
    Tags(BTreeMap<String, String>),
}

impl Pick {
    pub(super) fn names(&self, node: &NodeIdentity) -> bool {
        match self {
            Self::Share(_) => false,
            Self::Tags(tags) => tags.iter().all(|(name, value)| node.tags.get(name) == Some(value)),
        }
    }
}
