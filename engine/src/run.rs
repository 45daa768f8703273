//! A chain under way on one message. It goes as far as it can, then is done or asks for something: waiting is a value,
//! so whoever drives it may answer at once or after a call to the other end of the world.

use std::sync::Arc;

use crate::{
    agent::Health,
    ask::{Answer, Ask, Turn},
    chain::{Chain, OnFailure, Step},
    consumers::Consumer,
    edits::Edits,
    event::{Inputs, Needs, Phase},
    plan::Plan,
    policy::{self, Context, Facts, Flow, Memory, request_size::body_too_large},
    verdict::{Decision, Denial, Note, NoteKind, Verdict},
};

/// What a request taught, for the response to it.
#[derive(Debug, Default)]
pub struct Outlook {
    facts: Facts,
    inputs: Inputs,
    given: Needs,
    request_edits: Edits,
}

/// A chain under way.
#[derive(Debug)]
pub struct Run {
    plan: Arc<Plan>,
    route: Arc<str>,
    chain: usize,
    phase: Phase,
    health: Health,
    /// The step to run next.
    at: usize,
    given: Needs,
    inputs: Inputs,
    edits: Edits,
    /// What became of the request, while its response is under way.
    request_edits: Edits,
    facts: Facts,
    memory: Memory,
    answer: Option<Answer>,
    asked: Needs,
    /// What the step under way needs beyond what every run of it does.
    wanted: Needs,
    notes: Vec<Note>,
}

impl Run {
    /// The request chain of a route; `None` if the plan does not know the route.
    pub fn request(plan: &Arc<Plan>, route: &str, health: &Health) -> Option<Self> {
        let (route, chain) = plan.route(route)?;
        Some(Self::new(plan, Arc::clone(route), chain, Phase::Request, health, Facts::default()))
    }

    /// The response chain of the route whose request taught `outlook`; `None` if nothing is to be done.
    pub fn response(plan: &Arc<Plan>, route: &str, health: &Health, outlook: Outlook) -> Option<Self> {
        let (route, chain) = plan.route(route)?;
        let idle = plan.chain(chain).is_none_or(|chain| chain.response.is_idle());
        if idle && outlook.facts.response.is_empty() {
            return None;
        }
        let mut run = Self::new(plan, Arc::clone(route), chain, Phase::Response, health, outlook.facts);
        (run.inputs, run.given, run.request_edits) = (outlook.inputs, outlook.given, outlook.request_edits);
        run.edits = std::mem::take(&mut run.facts.response);
        Some(run)
    }

    fn new(plan: &Arc<Plan>, route: Arc<str>, chain: usize, phase: Phase, health: &Health, facts: Facts) -> Self {
        Self {
            plan: Arc::clone(plan),
            route,
            chain,
            phase,
            health: health.clone(),
            at: 0,
            given: Needs::default(),
            inputs: Inputs::default(),
            edits: Edits::default(),
            request_edits: Edits::default(),
            facts,
            memory: Memory::default(),
            answer: None,
            asked: Needs::default(),
            wanted: Needs::default(),
            notes: Vec::new(),
        }
    }

    /// The route that this runs for.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// The largest body that the chain takes.
    pub fn body_limit(&self) -> usize {
        let limit = self.plan.chain(self.chain).map_or(0, |chain| chain.body_limit);
        let allowed = self.edits.allowance().and_then(|allowance| usize::try_from(allowance.most).ok());
        allowed.map_or(limit, |allowed| limit.min(allowed))
    }

    /// Whether a step that has not run yet may want the body.
    pub fn may_want_body(&self) -> bool {
        let left = |chain: &Chain| {
            let mut steps = chain.steps(self.phase).steps.iter().skip(self.at);
            steps.any(|step| step.needs.body) || chain.keep.body
        };
        self.plan.chain(self.chain).is_some_and(left)
    }

    /// Whether there is nothing to do about the response, once this run is done.
    pub fn is_last(&self) -> bool {
        self.facts.response.is_empty() && self.plan.chain(self.chain).is_none_or(|chain| chain.response.is_idle())
    }

    /// What the run taught, once it is done.
    pub fn into_outlook(self) -> Outlook {
        let keep = self.plan.chain(self.chain).map(|chain| chain.keep).unwrap_or_default();
        let mut outlook = Outlook { facts: self.facts, ..Outlook::default() };
        if !keep.is_empty() {
            (outlook.inputs, outlook.given, outlook.request_edits) = (self.inputs, keep, self.request_edits);
        }
        outlook
    }

    /// Answers what was asked for last.
    pub fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Inputs(inputs) => {
                self.inputs.absorb(inputs, self.asked);
                self.given = self.given.union(self.asked);
            }
            other => self.answer = Some(other),
        }
    }

    /// Goes as far as it can.
    pub fn advance(&mut self) -> Turn {
        let plan = Arc::clone(&self.plan);
        let Some(chain) = plan.chain(self.chain) else {
            return Turn::Done(self.decide(Verdict::Continue(Edits::default()), None));
        };
        let turn = match self.refusal(&plan, chain) {
            Some(decision) => Turn::Done(decision),
            None => self.run_steps(&plan, chain),
        };
        match turn {
            Turn::Done(decision) if chain.shadow => Turn::Done(in_shadow(decision)),
            turn => turn,
        }
    }

    /// All or nothing: before the first step, every policy must be supported and every agent healthy.
    fn refusal(&mut self, plan: &Plan, chain: &Chain) -> Option<Decision> {
        let steps = chain.steps(self.phase);
        if self.at > 0 || self.memory.entered {
            return None;
        }
        if let Some(policy) = steps.unsupported.first() {
            let response = plan.policy_not_supported().clone();
            return Some(self.deny(Arc::clone(policy), Denial { reason: "policy_not_supported", response }));
        }
        let unavailable = |step: &&Step| {
            step.policy.agents().is_some_and(|agents| !agents.iter().any(|agent| self.health.is_healthy(*agent)))
        };
        let step = Arc::clone(&steps.steps.iter().find(unavailable)?.name);
        let response = plan.agent_unavailable().clone();
        Some(self.deny(step, Denial { reason: "agent_unavailable", response }))
    }

    fn run_steps(&mut self, plan: &Plan, chain: &Chain) -> Turn {
        let steps = &chain.steps(self.phase).steps;
        while let Some(step) = steps.get(self.at) {
            let flow = match step.shadow {
                false => self.run_step(plan, step, steps),
                true => self.run_in_shadow(plan, step, steps),
            };
            match flow {
                Flow::Continue => self.leave(),
                // What is not enforced keeps nobody waiting.
                Flow::Ask(Ask::Wait { .. }) if chain.shadow || step.shadow => self.answer = Some(Answer::Waited),
                Flow::Ask(ask) => return Turn::Ask(ask),
                Flow::Want(needs) => self.wanted = self.wanted.union(needs),
                Flow::Deny(denial) => return Turn::Done(self.deny_by(step, denial)),
                Flow::Respond(response) => {
                    return Turn::Done(
                        self.decide(Verdict::Respond(response), Some((Arc::clone(&step.name), "respond"))),
                    );
                }
                Flow::Fail(denial) => match self.on_failure(plan, step) {
                    OnFailure::Continue => {
                        self.note(NoteKind::Failed, step, denial.reason);
                        self.leave();
                    }
                    OnFailure::SkipRemaining => {
                        self.note(NoteKind::Skipped, step, denial.reason);
                        break;
                    }
                    _ => return Turn::Done(self.deny_by(step, denial)),
                },
            }
        }
        self.let_pass(chain)
    }

    /// The end of a chain that nothing ended: what the response will need of the request is fetched while it can be.
    fn let_pass(&mut self, chain: &Chain) -> Turn {
        let missing = if self.phase == Phase::Request { chain.keep.without(self.given) } else { Needs::default() };
        if missing.body && matches!(self.answer, Some(Answer::BodyTooLarge)) {
            self.answer = None;
            return self.refuse_body(chain);
        }
        if !missing.is_empty() {
            self.at = usize::MAX;
            self.asked = missing;
            return Turn::Ask(Ask::Inputs(missing));
        }
        let mut edits = std::mem::take(&mut self.edits);
        edits.belong_to(self.facts.consumer.as_ref().map(|consumer| &consumer.name));
        if !chain.keep.is_empty() {
            self.request_edits = edits.clone();
        }
        Turn::Done(self.decide(Verdict::Continue(edits), None))
    }

    /// The body is too large for a step of the response that reads it. A step in shadow mode does without.
    fn refuse_body(&mut self, chain: &Chain) -> Turn {
        let readers = || chain.response.steps.iter().filter(|step| step.needs.body);
        if let Some(step) = readers().find(|step| !step.shadow) {
            return Turn::Done(self.deny_by(step, body_too_large()));
        }
        readers().for_each(|step| self.note(NoteKind::Shadow, step, body_too_large().reason));
        self.given.body = true;
        self.let_pass(chain)
    }

    /// One step, or one more turn of it: inputs, then `when`, then the policy.
    fn run_step(&mut self, plan: &Plan, step: &Step, steps: &[Step]) -> Flow {
        if matches!(self.answer, Some(Answer::BodyTooLarge)) {
            self.answer = None;
            return Flow::Deny(body_too_large());
        }
        let missing = step.needs.union(self.wanted).without(self.given);
        if !missing.is_empty() {
            self.asked = missing;
            return Flow::Ask(Ask::Inputs(missing));
        }
        let answer = self.answer.take();
        let mut context = Context {
            plan,
            phase: self.phase,
            route: &self.route,
            step: self.at,
            inputs: &self.inputs,
            health: &self.health,
            following: steps.get(self.at..).unwrap_or_default(),
            edits: &mut self.edits,
            request_edits: &self.request_edits,
            facts: &mut self.facts,
            memory: &mut self.memory,
        };
        if !context.memory.entered {
            match step.when.as_ref().map(|when| when.test(&context)) {
                None | Some(Ok(true)) => context.memory.entered = true,
                Some(Ok(false)) => return Flow::Continue,
                Some(Err(_)) => return Flow::Fail(policy::failure("condition_failed")),
            }
        }
        step.policy.run(&mut context, answer)
    }

    /// A step that reports and changes nothing: not the message, not what later steps know.
    fn run_in_shadow(&mut self, plan: &Plan, step: &Step, steps: &[Step]) -> Flow {
        let before = (self.edits.clone(), self.facts.clone());
        let flow = self.run_step(plan, step, steps);
        (self.edits, self.facts) = before;
        match flow {
            Flow::Ask(_) | Flow::Want(_) => return flow,
            Flow::Continue => {}
            Flow::Deny(denial) | Flow::Fail(denial) => self.note(NoteKind::Shadow, step, denial.reason),
            Flow::Respond(_) => self.note(NoteKind::Shadow, step, "respond"),
        }
        Flow::Continue
    }

    fn on_failure(&self, plan: &Plan, step: &Step) -> OnFailure {
        let agent = self.memory.agent.and_then(|agent| plan.agent(agent));
        match step.on_failure {
            OnFailure::Unspecified if agent.is_some_and(|agent| agent.fail_open) => OnFailure::Continue,
            OnFailure::Unspecified => OnFailure::Deny,
            said => said,
        }
    }

    /// On to the next step, past all that an agent evaluated in one go.
    fn leave(&mut self) {
        self.at = self.at.saturating_add(self.memory.group.max(1));
        self.memory = Memory::default();
        self.wanted = Needs::default();
    }

    fn note(&mut self, kind: NoteKind, step: &Step, reason: &'static str) {
        self.notes.push(Note { kind, step: Arc::clone(&step.name), reason });
    }

    /// A step's denial, in the words that its user wants.
    fn deny_by(&mut self, step: &Step, denial: Denial) -> Decision {
        let Denial { reason, response } = denial;
        let response = match &step.deny_with {
            Some(deny_with) => deny_with.apply(response),
            None => response,
        };
        self.deny(Arc::clone(&step.name), Denial { reason, response })
    }

    fn deny(&mut self, step: Arc<str>, denial: Denial) -> Decision {
        self.decide(Verdict::Deny(denial.response), Some((step, denial.reason)))
    }

    fn decide(&mut self, verdict: Verdict, ended_by: Option<(Arc<str>, &'static str)>) -> Decision {
        let (step, reason) = ended_by.unzip();
        let verdict = match verdict {
            Verdict::Continue(edits) => Verdict::Continue(edits),
            Verdict::Deny(response) => Verdict::Deny(response.with_missing(&self.facts.answers)),
            Verdict::Respond(response) => Verdict::Respond(response.with_missing(&self.facts.answers)),
        };
        let consumer = self.facts.consumer.as_ref().map(|consumer: &Arc<Consumer>| Arc::clone(&consumer.name));
        Decision { verdict, step, reason, consumer, notes: std::mem::take(&mut self.notes) }
    }
}

/// What a chain in shadow mode decides: to let everything pass, and to say what it would have done.
fn in_shadow(mut decision: Decision) -> Decision {
    if let (Some(step), Some(reason)) = (decision.step.take(), decision.reason.take()) {
        decision.notes.push(Note { kind: NoteKind::Shadow, step, reason });
    }
    Decision { verdict: Verdict::Continue(Edits::default()), ..decision }
}
