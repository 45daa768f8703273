//! The strategy of a rollout: all nodes at once, or some first.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use postern_base::node::NodeIdentity;
use postern_model::{RolloutStep, unit};
use serde::{Deserialize, Serialize};

/// Which nodes get a revision in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// Every node gets it at once.
    #[default]
    AllAtOnce,
    /// The nodes of each step in order, and all other nodes after the last step.
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
            // Admission guarantees tags or a percentage.
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
    /// The nodes that it adds.
    pub nodes: Pick,
    /// How long they must have run the revision before the next step.
    pub pause: Duration,
}

/// A step such as `25%:30s` or `stage=canary:1m`. Without a time, the next step follows at once.
impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (nodes, pause) = text.split_once(':').unwrap_or((text, "0s"));
        let pause =
            unit::duration(pause).ok_or_else(|| format!("`{pause}` is not a duration such as `30s` or `5m`"))?;
        let nodes = match (nodes.strip_suffix('%'), nodes.split_once('=')) {
            (Some(share), _) => match share.parse() {
                Ok(share @ 1..=100) => Pick::Share(share),
                _ => return Err(format!("`{share}` is not a share from 1 to 100")),
            },
            (None, Some((tag, value))) if !tag.is_empty() => Pick::Tags([(tag.to_owned(), value.to_owned())].into()),
            _ => return Err(format!("`{nodes}` is neither a share such as `25%` nor a tag such as `stage=canary`")),
        };
        Ok(Self { nodes, pause })
    }
}

/// The nodes that a step adds to those of earlier steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pick {
    /// This percentage of the nodes that are live when the step starts, rounded up: at least one.
    Share(u8),
    /// All nodes with these tags, including those that connect later.
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
