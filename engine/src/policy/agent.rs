//! Policies that an external agent evaluates: which agent is asked, for how many steps at once, and what its answer means.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{Context, Flow, Policy, failure};
use crate::{
    agent::{Call, CallError, CalledPolicy, Instruction, Outcome, Reply},
    ask::{Answer, Ask},
    edited::HeaderEdits,
    event::{Needs, Phase},
    plan::{Agent, LoadError},
    strings::{Strings, find},
    verdict::{Denial, Response},
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct AgentPolicy {
    agents: Vec<usize>,
    policy: CalledPolicy,
}

impl AgentPolicy {
    pub(crate) fn load(wire: &wire::AgentPolicy, strings: &Strings, agents: &[Agent]) -> Result<Self, LoadError> {
        if wire.agents.is_empty() {
            return Err(LoadError::Missing("agents"));
        }
        let agent = |index: &u32| {
            find(agents, "agent", *index)?;
            Ok(usize::try_from(*index).unwrap_or(usize::MAX))
        };
        let param = |param: &wire::HeaderValue| Ok((strings.get(param.name)?, strings.get(param.value)?));
        Ok(Self {
            agents: wire.agents.iter().map(agent).collect::<Result<_, LoadError>>()?,
            policy: CalledPolicy {
                name: strings.get(wire.policy)?,
                params: wire.params.iter().map(param).collect::<Result<_, LoadError>>()?,
            },
        })
    }

    pub(crate) fn agents(&self) -> &[usize] {
        &self.agents
    }
}

/// An agent is told of the message as it stands.
pub(crate) fn needs(phase: Phase) -> Needs {
    Needs::REQUEST_HEADERS.union(Needs::RESPONSE_HEADERS.when(phase == Phase::Response))
}

/// What an agent will want changed is known only when it answers.
pub(crate) fn edits() -> HeaderEdits {
    HeaderEdits::any()
}

#[inline(never)]
pub(crate) fn run(context: &mut Context<'_>) -> Flow {
    match context.answer.take() {
        None => ask(context),
        Some(Answer::Called(Ok(reply))) => take(context, reply),
        Some(Answer::Called(Err(error))) => Flow::Fail(unanswered(context, error)),
        Some(_) => Flow::Fail(failure("agent_answer_unfit")),
    }
}

/// Asks the first healthy agent for this step and for all that follow at once and that it can evaluate too.
fn ask(context: &mut Context<'_>) -> Flow {
    let supported = |step: &crate::chain::Step, agent| match &step.policy {
        Policy::Agent(policy) if policy.agents.contains(&agent) => Some(policy.policy.clone()),
        _ => None,
    };
    let candidates = context.following.first().and_then(|step| step.policy.agents()).unwrap_or_default();
    let Some(agent) = candidates.iter().copied().find(|agent| context.health.is_healthy(*agent)) else {
        return Flow::Fail(unanswered(context, CallError::Unreachable));
    };
    let joins = |(place, step): &(usize, &crate::chain::Step)| *place == 0 || (step.when.is_none() && !step.shadow);
    let policies: Vec<_> =
        context.following.iter().enumerate().take_while(joins).map_while(|(_, step)| supported(step, agent)).collect();
    context.memory.agent = Some(agent);
    context.memory.group = policies.len();
    let known = context.plan.agent(agent);
    let (name, timeout_ms) = known.map_or(("".into(), 0), |agent| (Arc::clone(&agent.name), agent.timeout_ms));
    Flow::Ask(Ask::Call(Call { agent, name, policies, timeout_ms }))
}

/// Carries an answer out. Instructions merge in order: the last one wins.
fn take(context: &mut Context<'_>, reply: Reply) -> Flow {
    match reply.outcome {
        Outcome::Failed => return Flow::Fail(failure("agent_failed")),
        Outcome::Denied => return Flow::Deny(denial(reply)),
        Outcome::Allowed => {}
    }
    for instruction in reply.instructions {
        match instruction {
            Instruction::SetHeader(name, value) => context.edits.set(context.step, &name, &value),
            Instruction::RemoveHeader(name) => context.edits.remove(context.step, &name),
            Instruction::SetBody(body) => context.edits.set_body(context.step, body),
            Instruction::Respond(response) => return Flow::Respond(response),
        }
    }
    for (key, value) in reply.metadata {
        context.facts.rare().metadata.insert(key.into(), value.into());
    }
    Flow::Continue
}

fn denial(reply: Reply) -> Denial {
    let response = reply.instructions.into_iter().find_map(|instruction| match instruction {
        Instruction::Respond(response) => Some(response),
        _ => None,
    });
    let response = response.unwrap_or_else(|| Response::problem(403, "the request was refused"));
    Denial { reason: "agent_denied", response }
}

/// What a caller gets for want of an answer: a temporary trouble, unless the agent talks nonsense.
fn unanswered(context: &Context<'_>, error: CallError) -> Denial {
    let response = match error {
        CallError::Timeout | CallError::Unreachable => context.plan.agent_unavailable().clone(),
        CallError::Invalid => failure("").response,
    };
    Denial { reason: error.reason(), response }
}
