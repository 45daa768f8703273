//! Steps that ask for the consumer although nothing before them says that there is one. Such requests get a 403.

use postern_base::diagnostic::quote;
use postern_engine::{cel::Attribute, event::Phase};
use postern_model::{Mode, OnFailure};

use super::Finding;
use crate::{
    attach::{Attached, EffectiveStep},
    expression::{Environment, Expressions},
    params::Params,
};

const CODE: &str = "consumer-unknown";

/// What is known of the caller after some steps.
enum Caller<'a> {
    /// No step identifies a consumer.
    Unknown,
    /// Some callers are consumers. The text says who is none.
    Perhaps(String),
    /// A token of an issuer was checked by this step, which does not look for a consumer.
    Token(&'a str),
    /// Every caller is a consumer.
    Consumer,
}

/// A finding for the first step of a chain that presumes a consumer which there may not be.
pub(super) fn unknown(chain: &Attached<'_>, has_consumers: bool, expressions: &Expressions) -> Option<Finding> {
    let mut caller = Caller::Unknown;
    for group in chain.request.chunk_by(|_, next| next.alternative) {
        let found = group.iter().find_map(|step| presumes(step, Phase::Request, expressions).map(|it| (step, it)));
        if let Some((step, (field, attribute))) = found {
            return finding(step, &field, attribute, &caller, has_consumers);
        }
        caller = after(caller, group, chain.shadow);
    }
    let mut responses = chain.response.iter();
    let (step, (field, attribute)) =
        responses.find_map(|step| presumes(step, Phase::Response, expressions).map(|it| (step, it)))?;
    finding(step, &field, attribute, &caller, has_consumers)
}

fn finding(
    step: &EffectiveStep<'_>,
    field: &str,
    attribute: Attribute,
    caller: &Caller<'_>,
    has_consumers: bool,
) -> Option<Finding> {
    let name = quote(attribute.name());
    let refuses = matches!(step.step.on_failure, None | Some(OnFailure::Deny));
    let outcome = if refuses { "gets 403" } else { "passes as `onFailure` says" };
    let message = match caller {
        Caller::Consumer => return None,
        Caller::Unknown => {
            format!("{name} has no value, because no step before it identifies a consumer: every request {outcome}")
        }
        Caller::Token(step) => format!(
            "{name} has no value, because step {} has no `consumer`, the claim that names one: every request {outcome}",
            quote(step)
        ),
        Caller::Perhaps(who) if !has_consumers => {
            format!("{name} has no value, because {who}, and no Consumer is declared: every request {outcome}")
        }
        Caller::Perhaps(who) => format!(
            "{name} may have no value, because {who}: such a request {outcome}. Add a `roleCheck` with `groups` before \
             this step, or write `has({}) ? … : …`",
            attribute.name()
        ),
    };
    Some(Finding { at: step.diagnose(field, message)?, code: CODE })
}

/// What is known after a step and its alternatives.
fn after<'a>(before: Caller<'a>, group: &'a [EffectiveStep<'_>], shadow: bool) -> Caller<'a> {
    if matches!(before, Caller::Consumer) {
        return before;
    }
    let for_everyone = group.last().is_some_and(|step| step.source.is_none());
    if for_everyone && group.iter().all(|step| identifies(step) && is_certain(step, shadow)) {
        return Caller::Consumer;
    }
    for step in group {
        let name = &step.step.name;
        match step.params() {
            Ok(Params::JwtValidation(params)) => match &params.consumer {
                Some(claim) => {
                    let who = format!("step {} lets tokens pass whose {} names no Consumer", quote(name), quote(claim));
                    return Caller::Perhaps(who);
                }
                None if matches!(before, Caller::Unknown) => return Caller::Token(name),
                None => {}
            },
            _ if identifies_some(step) => {
                return Caller::Perhaps(format!("step {} lets some requests pass without one", quote(name)));
            }
            _ => {}
        }
    }
    before
}

/// Whether every request that the step admits has a consumer.
fn identifies(step: &EffectiveStep<'_>) -> bool {
    match step.params() {
        Ok(Params::ApiKeyAuth(params)) => params.required,
        Ok(Params::BasicAuth(_) | Params::HmacAuth(_)) => true,
        Ok(Params::RoleCheck(params)) => !params.groups.is_empty(),
        _ => false,
    }
}

fn identifies_some(step: &EffectiveStep<'_>) -> bool {
    matches!(step.params(), Ok(Params::ApiKeyAuth(_) | Params::BasicAuth(_) | Params::HmacAuth(_)))
}

/// Whether no request passes the step unless it admits it.
fn is_certain(step: &EffectiveStep<'_>, shadow: bool) -> bool {
    let enforced = !shadow && step.step.mode != Some(Mode::Shadow);
    enforced && step.step.when.is_none() && matches!(step.step.on_failure, None | Some(OnFailure::Deny))
}

/// The first field of a step whose expression fails without a consumer. A step whose condition asks whether there is
/// one (`has`) presumes none.
fn presumes(step: &EffectiveStep<'_>, phase: Phase, expressions: &Expressions) -> Option<(String, Attribute)> {
    const ATTRIBUTES: [Attribute; 2] = [Attribute::ConsumerName, Attribute::ConsumerGroups];
    let compiled = |text: &str| expressions.any(text, Environment::from(phase)).ok();
    let presumed = |text: &str| {
        let compiled = compiled(text)?;
        ATTRIBUTES.into_iter().find(|attribute| compiled.presumes(*attribute))
    };
    if step.step.policy == "auditLog" {
        return None; // It refuses nobody.
    }
    if let Some(when) = &step.step.when {
        if let Some(attribute) = presumed(when) {
            return Some(("when".to_owned(), attribute));
        }
        if compiled(when).is_some_and(|when| ATTRIBUTES.into_iter().any(|attribute| when.asks_whether(attribute))) {
            return None;
        }
    }
    match step.params() {
        Ok(Params::RateLimit(params)) => Some(("params.key".to_owned(), presumed(params.key.as_deref()?)?)),
        Ok(Params::Validate(params)) => {
            let mut rules = params.rules.iter().enumerate();
            rules.find_map(|(index, rule)| Some((format!("params.rules[{index}].rule"), presumed(&rule.rule)?)))
        }
        _ => None,
    }
}
