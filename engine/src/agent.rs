//! External agents, as the engine sees them: what it asks of one, and what may come back. The driver carries the
//! question and the answer.

use std::{collections::BTreeMap, sync::Arc};

use postern_proto::plan::v1 as wire;

use crate::{load_error::LoadError, strings::Strings, verdict::Response};

/// An external agent, as the plan knows it.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: Arc<str>,
    pub(crate) fail_open: bool,
    pub(crate) timeout_ms: u32,
}

impl Agent {
    pub(crate) fn load(wire: &wire::Agent, strings: &Strings) -> Result<Self, LoadError> {
        Ok(Self { name: strings.name(wire.name)?, fail_open: wire.fail_open, timeout_ms: wire.timeout_ms })
    }
}

/// One question to an agent: consecutive steps of a chain that it evaluates together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The agent's index in the plan.
    pub agent: usize,
    /// The agent's name.
    pub name: Arc<str>,
    /// The policies to evaluate, in order.
    pub policies: Vec<CalledPolicy>,
    /// How long an answer may take.
    pub timeout_ms: u32,
}

/// A policy as an agent is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalledPolicy {
    /// What the agent calls it.
    pub name: Arc<str>,
    /// Its parameters.
    pub params: Vec<(Arc<str>, Arc<str>)>,
}

/// What an agent answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Whether the policies allow the message.
    pub outcome: Outcome,
    /// The changes that the agent wants, in order.
    pub instructions: Vec<Instruction>,
    /// Values for later steps and logs, by name.
    pub metadata: BTreeMap<String, String>,
}

/// An agent's judgement on the policies that it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// All of them allow the message.
    #[default]
    Allowed,
    /// One of them denies the message. The first immediate response among the instructions is the answer.
    Denied,
    /// The agent could not decide.
    Failed,
}

/// One change that an agent wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction {
    /// Set a header in place of all values that it has.
    SetHeader(Arc<str>, Arc<str>),
    /// Remove a header.
    RemoveHeader(Arc<str>),
    /// Replace the body.
    SetBody(Vec<u8>),
    /// Answer the caller.
    Respond(Response),
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// The agent did not answer in time.
    Timeout,
    /// The agent could not be reached.
    Unreachable,
    /// The agent sent something that is not an answer.
    Invalid,
}

impl CallError {
    /// The reason that decisions and logs give, in one snake_case word.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Timeout => "agent_timeout",
            Self::Unreachable => "agent_unreachable",
            Self::Invalid => "agent_answer_invalid",
        }
    }
}

/// Which agents of a plan are healthy. An agent that is not listed is healthy.
#[derive(Debug, Clone, Default)]
pub struct Health(Vec<bool>);

impl Health {
    /// Takes the health of each agent, in the order of the plan.
    pub fn new(healthy: Vec<bool>) -> Self {
        Self(healthy)
    }

    /// Whether the agent with this index is healthy.
    pub fn is_healthy(&self, agent: usize) -> bool {
        self.0.get(agent).copied().unwrap_or(true)
    }
}
