//! Findings: configuration that is valid but looks like a mistake. They refuse nothing.

use std::collections::BTreeSet;

use postern_base::diagnostic::quote;
use postern_engine::event::Phase;
use postern_model::{Bundle, Diagnostic, Mode, Resource};
use serde::Serialize;

use crate::{
    attach::{Attached, Attachment},
    expression::Expressions,
};

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The position and the message.
    #[serde(flatten)]
    pub at: Diagnostic,
    /// The kind of finding, by which users can filter.
    pub code: &'static str,
}

/// Collects findings, group by group.
#[derive(Debug, Default)]
pub(crate) struct Lint {
    found: BTreeSet<Finding>,
    overrides: BTreeSet<String>,
}

impl Lint {
    /// Adds the findings for a group of nodes.
    pub(crate) fn look(&mut self, attachment: &Attachment<'_>) {
        for chain in &attachment.chains {
            self.found.extend(never_run(chain, &attachment.expressions));
        }
        for step in attachment.chains.iter().flat_map(|chain| chain.request.iter().chain(&chain.response)) {
            if let [first, .., last] = step.parts.as_slice()
                && first.policy.spec.overrides
                && last.policy.name != first.policy.name
            {
                self.overrides.insert(first.policy.label());
            }
        }
    }

    /// Adds the findings for the whole bundle. Returns all, by file and line.
    pub(crate) fn finish(mut self, bundle: &Bundle) -> Vec<Finding> {
        self.found.extend(idle_overrides(bundle, &self.overrides));
        self.found.into_iter().collect()
    }
}

/// Steps after one that always answers, and steps whose condition is never true.
fn never_run(chain: &Attached<'_>, expressions: &Expressions) -> Vec<Finding> {
    let is_never = |when: &str, phase: Phase| {
        expressions.condition(when, phase.into()).is_ok_and(|condition| condition.always() == Some(false))
    };
    let mut found = Vec::new();
    for phase in [Phase::Request, Phase::Response] {
        let mut answered: Option<&str> = None;
        for step in chain.steps(phase) {
            let code = "step-never-runs";
            if let Some(by) = answered
                && step.step.policy != "auditLog"
            {
                let message = format!("never runs: step {} always answers before it", quote(by));
                found.extend(step.diagnose("", message).map(|at| Finding { at, code }));
            }
            if step.step.when.as_deref().is_some_and(|when| is_never(when, phase)) {
                let at = step.diagnose("when", "never runs: the condition is always false");
                found.extend(at.map(|at| Finding { at, code }));
            }
            let always = step.source.is_none() && step.step.when.is_none() && step.step.mode != Some(Mode::Shadow);
            if step.step.policy == "respond" && always && answered.is_none() {
                answered = Some(&step.step.name);
            }
        }
    }
    found
}

fn idle_overrides(bundle: &Bundle, seen: &BTreeSet<String>) -> Vec<Finding> {
    let idle = bundle.route_policies.iter().filter(|policy| policy.spec.overrides && !seen.contains(&policy.label()));
    let finding = |policy: &Resource<_>| Finding {
        at: policy.diagnose("spec.override", "overrides nothing: no other resource has a step of these names"),
        code: "idle-override",
    };
    idle.map(finding).collect()
}
