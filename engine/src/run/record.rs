//! Makes the records of a decision, for auditors.

use std::sync::Arc;

use super::{NO_EDITS, Run};
use crate::{
    ask::{Ask, Turn},
    budget::Budget,
    cel::Value,
    chain::Chain,
    context::{self, Context},
    edits::Edits,
    event::{Headers, Needs, Phase},
    host::Host,
    plan::Plan,
    verdict::{Decision, Response, Verdict},
};

impl Run {
    /// Makes the records of a decision, once the inputs that they show are there. A message that is not in the sample
    /// costs only the random bytes.
    #[inline(never)]
    pub(super) fn record(&mut self, plan: &Plan, chain: &Chain, host: &mut dyn Host) -> Turn {
        let mut decision = self.take_decision();
        let audits = chain.audits.iter().enumerate();
        let mut due: Vec<_> = audits.filter(|(_, audit)| audit.is_due(self.phase, &decision.verdict)).collect();
        let by_chance = due.iter().any(|(_, audit)| audit.is_sampled(&decision.verdict));
        if by_chance && !self.given.has(Needs::RANDOM) {
            return self.ask_for_record(Needs::RANDOM, decision);
        }
        let ended = matches!(decision.verdict, Verdict::Deny(_) | Verdict::Respond(_));
        let random = |index: usize| context::random(&self.inputs, usize::MAX.saturating_sub(index));
        due.retain(|(index, audit)| !audit.is_sampled(&decision.verdict) || audit.is_hit(random(*index)));
        let needs = due.iter().fold(Needs::NONE, |needs, (_, audit)| needs.union(audit.needs()));
        let answered = self.phase == Phase::Response && !ended && !self.rare.make().unanswered;
        let missing = needs.without(Needs::RESPONSE_HEADERS.when(!answered)).without(self.given);
        if !missing.is_empty() {
            return self.ask_for_record(missing, decision);
        }
        self.rare.make().noted.extend(decision.notes.iter().cloned());
        if due.is_empty() {
            self.end(decision);
            return Turn::Done;
        }
        let mut edits = match &decision.verdict {
            Verdict::Continue(edits) => edits.clone(),
            Verdict::Deny(response) | Verdict::Respond(response) => {
                self.inputs.response_headers = own_headers(response);
                if self.phase == Phase::Request { std::mem::take(&mut self.edits) } else { Edits::default() }
            }
        };
        let noted = self.rare.get().map_or(&[][..], |rare| &rare.noted);
        let mut skipped = Vec::new();
        for (phase, first) in noted.iter().filter_map(|note| note.left_out) {
            let steps = chain.steps(phase).steps.iter().skip(first);
            steps.for_each(|step| skipped.push(Value::String(Arc::clone(&step.name))));
        }
        // What audits is not starved by what it audits.
        let budget = Budget::new(plan.steps());
        for (_, audit) in &due {
            let context = Context {
                directory: plan.directory(),
                phase: self.phase,
                route: &self.route,
                step: self.at,
                name: audit.name(),
                inputs: &self.inputs,
                budget: &budget,
                health: &self.health,
                given: self.given,
                edits: &mut edits,
                request_edits: self.rare.get().map_or(&NO_EDITS, |rare| &rare.request_edits),
                facts: &mut self.facts,
                answer: &mut self.answer,
                host: &mut *host,
            };
            let record = audit.record(&context, &decision, (noted, &skipped));
            decision.records.extend(record);
        }
        self.end(decision);
        Turn::Done
    }

    fn ask_for_record(&mut self, missing: Needs, decision: Decision) -> Turn {
        self.end(decision);
        self.asked = missing;
        Turn::Ask(Ask::Inputs(missing))
    }
}

/// The headers of our own answer, in the form of a response's.
fn own_headers(response: &Response) -> Headers {
    let status = (":status".to_owned(), response.status.to_string());
    let headers = response.headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    [status].into_iter().chain(headers).collect()
}
