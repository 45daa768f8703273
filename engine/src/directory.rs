//! What the steps of a plan look up in it: consumers, agents, admitted signatures, and what the plan is called.

use std::sync::Arc;

use crate::{agent::Agent, consumers::Consumers, replays::Replays, verdict::Response};

/// The part of a plan that all of its steps share.
#[derive(Debug)]
pub(crate) struct Directory {
    /// What the control plane calls the plan.
    pub(crate) label: Arc<str>,
    pub(crate) consumers: Consumers,
    pub(crate) replays: Replays,
    /// By their places, which steps name them by.
    pub(crate) agents: Vec<Agent>,
    /// The answer where no agent gives one.
    pub(crate) agent_unavailable: Response,
}

impl Directory {
    /// The agent at a place.
    pub(crate) fn agent(&self, place: usize) -> Option<&Agent> {
        self.agents.get(place)
    }
}
