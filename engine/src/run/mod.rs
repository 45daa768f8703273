//! A chain that is running on one message. It goes as far as it can, then it is done or asks for something. Waiting is
//! a value, so the driver may answer at once or after a call over the network.
//!
//! Nearly every message passes with nothing to report but its edits. So a run has a [`Decision`] only if there is more
//! to report, and rarely used state is boxed.

mod notice;
mod record;
mod steps;
mod trace;

use std::sync::Arc;

pub use self::{
    notice::Cause,
    trace::{Fate, Traced},
};
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

/// What the run of a request leaves for the response.
#[derive(Debug, Default)]
pub struct Outlook {
    facts: Facts,
    inputs: Inputs,
    given: Needs,
    request_edits: Edits,
    noted: Vec<Note>,
    budget: Budget,
}

/// A chain that is running on one message.
#[derive(Debug)]
pub struct Run {
    plan: Arc<Plan>,
    route: Arc<str>,
    chain: usize,
    phase: Phase,
    health: Health,
    /// The index of the step to run next.
    at: usize,
    given: Needs,
    inputs: Inputs,
    /// The budget that request and response share.
    budget: Budget,
    edits: Edits,
    facts: Facts,
    memory: Memory,
    answer: Option<Answer>,
    asked: Needs,
    /// The inputs that the current step has asked for while it ran.
    wanted: Needs,
    rare: Rare<RareState>,
    /// The fate of each step so far.
    #[cfg(feature = "trace")]
    trace: Vec<Traced>,
}

/// The state of the current step.
#[derive(Debug, Default)]
struct Memory {
    /// Whether its condition was true, so that its policy is running.
    entered: bool,
    /// The state of its policy.
    states: States,
}

/// Rarely used state, boxed to keep `Run` small.
#[derive(Debug, Default)]
struct RareState {
    /// The edits that were made to the request. Only for a response.
    request_edits: Edits,
    notes: Vec<Note>,
    /// The decision, unless the message passes and there is nothing else to report.
    decided: Option<Decision>,
    /// The notes on the message so far, for its record.
    noted: Vec<Note>,
    /// Whether there was no response, so that no input of one can be asked for.
    unanswered: bool,
    /// The budget of steps in shadow mode.
    shadow_budget: Option<Budget>,
}

/// The edits of a request of which nothing was kept.
static NO_EDITS: Edits = Edits::none();

impl Run {
    /// A run of the request chain of a route; `None` if the route has no chain.
    #[inline]
    pub fn request(plan: &Arc<Plan>, route: impl AsRef<[u8]>, health: &Health) -> Option<Self> {
        let (route, chain) = plan.route(route.as_ref())?;
        Some(Self::new(plan, route, chain, Phase::Request, health, Facts::default()))
    }

    /// A run of the response chain of the route whose request left `outlook`; `None` if there is nothing to do.
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

    /// A run that records a request which was admitted and then got no response from its upstream. `decided` is the
    /// decision that ended it, if it was ours. `None` if there is nothing to record.
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

    /// The largest body that may be buffered for the chain.
    #[inline]
    pub fn body_limit(&self) -> usize {
        let limit = self.plan.chain(self.chain).map_or(0, |chain| chain.body_limit);
        let allowed = self.edits.allowance().and_then(|allowance| usize::try_from(allowance.most).ok());
        allowed.map_or(limit, |allowed| limit.min(allowed))
    }

    /// Whether a step that has not run yet may ask for the body.
    pub fn may_want_body(&self) -> bool {
        let left = |chain: &Chain| {
            let mut steps = chain.steps(self.phase).steps.iter().skip(self.at);
            steps.any(|step| step.needs.has(Needs::BODY) || step.policy.may_want_body()) || chain.keep.has(Needs::BODY)
        };
        self.plan.chain(self.chain).is_some_and(left)
    }

    /// Whether there is nothing to do for the response, once this run is done.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.facts.leaves_response() && self.plan.chain(self.chain).is_none_or(Chain::ends_with_request)
    }

    /// Takes what the run leaves for the response. Call it once the run is done.
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

    /// The budget of the message.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The inputs, into which a host puts what was asked for.
    pub fn inputs(&mut self) -> &mut Inputs {
        &mut self.inputs
    }

    /// The inputs that it will certainly ask for first. A host that provides them at once saves a turn.
    #[inline]
    pub fn foresee(&mut self) -> Needs {
        self.asked = self.plan.chain(self.chain).map_or(Needs::NONE, |chain| chain.steps(self.phase).first);
        self.asked
    }

    /// Tells the run that the inputs that it asked for last are in place.
    #[inline]
    pub fn inputs_given(&mut self) {
        self.given = self.given.union(self.asked);
    }

    /// Gives the run the inputs that it asked for last, from a host that did not put them in place.
    pub fn give(&mut self, inputs: Inputs) {
        self.inputs.absorb(inputs, self.asked);
        self.inputs_given();
    }

    /// Answers a question that was not about inputs.
    pub fn answer(&mut self, answer: Answer) {
        if matches!(answer, Answer::Waited) {
            self.given = self.given.without(Needs::NOW);
        }
        self.answer = Some(answer);
    }

    /// Runs the chain as far as possible.
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

    /// The edits of a message that passes with nothing else to report. Call it once the run is done; `None` if there is
    /// a decision.
    #[inline]
    pub fn passed(&self) -> Option<&Edits> {
        match self.rare.get() {
            Some(rare) if rare.decided.is_some() || !rare.notes.is_empty() => None,
            _ => Some(&self.edits),
        }
    }

    /// Takes the decision. Call it once, when the run is done.
    pub fn take_decision(&mut self) -> Decision {
        match self.rare.get_mut().and_then(|rare| rare.decided.take()) {
            Some(decision) => decision,
            None => {
                let edits = std::mem::take(&mut self.edits);
                self.decide(Verdict::Continue(edits), None)
            }
        }
    }

    /// Runs the steps. The result is in `decided`, or in `edits` if the message passes.
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

    /// Refuses a message whose chain is not in the plan. Loading has checked that this cannot be.
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

/// The decision of a chain in shadow mode: the message passes without the stripped headers, and the notes say what
/// would have been done.
fn in_shadow(mut decision: Decision, stripped: Edits) -> Decision {
    if let (Some(step), Some(reason)) = (decision.step.take(), decision.reason.take()) {
        decision.notes.push(Note { kind: NoteKind::Shadow, step, reason, left_out: None });
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
