//! Decides whether a chain has a guard: a step that refuses callers who have not proved their identity.
//!
//! A guard is a step that can refuse an unknown caller, and that no request can bypass: it is enforced, has no
//! condition, denies when it fails, and is for every source. If a step has alternatives for some sources, each of them
//! must be a guard.

use postern_base::diagnostic::quote;
use postern_model::{Action, Diagnostic, Mode, OnFailure};

use crate::{
    attach::{Attached, EffectiveStep},
    expression::{Environment, Expressions},
    params::{Params, TrafficPermissionParams},
};

/// Why steps that authenticate are no guards, each at its position.
pub(super) type Gaps = Vec<Diagnostic>;

/// `Ok` if the chain has a guard, else why its authentication steps are none.
pub(super) fn guarded(chain: &Attached<'_>, expressions: &Expressions) -> Result<(), Gaps> {
    // A chain that cannot be merged is not served, or answers 500, as a refused one does.
    if !chain.errors.is_empty() || !chain.refused.is_empty() {
        return Ok(());
    }
    let mut gaps = Vec::new();
    if !chain.permissions.is_empty() {
        // The first rule for callers without a certificate.
        let open =
            chain.permissions.iter().find(|rule| rule.source.is_none()).filter(|rule| rule.action == Action::Allow);
        let Some(open) = open else { return Ok(()) };
        let field = format!("spec.from[{}].anonymous", open.entry);
        gaps.push(open.permission.diagnose(&field, "admits callers without a certificate"));
    }
    let mut skipped = None;
    for group in groups(&chain.request) {
        let judged: Vec<_> = group.iter().map(|step| (step, judge(step, chain.shadow, expressions))).collect();
        if !judged.iter().any(|(step, _)| authenticates(step)) {
            skipped = skipped.or_else(|| group.iter().find(|step| skips(step, chain.shadow)));
            continue;
        }
        if let Some(skips) = skipped {
            let message = "leaves out the steps behind it when it cannot decide, and with them the authentication";
            gaps.extend(skips.diagnose("onFailure", message));
            continue;
        }
        let everyone = group.last().is_some_and(|step| step.source.is_none());
        if everyone && judged.iter().all(|(_, judgement)| judgement.is_ok()) {
            return Ok(());
        }
        let wrong = judged.iter().filter_map(|(step, judgement)| judgement.as_ref().err().map(|gap| (step, gap)));
        gaps.extend(wrong.filter_map(|(step, Gap { field, message })| step.diagnose(field, message.clone())));
        if let Some(last) = group.last().filter(|_| !everyone) {
            gaps.extend(last.diagnose("", "is for some sources only: all others pass"));
        }
        skipped = group.iter().find(|step| skips(step, chain.shadow));
    }
    Err(gaps)
}

/// The steps, each together with its alternatives.
fn groups<'s, 'a>(steps: &'s [EffectiveStep<'a>]) -> impl Iterator<Item = &'s [EffectiveStep<'a>]> {
    steps.chunk_by(|_, next| next.alternative)
}

struct Gap {
    field: &'static str,
    message: String,
}

/// Whether a step's policy can refuse unknown callers, or answers in place of the upstream.
fn authenticates(step: &EffectiveStep<'_>) -> bool {
    // `roleCheck` refuses callers that no earlier step has identified.
    const POLICIES: [&str; 7] =
        ["apiKeyAuth", "basicAuth", "hmacAuth", "jwtValidation", "trafficPermission", "roleCheck", "respond"];
    POLICIES.contains(&step.step.policy.as_str())
}

fn judge(step: &EffectiveStep<'_>, shadow: bool, expressions: &Expressions) -> Result<(), Gap> {
    let gap = |field, message: &str| Err(Gap { field, message: message.to_owned() });
    // Whether a condition is obviously true for every request.
    let is_always = |when: &str| {
        expressions.condition(when, Environment::Request).is_ok_and(|condition| condition.always() == Some(true))
    };
    if !authenticates(step) {
        return gap("policy", "takes the place of an authentication step, and is none");
    }
    if shadow || step.step.mode == Some(Mode::Shadow) {
        return gap("mode", "is in shadow mode: it refuses nobody");
    }
    if step.step.when.as_deref().is_some_and(|when| !is_always(when)) {
        return gap("when", "runs only where its condition is true: all other requests pass");
    }
    match step.step.on_failure {
        Some(OnFailure::Continue) => return gap("onFailure", "lets requests pass that it cannot decide"),
        Some(OnFailure::SkipRemaining) => return gap("onFailure", "lets requests pass that it cannot decide"),
        Some(OnFailure::Deny) | None => {}
    }
    match step.params() {
        Ok(Params::JwtValidation(params)) if params.allow_missing => {
            gap("params.allowMissing", "lets requests without a token pass")
        }
        Ok(Params::ApiKeyAuth(params)) if !params.required => {
            gap("params.required", "lets requests without a key pass")
        }
        Ok(Params::TrafficPermission(params)) if admits_anyone(params) => {
            gap("params.rules", "admits callers without a certificate")
        }
        _ => Ok(()),
    }
}

/// Whether a failure of the step skips the rest of the chain.
fn skips(step: &EffectiveStep<'_>, shadow: bool) -> bool {
    let enforced = !shadow && step.step.mode != Some(Mode::Shadow) && step.step.policy != "auditLog";
    enforced && step.step.on_failure == Some(OnFailure::SkipRemaining)
}

/// Whether the first rule that selects a caller without a certificate allows it.
fn admits_anyone(params: &TrafficPermissionParams) -> bool {
    let first = params.rules.iter().find(|rule| rule.from.anyone == Some(true));
    first.is_some_and(|rule| rule.action == Action::Allow)
}

/// "route `users`", or words for all unnamed routes.
pub(super) fn route_label(mesh: &str, route: &str) -> String {
    let of = if mesh == postern_base::node::DEFAULT_MESH { String::new() } else { format!(" of mesh {}", quote(mesh)) };
    match route {
        "" => format!("every route that no policy names{of}"),
        route => format!("{}{of}", quote(route)),
    }
}
