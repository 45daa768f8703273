//! The tolerance of a rollout: how many nodes may refuse a revision before it is rolled back.

use postern_model::MaxRefused;
use serde::{Deserialize, Serialize};

/// A number or percentage of the nodes whose answers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tolerance {
    /// This number of nodes.
    Nodes(u32),
    /// This percentage, rounded down.
    Share(u8),
}

impl Default for Tolerance {
    /// No refusal is tolerated.
    fn default() -> Self {
        Self::Nodes(0)
    }
}

impl Tolerance {
    /// How many of `all` nodes may refuse.
    pub(crate) fn of(self, all: usize) -> usize {
        match self {
            Self::Nodes(nodes) => usize::try_from(nodes).unwrap_or(usize::MAX),
            Self::Share(share) => all.saturating_mul(usize::from(share)) / 100,
        }
    }
}

impl From<&MaxRefused> for Tolerance {
    fn from(written: &MaxRefused) -> Self {
        match (written.nodes, written.share) {
            (Some(nodes), _) => Self::Nodes(nodes),
            // Admission guarantees a number or a percentage.
            (None, share) => Self::Share(share.unwrap_or(0)),
        }
    }
}
