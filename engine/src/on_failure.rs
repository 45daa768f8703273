//! `onFailure`: how a chain goes on when one of its steps cannot decide.

use postern_proto::plan::v1 as wire;

use crate::{agent::Agent, load_error::LoadError};

/// How the chain goes on when a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnFailure {
    /// Not set: the agent's `failOpen` decides; without an agent, the request is denied.
    #[default]
    Unspecified,
    Deny,
    Continue,
    SkipRemaining,
}

impl OnFailure {
    pub(crate) fn load(wire: i32) -> Result<Self, LoadError> {
        match wire::OnFailure::try_from(wire) {
            Ok(wire::OnFailure::Unspecified) => Ok(Self::Unspecified),
            Ok(wire::OnFailure::Deny) => Ok(Self::Deny),
            Ok(wire::OnFailure::Continue) => Ok(Self::Continue),
            Ok(wire::OnFailure::SkipRemaining) => Ok(Self::SkipRemaining),
            Err(_) => Err(LoadError::OnFailure(wire)),
        }
    }

    /// The effective value for a step of this agent: if the step sets none, the agent's `failOpen` decides.
    pub(crate) fn for_agent(self, agent: Option<&Agent>) -> Self {
        match self {
            Self::Unspecified if agent.is_some_and(|agent| agent.fail_open) => Self::Continue,
            Self::Unspecified => Self::Deny,
            said => said,
        }
    }

    /// The stricter of two. `Continue` is stricter than `SkipRemaining`, since the steps that follow still decide.
    pub(crate) const fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unspecified | Self::Deny, _) | (_, Self::Unspecified | Self::Deny) => Self::Deny,
            (Self::Continue, _) | (_, Self::Continue) => Self::Continue,
            (Self::SkipRemaining, Self::SkipRemaining) => Self::SkipRemaining,
        }
    }
}
