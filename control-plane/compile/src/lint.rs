//! Findings: configuration that is valid but looks like a mistake. They refuse nothing.

mod certificate;
mod consumer;

use std::collections::{BTreeMap, BTreeSet};

use postern_base::diagnostic::quote;
use postern_engine::event::Phase;
use postern_model::{AccessLog, Bundle, Diagnostic, ListenerTls, Mode, Resource, TargetRef};
use serde::Serialize;

use crate::{
    attach::{Attached, Attachment, Scope},
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
    /// Entries of AccessLogs by source, by their place, and whether a caller could be such a source.
    sources: BTreeMap<Diagnostic, bool>,
}

impl Lint {
    /// Adds the findings for a group of nodes.
    pub(crate) fn look(&mut self, scope: &Scope<'_>, attachment: &Attachment<'_>) {
        self.look_at_sources(scope);
        self.found.extend(certificate::findings(&scope.gateways));
        for chain in &attachment.chains {
            self.found.extend(never_run(chain, &attachment.expressions));
            self.found.extend(consumer::unknown(chain, !scope.consumers.is_empty(), &attachment.expressions));
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

    /// Notes whether callers of these nodes can have an identity for the AccessLogs that select by source. Of Envoys with
    /// listeners of their own, nothing is known.
    fn look_at_sources(&mut self, scope: &Scope<'_>) {
        if !scope.has_gateways() {
            return;
        }
        let identified = |tls: &ListenerTls| tls.client_ca.is_some();
        let mut listeners = scope.gateways.iter().flat_map(|gateway| &gateway.spec.listeners);
        let known = !scope.envoy_resources.is_empty()
            || listeners.any(|listener| listener.tls.as_ref().is_some_and(identified));
        for log in &scope.access_logs {
            for place in by_source(log) {
                *self.sources.entry(place).or_default() |= known;
            }
        }
    }

    /// Adds the findings for the whole bundle. Returns all, by file and line.
    pub(crate) fn finish(mut self, bundle: &Bundle) -> Vec<Finding> {
        self.found.extend(idle_overrides(bundle, &self.overrides));
        let silent = self.sources.into_iter().filter(|(_, known)| !known);
        self.found.extend(silent.map(|(at, _)| Finding { at, code: "logs-nothing" }));
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

/// The places of entries that select some sources, by the identity in their certificates.
fn by_source(log: &Resource<AccessLog>) -> impl Iterator<Item = Diagnostic> {
    const MESSAGE: &str =
        "logs nothing: no listener asks callers for a certificate (`tls.clientCa`), so no source is known";
    let entries = log.spec.from.iter().enumerate().filter(|(_, entry)| entry.target_ref != TargetRef::Mesh);
    entries.map(|(index, _)| log.diagnose(&format!("spec.from[{index}].targetRef"), MESSAGE))
}

fn idle_overrides(bundle: &Bundle, seen: &BTreeSet<String>) -> Vec<Finding> {
    let idle = bundle.route_policies.iter().filter(|policy| policy.spec.overrides && !seen.contains(&policy.label()));
    let finding = |policy: &Resource<_>| Finding {
        at: policy.diagnose("spec.override", "overrides nothing: no other resource has a step of these names"),
        code: "idle-override",
    };
    idle.map(finding).collect()
}
