//! What is right but looks like a slip. A finding refuses nothing: whoever wrote it may have meant it.

use std::collections::BTreeSet;

use postern_engine::event::Phase;
use postern_proto::plan::v1::expression::{constant, node};
use serde::Serialize;

use crate::{
    attach::{Attached, Attachment, EffectiveStep, Scope, Targeted, attach},
    expression::{Environment, compile_condition},
    model::{Bundle, Diagnostic, Mode, Resource, TargetRef, quote, suggestion},
    publication::imagined_nodes,
};

/// The policies after which it is known who calls.
const AUTHENTICATION: [&str; 5] = ["apiKeyAuth", "basicAuth", "hmacAuth", "jwtValidation", "trafficPermission"];

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Where, and what.
    #[serde(flatten)]
    pub at: Diagnostic,
    /// What kind of finding it is: for those who want to leave some out.
    pub code: &'static str,
}

/// Everything that looks like a slip, by file and line.
pub fn lint(bundle: &Bundle) -> Vec<Finding> {
    let mut found = BTreeSet::new();
    let mut seen_overrides = BTreeSet::new();
    for node in imagined_nodes(bundle) {
        let scope = Scope::of(bundle, &node);
        let attachment = attach(&scope);
        found.extend(unauthenticated(&scope, &attachment));
        found.extend(attachment.chains.iter().flat_map(never_run));
        for step in attachment.chains.iter().flat_map(|chain| chain.request.iter().chain(&chain.response)) {
            if let [first, .., last] = step.parts.as_slice()
                && first.policy.spec.overrides
                && last.policy.name != first.policy.name
            {
                seen_overrides.insert(first.policy.label());
            }
        }
    }
    found.extend(idle_overrides(bundle, &seen_overrides));
    found.extend(selects_nothing(bundle));
    found.into_iter().collect()
}

fn unauthenticated(scope: &Scope<'_>, attachment: &Attachment<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for gateway in &scope.gateways {
        for (index, route) in gateway.spec.routes.iter().enumerate() {
            let chain = attachment.routes.get(route.name.as_str()).and_then(|chain| attachment.chains.get(*chain));
            if !chain.is_some_and(authenticates) {
                let message = format!("nothing asks who calls route {}", quote(&route.name));
                let at = gateway.diagnose(&format!("spec.routes[{index}].name"), message);
                found.push(Finding { at, code: "unauthenticated-route" });
            }
        }
    }
    found
}

fn authenticates(chain: &Attached<'_>) -> bool {
    let enforced = |step: &EffectiveStep<'_>| {
        AUTHENTICATION.contains(&step.step.policy.as_str()) && step.step.mode != Some(Mode::Shadow)
    };
    !chain.permissions.is_empty() || (!chain.shadow && chain.request.iter().any(enforced))
}

/// Steps behind one that always answers, and steps whose condition is never true.
fn never_run(chain: &Attached<'_>) -> Vec<Finding> {
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

fn is_never(when: &str, phase: Phase) -> bool {
    let environment = match phase {
        Phase::Request => Environment::Request,
        Phase::Response => Environment::Response,
    };
    let Ok(compiled) = compile_condition(when, environment) else { return false };
    let root = compiled.nodes.last().and_then(|node| node.kind.as_ref());
    match root {
        Some(node::Kind::Constant(constant)) => matches!(constant.kind, Some(constant::Kind::Bool(false))),
        _ => false,
    }
}

fn idle_overrides(bundle: &Bundle, seen: &BTreeSet<String>) -> Vec<Finding> {
    let idle = bundle.route_policies.iter().filter(|policy| policy.spec.overrides && !seen.contains(&policy.label()));
    let finding = |policy: &Resource<_>| Finding {
        at: policy.diagnose("spec.override", "overrides nothing: no other resource has a step of these names"),
        code: "idle-override",
    };
    idle.map(finding).collect()
}

fn selects_nothing(bundle: &Bundle) -> Vec<Finding> {
    let mut found = Vec::new();
    let known = Known::new(bundle);
    for policy in &bundle.route_policies {
        known.target(policy, &mut found);
        for (index, entry) in policy.spec.to.iter().enumerate() {
            known.destination(policy, &entry.target_ref, &format!("spec.to[{index}]"), &mut found);
        }
    }
    for permission in &bundle.traffic_permissions {
        known.target(permission, &mut found);
    }
    for timeout in &bundle.timeouts {
        known.target(timeout, &mut found);
        for (index, entry) in timeout.spec.to.iter().enumerate() {
            known.destination(timeout, &entry.target_ref, &format!("spec.to[{index}]"), &mut found);
        }
    }
    for log in &bundle.access_logs {
        known.target(log, &mut found);
        for (index, entry) in log.spec.to.iter().enumerate() {
            known.destination(log, &entry.target_ref, &format!("spec.to[{index}]"), &mut found);
        }
    }
    found
}

/// What can be selected, as far as resources say. Which nodes there are, only a running control plane knows.
struct Known<'a> {
    routes: BTreeSet<&'a str>,
    services: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn new(bundle: &'a Bundle) -> Self {
        let routes = bundle.gateways.iter().flat_map(|gateway| &gateway.spec.routes);
        Self {
            routes: routes.map(|route| route.name.as_str()).collect(),
            services: bundle.services.iter().map(|service| service.name.as_str()).collect(),
        }
    }

    fn target<T: Targeted>(&self, resource: &Resource<T>, found: &mut Vec<Finding>) {
        self.route(resource, resource.spec.target_ref(), "spec.targetRef.name", found);
    }

    fn destination<T>(&self, resource: &Resource<T>, target: &TargetRef, field: &str, found: &mut Vec<Finding>) {
        let field = format!("{field}.targetRef.name");
        self.route(resource, target, &field, found);
        if let Some(service) = target.service().filter(|service| !self.services.contains(service)) {
            let near = suggestion(service, self.services.iter().copied());
            let message = format!("selects nothing: there is no Service {}{near}", quote(service));
            found.push(Finding { at: resource.diagnose(&field, message), code: "selects-nothing" });
        }
    }

    fn route<T>(&self, resource: &Resource<T>, target: &TargetRef, field: &str, found: &mut Vec<Finding>) {
        // Without a Gateway, all routes are Envoy's own.
        let Some(route) = target.route().filter(|route| !self.routes.is_empty() && !self.routes.contains(route)) else {
            return;
        };
        let near = suggestion(route, self.routes.iter().copied());
        let message =
            format!("no Gateway declares route {}{near}: only a route of Envoy's own can have it", quote(route));
        found.push(Finding { at: resource.diagnose(field, message), code: "selects-nothing" });
    }
}
