//! Attachment of Tracings: all that concern a node, merged.

use postern_model::{Resource, TRACING_CONF, Tracing, TracingConf};
use serde_json::{Map, Value as Json};

use super::{
    merge::{Fields, merge},
    scope::Scope,
};

/// What is traced at a group of nodes, with the origins.
#[derive(Debug)]
pub struct EffectiveTracing<'a> {
    /// The merged fields.
    pub conf: TracingConf,
    /// The resources that they are merged from, by priority.
    pub parts: Vec<&'a Resource<Tracing>>,
    /// The part that each field comes from.
    pub fields: Fields,
}

/// What is traced.
pub fn tracing<'a>(scope: &Scope<'a>) -> EffectiveTracing<'a> {
    let parts: Vec<_> = scope.tracings.clone();
    let (merged, fields) = merge(&TRACING_CONF, parts.iter().map(|part| conf(part)).enumerate());
    // Merging field by field keeps the type.
    let conf = serde_json::from_value(merged).unwrap_or_default();
    EffectiveTracing { conf, parts, fields }
}

fn conf(part: &Resource<Tracing>) -> Map<String, Json> {
    match serde_json::to_value(&part.spec.conf) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}
