//! A chain under way on one message. It goes as far as it can, then is done or asks for something: waiting is a value,
//! so whoever drives it may answer at once or after a call to the other end of the world.
//!
//! Nearly every message passes, and there is nothing to say about it but its edits. So a run that is done has a
//! [`Decision`] of its own only where there is more to say, and what few runs need stands in a box.

mod record;
mod steps;
mod trace;

use std::sync::Arc;

pub use self::trace::{Fate, Traced};
use crate::{
    agent::Health,
    ask::{Answer, Ask, Turn},
    budget::Budget,
    chain::Chain,
    consumers::Consumer,
    context::Facts,
    edits::Edits,
    event::{Inputs, Needs, Phase},
    host::Host,
    plan::Plan,
    policy::States,
    rare::Rare,
    verdict::{Decision, Note, NoteKind, Response, Verdict},
};

/// What a request taught, for the response to it.
#[derive(Debug, Default)]
pub struct Outlook {
    facts: Facts,
    inputs: Inputs,
    given: Needs,
    request_edits: Edits,
    noted: Vec<Note>,
    budget: Budget,
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
    /// What request and response may still cost together.
    budget: Budget,
    edits: Edits,
    facts: Facts,
    memory: Memory,
    answer: Option<Answer>,
    asked: Needs,
    /// What the step under way needs beyond what every run of it does.
    wanted: Needs,
    rare: Rare<RareState>,
    /// What became of each step.
    #[cfg(feature = "trace")]
    trace: Vec<Traced>,
}

/// What the step under way has come to.
#[derive(Debug, Default)]
struct Memory {
    /// Whether its condition has been found true.
    entered: bool,
    /// What its policy remembers.
    states: States,
}

/// What few runs have.
#[derive(Debug, Default)]
struct RareState {
    /// What became of the request, while its response is under way.
    request_edits: Edits,
    notes: Vec<Note>,
    /// What was decided, unless the message passes and nothing else is to be said.
    decided: Option<Decision>,
    /// The notes on the message so far, for its record.
    noted: Vec<Note>,
    /// Whether there is no response to ask about.
    unanswered: bool,
    /// What steps in shadow mode may still cost.
    shadow_budget: Option<Budget>,
}

/// What became of a request that nothing was kept of.
static NO_EDITS: Edits = Edits::none();

impl Run {
    /// The request chain of a route; `None` if the plan has none for it.
    #[inline]
    pub fn request(plan: &Arc<Plan>, route: impl AsRef<[u8]>, health: &Health) -> Option<Self> {
        let (route, chain) = plan.route(route.as_ref())?;
        Some(Self::new(plan, route, chain, Phase::Request, health, Facts::default()))
    }

    /// The response chain of the route whose request taught `outlook`; `None` if nothing is to be done.
    pub fn response(plan: &Arc<Plan>, route: &str, health: &Health, outlook: Outlook) -> Option<Self> {
        let (route, chain) = plan.admitted_route(route)?;
        let idle = plan.chain(chain).is_some_and(Chain::ends_with_request);
        if idle && outlook.facts.leaves_response() {
            return None;
        }
        let mut run = Self::new(plan, route, chain, Phase::Response, health, outlook.facts);
        run.inputs = outlook.inputs;
        run.budget = outlook.budget;
        run.given = run.given.union(outlook.given);
        run.edits = run.facts.take_response_edits();
        if !outlook.given.is_empty() || !outlook.noted.is_empty() {
            let rare = run.rare.make();
            (rare.request_edits, rare.noted) = (outlook.request_edits, outlook.noted);
        }
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
        plan.admitted_route(route).and_then(|(_, chain)| plan.chain(chain)).filter(|chain| !chain.audits.is_empty())?;
        let mut run = Self::response(plan, route, health, outlook)?;
        run.edits = Edits::default();
        let decided = decided.unwrap_or_else(|| run.decide(Verdict::Continue(Edits::default()), None));
        run.rare.make().unanswered = true;
        run.end(decided);
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
            given: Needs::OWN,
            inputs: Inputs::default(),
            budget: Budget::new(plan.steps()),
            edits: Edits::default(),
            facts,
            memory: Memory::default(),
            answer: None,
            asked: Needs::NONE,
            wanted: Needs::NONE,
            rare: Rare::default(),
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
            steps.any(|step| step.needs.has(Needs::BODY) || step.policy.may_want_body()) || chain.keep.has(Needs::BODY)
        };
        self.plan.chain(self.chain).is_some_and(left)
    }

    /// Whether there is nothing to do about the response, once this run is done.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.facts.leaves_response() && self.plan.chain(self.chain).is_none_or(Chain::ends_with_request)
    }

    /// What the run taught, once it is done.
    pub fn take_outlook(&mut self) -> Outlook {
        let keep = self.plan.chain(self.chain).map(|chain| chain.keep).unwrap_or_default();
        let facts = std::mem::take(&mut self.facts);
        let budget = std::mem::replace(&mut self.budget, Budget::new(0));
        let mut outlook = Outlook { facts, budget, ..Outlook::default() };
        if !keep.is_empty() {
            (outlook.inputs, outlook.given) = (std::mem::take(&mut self.inputs), keep);
        }
        if let Some(rare) = self.rare.get_mut() {
            outlook.noted = std::mem::take(&mut rare.noted);
            outlook.request_edits = std::mem::take(&mut rare.request_edits);
        }
        outlook
    }

    /// What the message may still cost.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Where a host puts what it was asked for.
    pub fn inputs(&mut self) -> &mut Inputs {
        &mut self.inputs
    }

    /// What it will ask for first, if that is certain. A host that has it at hand and answers at once saves a turn.
    #[inline]
    pub fn foresee(&mut self) -> Needs {
        self.asked = self.plan.chain(self.chain).map_or(Needs::NONE, |chain| chain.steps(self.phase).first);
        self.asked
    }

    /// Answers that the inputs that were asked for last are there.
    #[inline]
    pub fn inputs_given(&mut self) {
        self.given = self.given.union(self.asked);
    }

    /// Gives it the inputs that were asked for last, from a host that makes them apart.
    pub fn give(&mut self, inputs: Inputs) {
        self.inputs.absorb(inputs, self.asked);
        self.inputs_given();
    }

    /// Answers what else was asked for last.
    pub fn answer(&mut self, answer: Answer) {
        if matches!(answer, Answer::Waited) {
            self.given = self.given.without(Needs::NOW);
        }
        self.answer = Some(answer);
    }

    /// Goes as far as it can.
    pub fn advance(&mut self, host: &mut dyn Host) -> Turn {
        let plan = Arc::clone(&self.plan);
        let Some(chain) = plan.chain(self.chain) else { return self.refuse_without_chain() };
        if !self.is_decided()
            && let Some(ask) = self.run_chain(&plan, chain, host)
        {
            return Turn::Ask(ask);
        }
        if chain.audits.is_empty() { Turn::Done } else { self.record(&plan, chain, host) }
    }

    /// The edits of a message that passes, once the run is done, if there is nothing else to say about it.
    #[inline]
    pub fn passed(&self) -> Option<&Edits> {
        match self.rare.get() {
            Some(rare) if rare.decided.is_some() || !rare.notes.is_empty() => None,
            _ => Some(&self.edits),
        }
    }

    /// What was decided, once the run is done. It is said once.
    pub fn take_decision(&mut self) -> Decision {
        match self.rare.get_mut().and_then(|rare| rare.decided.take()) {
            Some(decision) => decision,
            None => {
                let edits = std::mem::take(&mut self.edits);
                self.decide(Verdict::Continue(edits), None)
            }
        }
    }

    /// Runs the steps; what comes of it is in `decided`, or in `edits` if the message passes.
    #[inline]
    fn run_chain(&mut self, plan: &Plan, chain: &Chain, host: &mut dyn Host) -> Option<Ask> {
        let steps = chain.steps(self.phase);
        let refusal = match steps.plain {
            true => None,
            false => match self.prepare(plan, steps) {
                Ok(refusal) => refusal,
                Err(ask) => return Some(ask),
            },
        };
        match refusal {
            Some(decision) => self.end(decision),
            None => {
                if let Some(ask) = self.run_steps(plan, chain, host) {
                    return Some(ask);
                }
            }
        }
        if chain.shadow {
            let decision = in_shadow(self.take_decision(), self.stripped(steps));
            self.end(decision);
        }
        None
    }

    /// A plan is loaded only if every route's chain is there; a run that finds none is refused all the same.
    #[cold]
    fn refuse_without_chain(&mut self) -> Turn {
        let response = Response::problem(500, "the request could not be checked");
        let decision = self.decide(Verdict::Deny(response), Some(("chain".into(), "chain_missing")));
        self.end(decision);
        Turn::Done
    }

    fn is_decided(&self) -> bool {
        self.rare.get().is_some_and(|rare| rare.decided.is_some())
    }

    #[cold]
    fn end(&mut self, decision: Decision) {
        self.rare.make().decided = Some(decision);
    }

    fn decide(&mut self, verdict: Verdict, ended_by: Option<(Arc<str>, &'static str)>) -> Decision {
        let (step, reason) = ended_by.unzip();
        let verdict = match verdict {
            Verdict::Continue(edits) => Verdict::Continue(edits),
            Verdict::Deny(response) => Verdict::Deny(response.with_missing(self.facts.answers()).or_failure()),
            Verdict::Respond(response) => Verdict::Respond(response.with_missing(self.facts.answers()).or_failure()),
        };
        let consumer = self.facts.consumer.as_ref().map(|consumer: &Arc<Consumer>| Arc::clone(&consumer.name));
        let notes = self.rare.get_mut().map(|rare| std::mem::take(&mut rare.notes)).unwrap_or_default();
        Decision { verdict, step, reason, consumer, notes, records: Vec::new() }
    }
}

/// What a chain in shadow mode decides: to let everything pass but what is stripped, and to say what it would have done.
fn in_shadow(mut decision: Decision, stripped: Edits) -> Decision {
    if let (Some(step), Some(reason)) = (decision.step.take(), decision.reason.take()) {
        decision.notes.push(Note { kind: NoteKind::Shadow, step, reason });
    }
    Decision { verdict: Verdict::Continue(stripped), ..decision }
}

#[cfg(test)]
mod tests {
    use postern_proto::plan::v1 as wire;
    use prost::Message;

    use super::*;
    use crate::host::Alone;

    #[test]
    fn refuses_a_message_without_a_chain() {
        let wire = wire::Plan {
            format: wire::FORMAT,
            strings: vec!["a".into()],
            chains: vec![wire::Chain::default()],
            routes: vec![wire::Route { name: 0, chain: 0 }],
            ..Default::default()
        };
        let plan = Arc::new(Plan::load(&wire.encode_to_vec()).unwrap());
        for phase in [Phase::Request, Phase::Response] {
            let mut run = Run::new(&plan, "a".into(), 7, phase, &Health::default(), Facts::default());
            assert!(matches!(run.advance(&mut Alone::default()), Turn::Done));
            let decision = run.take_decision();
            assert!(matches!(&decision.verdict, Verdict::Deny(response) if response.status == 500), "{decision:?}");
            assert_eq!(decision.reason, Some("chain_missing"));
        }
    }
}
