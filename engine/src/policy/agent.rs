//! Policies that an external agent evaluates: which agent is asked, for how many steps at once, and what its answer means.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{Context, Flow, Known, State, failure};
use crate::{
    agent::{Call, CallError, CalledPolicy, Instruction, Outcome, Reply},
    ask::{Answer, Ask},
    edited::HeaderEdits,
    event::{Needs, Phase},
    header::{Name, RemovableName, Value},
    load_error::LoadError,
    on_failure::OnFailure,
    selector::Selector,
    strings::find,
    verdict::{Denial, Response},
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct AgentPolicy {
    agents: Vec<usize>,
    policy: CalledPolicy,
}

/// The question that an agent is answering.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The index of the agent.
    pub(crate) agent: Option<usize>,
    /// How many steps of the chain the question covers, including steps in between that are for other sources; 0 if
    /// none was asked.
    pub(crate) span: usize,
    /// The strictest `onFailure` of the steps in the question.
    pub(crate) on_failure: OnFailure,
}

impl State for Asked {
    #[inline]
    fn leave(&mut self) {
        (self.agent, self.span) = (None, 0);
    }
}

impl AgentPolicy {
    pub(crate) fn load(wire: &wire::AgentPolicy, Known { strings, agents, .. }: Known<'_>) -> Result<Self, LoadError> {
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

    #[inline(never)]
    pub(crate) fn run<'a>(
        &self,
        context: &mut Context<'_>,
        asked: &mut Asked,
        steps: impl Fn(usize) -> Option<Following<'a>>,
    ) -> Flow {
        match context.answer.take() {
            None => self.ask(context, asked, steps),
            Some(Answer::Called(Ok(reply))) => take(context, reply),
            Some(Answer::Called(Err(error))) => Flow::Fail(unanswered(context, error)),
            Some(_) => Flow::Fail(failure("agent_answer_unfit")),
        }
    }

    /// Asks the first healthy agent to evaluate this step, together with the steps right behind it that it can evaluate
    /// too.
    fn ask<'a>(
        &self,
        context: &mut Context<'_>,
        asked: &mut Asked,
        steps: impl Fn(usize) -> Option<Following<'a>>,
    ) -> Flow {
        let Some(agent) = self.agents.iter().copied().find(|agent| context.health.is_healthy(*agent)) else {
            return Flow::Fail(unanswered(context, CallError::Unreachable));
        };
        let Group { policies, span, on_failure } = match group(context, agent, steps) {
            Ok(group) => group,
            Err(missing) => return Flow::Want(missing),
        };
        *asked = Asked { agent: Some(agent), span, on_failure };
        let known = context.directory.agent(agent);
        let (name, timeout_ms) = known.map_or(("".into(), 0), |agent| (Arc::clone(&agent.name), agent.timeout_ms));
        Flow::Ask(Ask::Call(Call { agent, name, policies, timeout_ms }))
    }
}

/// What must be known of a step to decide whether it belongs to the question of an earlier one.
#[derive(Debug)]
pub(crate) struct Following<'a> {
    /// The policy; `None` for a step that no agent evaluates.
    pub(crate) policy: Option<&'a AgentPolicy>,
    pub(crate) is_conditional: bool,
    pub(crate) shadow: bool,
    pub(crate) on_failure: OnFailure,
    /// The sources that the step is for; all traffic if `None`.
    pub(crate) source: Option<&'a Selector>,
    /// How many of the steps that follow it are its alternatives.
    pub(crate) alternatives: usize,
}

/// The inputs of a question: an agent gets the whole message.
pub(crate) fn needs(phase: Phase) -> Needs {
    Needs::REQUEST_HEADERS.union(Needs::RESPONSE_HEADERS.when(phase == Phase::Response))
}

/// An agent may edit any header: its edits are known only when it answers.
pub(crate) fn edits() -> HeaderEdits {
    HeaderEdits::any()
}

/// The steps that one question covers.
#[derive(Default)]
struct Group {
    policies: Vec<CalledPolicy>,
    /// How many steps of the chain it covers.
    span: usize,
    /// The strictest `onFailure` of these steps.
    on_failure: OnFailure,
}

/// The group of this step: the step, and those right behind it that would run next and that the agent can evaluate too.
/// Of a step and its alternatives, it is the one that is for the message's source; `Err` has the inputs that are needed
/// to know which.
fn group<'a>(
    context: &Context<'_>,
    agent: usize,
    steps: impl Fn(usize) -> Option<Following<'a>>,
) -> Result<Group, Needs> {
    let mut group = Group::default();
    let mut place: usize = 0;
    while let Some(step) = steps(place) {
        let first = group.policies.is_empty();
        let Some(policy) = step.policy else { break };
        if !first && !is_for_source(&step, context)? {
            place = place.saturating_add(1);
            continue;
        }
        let joins = first || (!step.is_conditional && !step.shadow);
        if !joins || !policy.agents.contains(&agent) {
            break;
        }
        let on_failure = step.on_failure.for_agent(context.directory.agent(agent));
        group.on_failure = if first { on_failure } else { group.on_failure.stricter(on_failure) };
        group.policies.push(policy.policy.clone());
        place = place.saturating_add(step.alternatives).saturating_add(1);
        group.span = place;
        // What is not enforced must not take along what is.
        if step.shadow {
            break;
        }
    }
    Ok(group)
}

/// Whether a step is for the source of the message. For the current step, the run has decided that already.
fn is_for_source(step: &Following<'_>, context: &Context<'_>) -> Result<bool, Needs> {
    let Some(source) = step.source else { return Ok(true) };
    let missing = source.needs().without(context.given);
    if missing.is_empty() { Ok(source.selects(context.inputs)) } else { Err(missing) }
}

/// A checked instruction.
enum Change {
    Set(Name, Value),
    Remove(RemovableName),
    SetBody(Vec<u8>),
    Respond(Response),
}

impl Change {
    /// Checks an instruction. `None` if it edits a header that an agent must not edit, or has an answer that cannot be
    /// given.
    fn read(instruction: Instruction) -> Option<Self> {
        Some(match instruction {
            Instruction::SetHeader(name, value) => Self::Set(Name::new(lower_case(&name)).ok()?, Value::new(value)?),
            Instruction::RemoveHeader(name) => Self::Remove(RemovableName::new(lower_case(&name)).ok()?),
            Instruction::SetBody(body) => Self::SetBody(body),
            Instruction::Respond(response) => Self::Respond(response.checked()?),
        })
    }
}

/// The name in lower case.
fn lower_case(name: &str) -> Arc<str> {
    name.to_ascii_lowercase().into()
}

/// Applies an agent's reply. Instructions are applied in order, so the last one wins.
fn take(context: &mut Context<'_>, reply: Reply) -> Flow {
    match reply.outcome {
        Outcome::Failed => return Flow::Fail(failure("agent_failed")),
        Outcome::Denied => return Flow::Deny(denial(reply)),
        Outcome::Allowed => {}
    }
    let changes: Option<Vec<_>> = reply.instructions.into_iter().map(Change::read).collect();
    // Nothing of an answer is carried out if one part of it must not be.
    let Some(changes) = changes else { return Flow::Fail(failure("agent_edit_refused")) };
    for change in changes {
        match change {
            Change::Set(name, value) => context.edits.set(context.step, &name, &value),
            Change::Remove(name) => context.edits.remove(context.step, &name),
            Change::SetBody(body) => context.edits.set_body(context.step, body),
            Change::Respond(response) => return Flow::Respond(response),
        }
    }
    for (key, value) in reply.metadata {
        context.facts.rare().metadata.insert(key.into(), value.into());
    }
    Flow::Continue
}

fn denial(reply: Reply) -> Denial {
    // An answer that cannot be given is still a refusal.
    let response = reply.instructions.into_iter().find_map(|instruction| match instruction {
        Instruction::Respond(response) => response.checked(),
        _ => None,
    });
    let response = response.unwrap_or_else(|| Response::problem(403, "the request was refused"));
    Denial { reason: "agent_denied", response }
}

/// The response to the caller if the agent gives no valid answer: 503, or 500 if it sent something that is not an
/// answer.
fn unanswered(context: &Context<'_>, error: CallError) -> Denial {
    let response = match error {
        CallError::Timeout | CallError::Unreachable => context.directory.agent_unavailable.clone(),
        CallError::Invalid => failure("").response,
    };
    Denial { reason: error.reason(), response }
}
