//! Attachment of Timeouts: for each destination, the entries that concern it, merged.

use postern_model::{Resource, TIMEOUT_CONF, TargetRef, Timeout, Timeouts};
use serde_json::{Map, Value as Json};

use super::{
    merge::{Fields, merge},
    scope::Scope,
};

/// The time-outs for a destination, with their origins.
#[derive(Debug, Default)]
pub struct EffectiveTimeouts<'a> {
    /// The merged time-outs.
    pub conf: Timeouts,
    /// The entries that they are merged from, by priority: a resource, and an index in its `spec.to`.
    pub parts: Vec<(&'a Resource<Timeout>, usize)>,
    /// The part that each field comes from.
    pub fields: Fields,
}

/// The time-outs for a service on any route.
pub fn for_service<'a>(scope: &Scope<'a>, service: &str) -> EffectiveTimeouts<'a> {
    let selects = |target: &TargetRef| matches!(target, TargetRef::Mesh) || target.service() == Some(service);
    effective(scope, |timeout, to| timeout.spec.target_ref.route().is_none() && selects(to))
}

/// The time-outs for a declared route and its services.
pub fn for_route<'a>(scope: &Scope<'a>, route: &postern_model::Route) -> EffectiveTimeouts<'a> {
    let selects = |target: &TargetRef| match target {
        TargetRef::Mesh => true,
        target => target.route() == Some(&route.name) || route.goes_to(target.service()),
    };
    effective(scope, |timeout, to| {
        timeout.spec.target_ref.route().is_none_or(|target| target == route.name) && selects(to)
    })
}

fn effective<'a>(
    scope: &Scope<'a>,
    concerns: impl Fn(&Resource<Timeout>, &TargetRef) -> bool,
) -> EffectiveTimeouts<'a> {
    let mut parts = Vec::new();
    for timeout in &scope.timeouts {
        let entries = timeout.spec.to.iter().enumerate();
        parts.extend(
            entries.filter(|(_, entry)| concerns(timeout, &entry.target_ref)).map(|(entry, _)| (*timeout, entry)),
        );
    }
    let confs = parts.iter().enumerate().map(|(index, (timeout, entry))| (index, conf(timeout, *entry)));
    let (merged, fields) = merge(&TIMEOUT_CONF, confs);
    // Merging field by field keeps the type.
    let conf = serde_json::from_value(merged).unwrap_or_default();
    EffectiveTimeouts { conf, parts, fields }
}

fn conf(timeout: &Resource<Timeout>, entry: usize) -> Map<String, Json> {
    let conf = timeout.spec.to.get(entry).map(|entry| serde_json::to_value(&entry.conf));
    match conf {
        Some(Ok(Json::Object(fields))) => fields,
        _ => Map::new(),
    }
}
