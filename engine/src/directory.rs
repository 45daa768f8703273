//! The parts of a plan that its steps look up: consumers, agents, admitted signatures, and the plan's label.

use std::sync::Arc;

use crate::{agent::Agent, consumers::Consumers, replays::Replays, verdict::Response};

/// The part of a plan that all of its steps share.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The plan's label.
    pub(crate) label: Arc<str>,
    pub(crate) consumers: Consumers,
    pub(crate) replays: Replays,
    /// The agents. Steps refer to them by index.
    pub(crate) agents: Vec<Agent>,
    /// The response to a request whose chain needs an agent that is not healthy.
    pub(crate) agent_unavailable: Response,
}

impl Directory {
    /// The agent with this index.
    pub(crate) fn agent(&self, place: usize) -> Option<&Agent> {
        self.agents.get(place)
    }
}
