//! A chain under way on one message. It goes as far as it can, then is done or asks for something: waiting is a value,
//! so whoever drives it may answer at once or after a call to the other end of the world.

use std::sync::Arc;

use crate::{
    agent::Health,
    ask::{Answer, Ask, Turn},
    chain::{Chain, OnFailure, Step, Steps},
    consumers::Consumer,
    edits::Edits,
    event::{Headers, Inputs, Needs, Phase},
    plan::Plan,
    policy::{self, Context, Facts, Flow, Memory, request_size::body_too_large},
    verdict::{Decision, Denial, Note, NoteKind, Response, Verdict},
};

/// What a request taught, for the response to it.
#[derive(Debug, Default)]
pub struct Outlook {
    facts: Facts,
    inputs: Inputs,
    given: Needs,
    request_edits: Edits,
    noted: Vec<Note>,
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
    /// What was decided, while it is being recorded.
    decided: Option<Decision>,
    /// The notes on the message so far, for its record.
    noted: Vec<Note>,
    /// Whether there is no response to ask about.
    unanswered: bool,
    /// What became of each step.
    #[cfg(feature = "trace")]
    trace: Vec<Traced>,
}

/// What became of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// Its place in the chain.
    pub place: usize,
    /// Its name.
    pub step: Arc<str>,
    /// What became of it.
    pub fate: Fate,
}

/// What can become of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is for other sources.
    OtherSource,
    /// Its condition is false.
    ConditionFalse,
    /// It let the message pass.
    Passed,
    /// It refused the message, for this reason.
    Denied(&'static str),
    /// It answered in place of the upstream.
    Responded,
    /// It could not decide, for this reason.
    Failed(&'static str),
}

impl Run {
    /// The request chain of a route; `None` if the plan has none for it.
    #[inline]
    pub fn request(plan: &Arc<Plan>, route: impl AsRef<[u8]>, health: &Health) -> Option<Self> {
        let (route, chain) = plan.route(route.as_ref())?;
        Some(Self::new(plan, route, chain, Phase::Request, health, Facts::default()))
    }

    /// The response chain of the route whose request taught `outlook`; `None` if nothing is to be done.
    pub fn response(plan: &Arc<Plan>, route: &str, health: &Health, outlook: Outlook) -> Option<Self> {
        let (route, chain) = plan.route(route.as_bytes())?;
        let idle = plan.chain(chain).is_none_or(Chain::ends_with_request);
        if idle && outlook.facts.leaves_response() {
            return None;
        }
        let mut run = Self::new(plan, route, chain, Phase::Response, health, outlook.facts);
        (run.inputs, run.request_edits) = (outlook.inputs, outlook.request_edits);
        run.given = run.given.union(outlook.given);
        run.edits = run.facts.take_response_edits();
        run.noted = outlook.noted;
        Some(run)
    }

    /// What is left to do for a request that was admitted and then got no response of its upstream's: it is recorded.
    /// `decided` is what ended it, if that was one of us; `None` if nothing is to be done.
    pub fn unanswered(
        plan: &Arc<Plan>,
        route: &str,
        health: &Health,
        outlook: Outlook,
        decided: Option<Decision>,
    ) -> Option<Self> {
        plan.route(route.as_bytes())
            .and_then(|(_, chain)| plan.chain(chain))
            .filter(|chain| !chain.audits.is_empty())?;
        let mut run = Self::response(plan, route, health, outlook)?;
        run.edits = Edits::default();
        run.unanswered = true;
        let decided = decided.unwrap_or_else(|| run.decide(Verdict::Continue(Edits::default()), None));
        run.decided = Some(decided);
        Some(run)
    }

    #[inline]
    fn new(plan: &Arc<Plan>, route: Arc<str>, chain: usize, phase: Phase, health: &Health, facts: Facts) -> Self {
        Self {
            plan: Arc::clone(plan),
            route,
            chain,
            phase,
            health: health.clone(),
            at: 0,
            given: Needs::CLAIMS,
            inputs: Inputs::default(),
            edits: Edits::default(),
            request_edits: Edits::default(),
            facts,
            memory: Memory::default(),
            answer: None,
            asked: Needs::NONE,
            wanted: Needs::NONE,
            notes: Vec::new(),
            decided: None,
            noted: Vec::new(),
            unanswered: false,
            #[cfg(feature = "trace")]
            trace: Vec::new(),
        }
    }

    /// What became of the steps so far.
    #[cfg(feature = "trace")]
    pub fn trace(&self) -> &[Traced] {
        &self.trace
    }

    /// The route that this runs for.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// The largest body that the chain takes.
    #[inline]
    pub fn body_limit(&self) -> usize {
        let limit = self.plan.chain(self.chain).map_or(0, |chain| chain.body_limit);
        let allowed = self.edits.allowance().and_then(|allowance| usize::try_from(allowance.most).ok());
        allowed.map_or(limit, |allowed| limit.min(allowed))
    }

    /// Whether a step that has not run yet may want the body.
    pub fn may_want_body(&self) -> bool {
        let left = |chain: &Chain| {
            let mut steps = chain.steps(self.phase).steps.iter().skip(self.at);
            steps.any(|step| step.needs.has(Needs::BODY)) || chain.keep.has(Needs::BODY)
        };
        self.plan.chain(self.chain).is_some_and(left)
    }

    /// Whether there is nothing to do about the response, once this run is done.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.facts.leaves_response() && self.plan.chain(self.chain).is_none_or(Chain::ends_with_request)
    }

    /// What the run taught, once it is done.
    pub fn into_outlook(self) -> Outlook {
        let keep = self.plan.chain(self.chain).map(|chain| chain.keep).unwrap_or_default();
        let mut outlook = Outlook { facts: self.facts, noted: self.noted, ..Outlook::default() };
        if !keep.is_empty() {
            (outlook.inputs, outlook.given, outlook.request_edits) = (self.inputs, keep, self.request_edits);
        }
        outlook
    }

    /// Where a host may put what it was asked for, to move it only once.
    pub fn inputs(&mut self) -> &mut Inputs {
        &mut self.inputs
    }

    /// Answers what was asked for last.
    #[inline]
    pub fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Inputs(inputs) => {
                self.inputs.absorb(inputs, self.asked);
                self.given = self.given.union(self.asked);
            }
            Answer::InputsInPlace => self.given = self.given.union(self.asked),
            other => {
                if matches!(other, Answer::Waited) {
                    self.given = self.given.without(Needs::NOW);
                }
                self.answer = Some(other);
            }
        }
    }

    /// Goes as far as it can.
    pub fn advance(&mut self) -> Turn {
        let plan = Arc::clone(&self.plan);
        let Some(chain) = plan.chain(self.chain) else {
            return Turn::Done(self.decide(Verdict::Continue(Edits::default()), None));
        };
        let decision = match self.decided.take() {
            Some(decision) => decision,
            None => match self.run_chain(&plan, chain) {
                Turn::Done(decision) => decision,
                turn => return turn,
            },
        };
        if chain.audits.is_empty() { Turn::Done(decision) } else { self.record(&plan, chain, decision) }
    }

    fn run_chain(&mut self, plan: &Plan, chain: &Chain) -> Turn {
        let turn = match self.refusal(plan, chain) {
            Some(decision) => Turn::Done(decision),
            None => self.run_steps(plan, chain),
        };
        match turn {
            Turn::Done(decision) if chain.shadow => Turn::Done(in_shadow(decision)),
            turn => turn,
        }
    }

    /// Makes the records of a decision, once what they show is there. A message that chance leaves out costs no more
    /// than the chance.
    fn record(&mut self, plan: &Plan, chain: &Chain, mut decision: Decision) -> Turn {
        let audits = chain.audits.iter().enumerate();
        let mut due: Vec<_> = audits.filter(|(_, audit)| audit.is_due(self.phase, &decision.verdict)).collect();
        let by_chance = due.iter().any(|(_, audit)| audit.is_sampled(&decision.verdict));
        if by_chance && !self.given.has(Needs::RANDOM) {
            return self.ask_for_record(Needs::RANDOM, decision);
        }
        let ended = matches!(decision.verdict, Verdict::Deny(_) | Verdict::Respond(_));
        let random = |index: usize| policy::random(&self.inputs, usize::MAX.saturating_sub(index));
        due.retain(|(index, audit)| !audit.is_sampled(&decision.verdict) || audit.is_hit(random(*index)));
        let needs = due.iter().fold(Needs::NONE, |needs, (_, audit)| needs.union(audit.needs()));
        let answered = self.phase == Phase::Response && !ended && !self.unanswered;
        let missing = needs.without(Needs::RESPONSE_HEADERS.when(!answered)).without(self.given);
        if !missing.is_empty() {
            return self.ask_for_record(missing, decision);
        }
        self.noted.extend(decision.notes.iter().cloned());
        if due.is_empty() {
            return Turn::Done(decision);
        }
        let mut edits = match &decision.verdict {
            Verdict::Continue(edits) => edits.clone(),
            Verdict::Deny(response) | Verdict::Respond(response) => {
                self.inputs.response_headers = own_headers(response);
                if self.phase == Phase::Request { std::mem::take(&mut self.edits) } else { Edits::default() }
            }
        };
        let context = Context {
            plan,
            phase: self.phase,
            route: &self.route,
            step: self.at,
            inputs: &self.inputs,
            health: &self.health,
            following: &[],
            edits: &mut edits,
            request_edits: &self.request_edits,
            facts: &mut self.facts,
            memory: &mut self.memory,
        };
        decision.records = due.iter().filter_map(|(_, audit)| audit.record(&context, &decision, &self.noted)).collect();
        Turn::Done(decision)
    }

    fn ask_for_record(&mut self, missing: Needs, decision: Decision) -> Turn {
        self.decided = Some(decision);
        self.asked = missing;
        Turn::Ask(Ask::Inputs(missing))
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
            match self.is_for_source(step) {
                Ok(true) => {}
                Ok(false) => {
                    self.note_fate(step, || Fate::OtherSource);
                    self.at = self.at.saturating_add(1);
                    continue;
                }
                Err(missing) => {
                    self.asked = missing;
                    return Turn::Ask(Ask::Inputs(missing));
                }
            }
            let flow = match step.shadow {
                false => self.run_step(plan, step, chain),
                true => self.run_in_shadow(plan, step, chain),
            };
            match flow {
                Flow::Continue => self.leave(step),
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
                        self.leave(step);
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
    #[inline]
    fn let_pass(&mut self, chain: &Chain) -> Turn {
        let missing = if self.phase == Phase::Request { chain.keep.without(self.given) } else { Needs::NONE };
        if missing.has(Needs::BODY) && matches!(self.answer, Some(Answer::BodyTooLarge)) {
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
        let readers = || chain.response.steps.iter().filter(|step| step.needs.has(Needs::BODY));
        if let Some(step) = readers().find(|step| !step.shadow) {
            return Turn::Done(self.deny_by(step, body_too_large()));
        }
        readers().for_each(|step| self.note(NoteKind::Shadow, step, body_too_large().reason));
        self.given = self.given.union(Needs::BODY);
        self.let_pass(chain)
    }

    /// One step, or one more turn of it.
    #[inline]
    fn run_step(&mut self, plan: &Plan, step: &Step, chain: &Chain) -> Flow {
        let flow = self.turn_step(plan, step, chain.steps(self.phase));
        let entered = self.memory.entered;
        match &flow {
            Flow::Ask(_) | Flow::Want(_) => {}
            Flow::Continue if !entered => self.note_fate(step, || Fate::ConditionFalse),
            Flow::Continue => self.note_fate(step, || Fate::Passed),
            Flow::Deny(denial) => self.note_fate(step, || Fate::Denied(denial.reason)),
            Flow::Respond(_) => self.note_fate(step, || Fate::Responded),
            Flow::Fail(denial) => self.note_fate(step, || Fate::Failed(denial.reason)),
        }
        flow
    }

    #[cfg(feature = "trace")]
    fn note_fate(&mut self, step: &Step, fate: impl FnOnce() -> Fate) {
        self.trace.push(Traced { place: self.at, step: Arc::clone(&step.name), fate: fate() });
    }

    /// On the way of a request nobody asks.
    #[cfg(not(feature = "trace"))]
    #[allow(clippy::unused_self, reason = "it has a use with the feature")]
    fn note_fate(&mut self, _step: &Step, _fate: impl FnOnce() -> Fate) {}

    /// Inputs, then `when`, then the policy.
    fn turn_step(&mut self, plan: &Plan, step: &Step, steps: &Steps) -> Flow {
        if matches!(self.answer, Some(Answer::BodyTooLarge)) {
            self.answer = None;
            return Flow::Deny(body_too_large());
        }
        let missing = step.needs.union(self.wanted).without(self.given);
        if !missing.is_empty() {
            // A body may be long in coming: what time it was before is no use after it.
            let known = self.given.without(Needs::NOW.when(missing.has(Needs::BODY)));
            self.asked = missing.union(steps.cheap.without(known));
            return Flow::Ask(Ask::Inputs(self.asked));
        }
        let answer = self.answer.take();
        let mut context = Context {
            plan,
            phase: self.phase,
            route: &self.route,
            step: self.at,
            inputs: &self.inputs,
            health: &self.health,
            following: steps.steps.get(self.at..).unwrap_or_default(),
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
    fn run_in_shadow(&mut self, plan: &Plan, step: &Step, chain: &Chain) -> Flow {
        let before = (self.edits.clone(), self.facts.clone());
        let flow = self.run_step(plan, step, chain);
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

    /// Whether a step is for the source of the message, or what must be known to tell.
    fn is_for_source(&self, step: &Step) -> Result<bool, Needs> {
        let Some(source) = step.source.as_ref().filter(|_| !self.memory.entered) else { return Ok(true) };
        let missing = source.needs().without(self.given);
        if missing.is_empty() { Ok(source.selects(&self.inputs)) } else { Err(missing) }
    }

    /// On to the next step, past all that an agent evaluated in one go, and past the step's alternatives.
    #[inline]
    fn leave(&mut self, step: &Step) {
        let steps = self.memory.group.max(1).saturating_add(step.alternatives);
        self.at = self.at.saturating_add(steps);
        self.memory.clear();
        self.wanted = Needs::NONE;
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

    #[inline]
    fn decide(&mut self, verdict: Verdict, ended_by: Option<(Arc<str>, &'static str)>) -> Decision {
        let (step, reason) = ended_by.unzip();
        let verdict = match verdict {
            Verdict::Continue(edits) => Verdict::Continue(edits),
            Verdict::Deny(response) => Verdict::Deny(response.with_missing(self.facts.answers())),
            Verdict::Respond(response) => Verdict::Respond(response.with_missing(self.facts.answers())),
        };
        let consumer = self.facts.consumer.as_ref().map(|consumer: &Arc<Consumer>| Arc::clone(&consumer.name));
        let notes = std::mem::take(&mut self.notes);
        Decision { verdict, step, reason, consumer, notes, records: Vec::new() }
    }
}

/// The headers of an answer of our own, as a response's are.
fn own_headers(response: &Response) -> Headers {
    let status = (":status".to_owned(), response.status.to_string());
    let headers = response.headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    [status].into_iter().chain(headers).collect()
}

/// What a chain in shadow mode decides: to let everything pass, and to say what it would have done.
fn in_shadow(mut decision: Decision) -> Decision {
    if let (Some(step), Some(reason)) = (decision.step.take(), decision.reason.take()) {
        decision.notes.push(Note { kind: NoteKind::Shadow, step, reason });
    }
    Decision { verdict: Verdict::Continue(Edits::default()), ..decision }
}
