//! Runs the steps of a chain, one after the other: the inputs of each, its condition, its policy, and what follows from
//! the result.

use std::sync::Arc;

use super::{Fate, NO_EDITS, Run};
use crate::{
    ask::{Answer, Ask},
    budget::Budget,
    chain::{Chain, Step, Steps},
    context::Context,
    edits::Edits,
    event::{Inputs, Needs, Phase},
    header::Name,
    host::Host,
    on_failure::OnFailure,
    plan::Plan,
    policy::{self, Flow},
    verdict::{Decision, Denial, Note, NoteKind, Verdict},
};

/// How a chain goes on after a step that did not let the message pass.
enum AfterEnding {
    /// The decision is made.
    Over,
    /// The chain goes on.
    GoOn,
    /// The rest of the chain is left out.
    Skip,
}

impl Run {
    /// Prepares a chain: strips the caller's values of promised headers, and checks that all policies are supported and
    /// agents healthy.
    #[inline(never)]
    pub(super) fn prepare(&mut self, plan: &Plan, steps: &Steps) -> Result<Option<Decision>, Ask> {
        if self.at > 0 || self.memory.entered {
            return Ok(None);
        }
        if !steps.promised.is_empty() {
            let missing = Needs::REQUEST_HEADERS.without(self.given);
            if !missing.is_empty() {
                self.asked = missing.union(steps.cheap.without(self.given));
                return Err(Ask::Inputs(self.asked));
            }
            present(&self.inputs, steps).for_each(|name| self.edits.strip(name));
        }
        Ok(self.refusal(plan, steps))
    }

    /// The edits that remain of a chain in shadow mode: the stripped headers.
    pub(super) fn stripped(&self, steps: &Steps) -> Edits {
        let mut edits = Edits::default();
        present(&self.inputs, steps).for_each(|name| edits.strip(name));
        edits
    }

    /// The decision if the chain cannot run: a policy that nobody supports, or an agent that is not healthy. `None` if
    /// it can.
    fn refusal(&mut self, plan: &Plan, steps: &Steps) -> Option<Decision> {
        if let Some(policy) = steps.unsupported.first() {
            let response = plan.policy_not_supported().clone();
            return Some(self.deny(Arc::clone(policy), Denial { reason: "policy_not_supported", response }));
        }
        let step = Arc::clone(&steps.steps.iter().find(|step| self.is_unavailable(step))?.name);
        let response = plan.directory().agent_unavailable.clone();
        Some(self.deny(step, Denial { reason: "agent_unavailable", response }))
    }

    #[inline]
    pub(super) fn run_steps(&mut self, plan: &Plan, chain: &Chain, host: &mut dyn Host) -> Option<Ask> {
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
                    return Some(Ask::Inputs(missing));
                }
            }
            let flow = match step.shadow {
                false => self.run_step(plan, step, chain, host),
                true => self.run_in_shadow(plan, step, chain, host),
            };
            match flow {
                Flow::Continue => {
                    self.leave(step);
                    // There is nothing in it, but to find that out when it is dropped is a call.
                    std::mem::forget(flow);
                }
                // What is not enforced keeps nobody waiting.
                Flow::Ask(Ask::Wait { .. }) if chain.shadow || step.shadow => self.answer = Some(Answer::Waited),
                Flow::Ask(ask) => return Some(ask),
                Flow::Want(needs) => self.wanted = self.wanted.union(needs),
                ending => match self.end_by(plan, step, ending) {
                    AfterEnding::Over => return None,
                    AfterEnding::GoOn => {}
                    AfterEnding::Skip => break,
                },
            }
        }
        self.let_pass(chain)
    }

    /// Handles a step that did not let the message pass.
    #[cold]
    #[inline(never)]
    fn end_by(&mut self, plan: &Plan, step: &Step, ending: Flow) -> AfterEnding {
        let decision = match ending {
            Flow::Respond(response) => {
                self.decide(Verdict::Respond(response), Some((Arc::clone(&step.name), "respond")))
            }
            Flow::Deny(denial) => self.deny_by(step, denial),
            Flow::Fail(denial) => match self.on_failure(plan, step) {
                OnFailure::Continue => {
                    self.note(NoteKind::Failed, step, denial.reason);
                    self.leave(step);
                    return AfterEnding::GoOn;
                }
                OnFailure::SkipRemaining => {
                    self.note(NoteKind::Skipped, step, denial.reason);
                    return AfterEnding::Skip;
                }
                _ => self.deny_by(step, denial),
            },
            Flow::Continue | Flow::Ask(_) | Flow::Want(_) => return AfterEnding::GoOn,
        };
        self.end(decision);
        AfterEnding::Over
    }

    /// Ends a chain that lets the message pass. Asks for the inputs of the request that the response will need, since
    /// they can be fetched only now.
    #[inline(always)]
    fn let_pass(&mut self, chain: &Chain) -> Option<Ask> {
        if !chain.keep.is_empty() && self.phase == Phase::Request {
            let missing = chain.keep.without(self.given);
            if missing.has(Needs::BODY) && matches!(self.answer, Some(Answer::BodyTooLarge)) {
                self.answer = None;
                return self.refuse_body(chain);
            }
            if !missing.is_empty() {
                self.at = usize::MAX;
                self.asked = missing;
                return Some(Ask::Inputs(missing));
            }
            self.rare.make().request_edits = self.edits.clone();
        }
        self.edits.belong_to(self.facts.consumer.as_ref().map(|consumer| &consumer.name));
        None
    }

    /// Handles a body that is too large for a response step that reads it. A step in shadow mode runs without it.
    fn refuse_body(&mut self, chain: &Chain) -> Option<Ask> {
        let readers = || chain.response.steps.iter().filter(|step| step.needs.has(Needs::BODY));
        if let Some(step) = readers().find(|step| !step.shadow) {
            let decision = self.deny_by(step, Denial::body_too_large());
            self.end(decision);
            return None;
        }
        readers().for_each(|step| self.note(NoteKind::Shadow, step, Denial::body_too_large().reason));
        self.given = self.given.union(Needs::BODY);
        self.let_pass(chain)
    }

    /// Runs one step, or one more turn of it.
    #[inline(always)]
    fn run_step(&mut self, plan: &Plan, step: &Step, chain: &Chain, host: &mut dyn Host) -> Flow {
        let flow = self.turn_step(plan, step, chain.steps(self.phase), host);
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

    /// One turn of a step: inputs, then `when`, then the policy.
    #[inline(always)]
    fn turn_step(&mut self, plan: &Plan, step: &Step, steps: &Steps, host: &mut dyn Host) -> Flow {
        if matches!(self.answer, Some(Answer::BodyTooLarge)) {
            self.answer = None;
            return Flow::Deny(Denial::body_too_large());
        }
        let missing = step.needs.union(self.wanted).without(self.given);
        if !missing.is_empty() {
            // A body may be long in coming: what time it was before is no use after it.
            let known = self.given.without(Needs::NOW.when(missing.has(Needs::BODY)));
            self.asked = missing.union(steps.cheap.without(known));
            return Flow::Ask(Ask::Inputs(self.asked));
        }
        let request_edits = self.rare.get().map_or(&NO_EDITS, |rare| &rare.request_edits);
        let mut context = Context {
            directory: plan.directory(),
            phase: self.phase,
            route: &self.route,
            step: self.at,
            name: &step.name,
            inputs: &self.inputs,
            budget: &self.budget,
            health: &self.health,
            given: self.given,
            edits: &mut self.edits,
            request_edits,
            facts: &mut self.facts,
            answer: &mut self.answer,
            host,
        };
        if !self.memory.entered {
            if step.needs.has(Needs::BODY) {
                context.allow_body();
            }
            match step.when.as_ref().map(|when| when.test(&context, context.budget)) {
                None | Some(Ok(true)) => self.memory.entered = true,
                Some(Ok(false)) => return Flow::Continue,
                Some(Err(error)) => return Flow::Fail(policy::unevaluated(&error, "condition_failed")),
            }
        }
        let at = self.at;
        let following = |ahead| steps.steps.get(at.saturating_add(ahead)).map(Step::as_following);
        step.policy.run(&mut context, &mut self.memory.states, following)
    }

    /// Runs a step in shadow mode. It changes neither the message nor what later steps know.
    #[inline(never)]
    fn run_in_shadow(&mut self, plan: &Plan, step: &Step, chain: &Chain, host: &mut dyn Host) -> Flow {
        let before = (self.edits.clone(), self.facts.clone());
        // Steps in shadow mode have a budget of their own, which they share: they take nothing from those that count.
        let own = self.rare.make().shadow_budget.take().unwrap_or_else(|| Budget::new(plan.steps()));
        let enforced = std::mem::replace(&mut self.budget, own);
        let flow = self.run_step(plan, step, chain, host);
        self.rare.make().shadow_budget = Some(std::mem::replace(&mut self.budget, enforced));
        (self.edits, self.facts) = before;
        match flow {
            Flow::Ask(_) | Flow::Want(_) => return flow,
            Flow::Continue => {}
            Flow::Deny(denial) | Flow::Fail(denial) => self.note(NoteKind::Shadow, step, denial.reason),
            Flow::Respond(_) => self.note(NoteKind::Shadow, step, "respond"),
        }
        Flow::Continue
    }

    /// The `onFailure` of a step or, for a group that one agent was asked for, the strictest of the group.
    fn on_failure(&self, plan: &Plan, step: &Step) -> OnFailure {
        let asked = &self.memory.states.agent;
        let said = if asked.span == 0 { step.on_failure } else { asked.on_failure };
        said.for_agent(asked.agent.and_then(|agent| plan.directory().agent(agent)))
    }

    /// Whether a step is for the source of the message. `Err` has the inputs that are needed to tell.
    #[inline]
    fn is_for_source(&self, step: &Step) -> Result<bool, Needs> {
        let Some(source) = step.source.as_ref().filter(|_| !self.memory.entered) else { return Ok(true) };
        let missing = source.needs().without(self.given);
        if missing.is_empty() { Ok(source.selects(&self.inputs)) } else { Err(missing) }
    }

    /// Goes on to the next step, past the steps that an agent has evaluated together, and past the step's alternatives.
    #[inline]
    fn leave(&mut self, step: &Step) {
        let alone = step.alternatives.saturating_add(1);
        self.at = self.at.saturating_add(self.memory.states.agent.span.max(alone));
        self.memory.entered = false;
        self.memory.states.leave();
        self.wanted = Needs::NONE;
    }

    fn note(&mut self, kind: NoteKind, step: &Step, reason: &'static str) {
        let left_out = (kind == NoteKind::Skipped).then_some((self.phase, self.at.saturating_add(1)));
        self.rare.make().notes.push(Note { kind, step: Arc::clone(&step.name), reason, left_out });
    }

    /// The decision for a step's denial, with the user's `denyWith` applied.
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
}

/// The promised headers that the request came with. Removing an absent one would cost a host call, and make Envoy
/// choose the route again.
fn present<'a>(inputs: &'a Inputs, steps: &'a Steps) -> impl Iterator<Item = &'a Name> {
    steps.promised.iter().filter(|name| inputs.request_headers.values(name.get()).next().is_some())
}
