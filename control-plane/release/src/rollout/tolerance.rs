//! How many nodes may refuse a revision before it goes back.

use postern_model::MaxRefused;
use serde::{Deserialize, Serialize};

/// So many, of the nodes whose answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tolerance {
    /// This many.
    Nodes(u32),
    /// This many in a hundred, rounded down.
    Share(u8),
}

impl Default for Tolerance {
    /// The first refusal is one too many.
    fn default() -> Self {
        Self::Nodes(0)
    }
}

impl Tolerance {
    /// How many of `all` nodes may refuse.
    pub(super) fn of(self, all: usize) -> usize {
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
            // Who names no number names a share: admission sees to it.
            (None, share) => Self::Share(share.unwrap_or(0)),
        }
    }
}
