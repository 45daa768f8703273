//! JSON Schemas (2020-12) of the kinds, for editors. Generated from the schemas that resources are checked against, and
//! never stricter than these. The kinds' own rules are not expressed.

use postern_base::diagnostic::{quote, suggestion};
use postern_engine::{
    policy::SCHEMAS as POLICIES,
    schema::{Field, Kind, Object, PolicySchema},
};
use serde_json::{Map, Value as Json, json};

use crate::{KindSchema, SCHEMAS, attachment};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// An unknown kind was asked for.
#[derive(Debug, thiserror::Error)]
#[error("unknown kind {}{}", quote(.0), suggestion(.0, SCHEMAS.iter().map(|schema| schema.name)))]
pub struct UnknownKind(String);

/// A schema for documents of any kind.
pub fn of_all_kinds() -> Json {
    let names: Vec<_> = SCHEMAS.iter().map(|schema| schema.name).collect();
    let by_kind: Vec<_> = names.iter().map(|name| case("kind", name, &json!({ "$ref": pointer(name) }))).collect();
    let mut definitions: Map<_, _> = SCHEMAS.iter().map(|schema| (schema.name.to_owned(), document(schema))).collect();
    definitions.extend(policies());
    json!({
        "$schema": DIALECT,
        "title": "Postern resources",
        "type": "object",
        "properties": { "kind": { "enum": names, "description": "The kind of the resource." } },
        "required": ["kind"],
        "allOf": by_kind,
        "$defs": definitions,
    })
}

/// A schema for documents of one kind. An error if there is no such kind.
pub fn of_kind(kind: &str) -> Result<Json, UnknownKind> {
    let schema = SCHEMAS.iter().find(|schema| schema.name == kind).ok_or_else(|| UnknownKind(kind.to_owned()))?;
    let named = document(schema).with("$schema", DIALECT).with("title", schema.name);
    let definitions = has_params(&schema.document).then(|| policies().collect::<Map<_, _>>());
    Ok(named.with_some("$defs", definitions))
}

fn document(schema: &KindSchema) -> Json {
    object(&schema.document).with("description", schema.about)
}

/// Adds keywords to a schema.
trait With {
    fn with(self, keyword: &str, value: impl Into<Json>) -> Self;

    /// Like [`With::with`], if there is a value.
    fn with_some(self, keyword: &str, value: Option<impl Into<Json>>) -> Self;
}

impl With for Json {
    fn with(mut self, keyword: &str, value: impl Into<Json>) -> Self {
        if let Self::Object(keywords) = &mut self {
            keywords.insert(keyword.to_owned(), value.into());
        }
        self
    }

    fn with_some(self, keyword: &str, value: Option<impl Into<Json>>) -> Self {
        match value {
            Some(value) => self.with(keyword, value),
            None => self,
        }
    }
}

/// The parameters of all policies, by the names that [`pointer`] refers to.
fn policies() -> impl Iterator<Item = (String, Json)> {
    let relaxed = |policy: &PolicySchema| relax(object(&policy.params)).with("description", policy.about);
    POLICIES.iter().map(move |policy| (definition(policy), relaxed(policy)))
}

/// Makes all parameters optional, since a step may get them from another step of its name by merging. Items of lists
/// are not relaxed, since lists are merged whole.
fn relax(mut schema: Json) -> Json {
    if let Json::Object(keywords) = &mut schema {
        keywords.remove("required");
        keywords.remove("oneOf");
        if let Some(Json::Object(properties)) = keywords.get_mut("properties") {
            for property in properties.values_mut() {
                *property = relax(property.take());
            }
        }
    }
    schema
}

/// The name of a policy's definition. The dot keeps it apart from names of kinds.
fn definition(policy: &PolicySchema) -> String {
    format!("policy.{}", policy.name)
}

fn pointer(definition: &str) -> String {
    format!("#/$defs/{definition}")
}

/// A conditional schema: if `field` equals `value`, then `then` applies.
fn case(field: &str, value: &str, then: &Json) -> Json {
    json!({ "if": { "properties": { field: { "const": value } }, "required": [field] }, "then": then })
}

fn object(object: &Object) -> Json {
    let has_steps = object.fields.iter().any(|field| matches!(field.kind, Kind::Params));
    let described = |field: &Field| match field.name {
        // Only in a step does `policy` name a policy.
        "policy" if has_steps => property(field).with("enum", policy_names()),
        _ => property(field),
    };
    let properties: Map<_, _> = object.fields.iter().map(|field| (field.name.to_owned(), described(field))).collect();
    let required: Vec<_> = object.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let one_of: Vec<_> = object.exactly_one_of.iter().map(|name| json!({ "required": [name] })).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
        .with_some("required", (!required.is_empty()).then_some(required))
        .with_some("oneOf", (!one_of.is_empty()).then_some(one_of))
        .with_some("allOf", has_steps.then(|| POLICIES.iter().map(parameters).collect::<Vec<_>>()))
}

fn policy_names() -> Vec<&'static str> {
    POLICIES.iter().map(|policy| policy.name).collect()
}

/// The condition on the parameters of a step with this policy.
fn parameters(policy: &PolicySchema) -> Json {
    let reference = json!({ "$ref": pointer(&definition(policy)) });
    case("policy", policy.name, &json!({ "properties": { "params": reference } }))
}

fn property(field: &Field) -> Json {
    let default = field.default.map(|default| match field.kind {
        // Of the type that a user writes: numbers and booleans are not strings.
        Kind::Integer { .. } | Kind::Percent | Kind::Boolean => {
            serde_json::from_str(default).unwrap_or_else(|_| default.into())
        }
        _ => Json::from(default),
    });
    value(&field.kind).with("description", field.about).with_some("default", default)
}

fn value(kind: &Kind) -> Json {
    match kind {
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Percent => json!({ "type": "number", "minimum": 0, "maximum": 100 }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Object(schema) => object(schema),
        Kind::List { item, at_least } => json!({ "type": "array", "items": value(item), "minItems": at_least }),
        Kind::Map { key, value: item } => {
            json!({ "type": "object", "propertyNames": value(key), "additionalProperties": value(item) })
        }
        Kind::Size => json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": u32::MAX },
            { "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)?$" },
        ] }),
        Kind::PortTemplate => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65535 },
            { "type": "string", "minLength": 1 },
        ] }),
        Kind::JsonSchema => json!({ "type": ["object", "boolean"] }),
        Kind::JwkSet => json!({ "type": ["object", "string"] }),
        Kind::Pem => json!({ "anyOf": [
            { "type": "string", "pattern": "-----BEGIN " },
            object(&attachment::REFERENCE),
        ] }),
        Kind::Params => json!({ "type": "object" }),
        Kind::EnvoyMessage => json!({ "type": "object", "required": ["@type"] }),
        text => string(text),
    }
}

/// A string. The patterns mean the same in all regular expression dialects of validators.
fn string(kind: &Kind) -> Json {
    let pattern = match kind {
        Kind::Name => "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$",
        Kind::RouteName => "^[A-Za-z0-9/][A-Za-z0-9._/:*{}~-]{0,252}$",
        Kind::HeaderName | Kind::EditedHeader(_) => "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
        Kind::HeaderValue => "^[^\\u0000-\\u0008\\u000A-\\u001F\\u007F]*$",
        Kind::Method => "^[!#$%&'*+.^_`|~0-9A-Z-]+$",
        Kind::Path | Kind::PathTemplate => "^/[^ ?#\\u0000-\\u001F\\u007F-\\u009F]*$",
        Kind::Host => "^(\\*|(\\*\\.)?[A-Za-z0-9_.-]+)$",
        Kind::Address => "^[A-Za-z0-9_.:-]+$",
        Kind::IpAddress => "^[0-9A-Fa-f.:]+$",
        Kind::Cidr => "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$",
        Kind::Sha256 => "^[0-9A-Fa-f]{64}$",
        Kind::Duration => "^[0-9]*[1-9][0-9]*(ms|s|m|h|d)$",
        Kind::Timeout => "^[0-9]+(ms|s|m|h|d)$",
        Kind::Regex => return json!({ "type": "string", "minLength": 1, "format": "regex" }),
        _ => return json!({ "type": "string" }),
    };
    json!({ "type": "string", "pattern": pattern })
}

fn has_params(schema: &Object) -> bool {
    fn within(kind: &Kind) -> bool {
        match kind {
            Kind::Params => true,
            Kind::Object(schema) => has_params(schema),
            Kind::List { item, .. } => within(item),
            Kind::Map { value, .. } => within(value),
            _ => false,
        }
    }
    schema.fields.iter().any(|field| within(&field.kind))
}
