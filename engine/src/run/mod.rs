//! A chain under way on one message. It goes as far as it can, then is done or asks for something: waiting is a value,
//! so whoever drives it may answer at once or after a call to the other end of the world.

mod record;
mod steps;
mod trace;

use std::sync::Arc;

pub use self::trace::{Fate, Traced};
use crate::{
    agent::Health,
    ask::{Answer, Turn},
    chain::Chain,
    consumers::Consumer,
    edits::Edits,
    event::{Inputs, Needs, Phase},
    plan::Plan,
    policy::{Facts, Memory},
    verdict::{Decision, Note, NoteKind, Verdict},
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

/// What a chain in shadow mode decides: to let everything pass, and to say what it would have done.
fn in_shadow(mut decision: Decision) -> Decision {
    if let (Some(step), Some(reason)) = (decision.step.take(), decision.reason.take()) {
        decision.notes.push(Note { kind: NoteKind::Shadow, step, reason });
    }
    Decision { verdict: Verdict::Continue(Edits::default()), ..decision }
}
