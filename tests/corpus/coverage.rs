//! Which parameters of which policies the cases use, so that no parameter is untested.

use std::collections::BTreeSet;

use postern_engine::{
    policy::SCHEMAS,
    schema::{Kind, Object},
};
use serde_json::Value;

/// The parameters that no case has, as `policy.parameter`.
pub fn untried<'a>(chains: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut tried = BTreeSet::new();
    for chain in chains {
        for step in ["request", "response"].iter().filter_map(|phase| chain[phase].as_array()).flatten() {
            let name = step["policy"].as_str().unwrap_or_default();
            if let Some(schema) = SCHEMAS.iter().find(|schema| schema.name == name) {
                note(&schema.params, &step["params"], name, &mut tried);
            }
        }
    }
    let mut declared = Vec::new();
    SCHEMAS.iter().for_each(|schema| declare(&schema.params, schema.name, &mut declared));
    declared.into_iter().filter(|parameter| !tried.contains(parameter)).collect()
}

fn declare(object: &Object, path: &str, declared: &mut Vec<String>) {
    for field in object.fields {
        let path = format!("{path}.{}", field.name);
        if let Some(inner) = inside(&field.kind) {
            declare(inner, &path, declared);
        }
        declared.push(path);
    }
}

fn note(object: &Object, value: &Value, path: &str, tried: &mut BTreeSet<String>) {
    for field in object.fields {
        let (value, path) = (&value[field.name], format!("{path}.{}", field.name));
        if value.is_null() {
            continue;
        }
        if let Some(inner) = inside(&field.kind) {
            let values: Vec<&Value> = match value {
                Value::Array(items) => items.iter().collect(),
                value => vec![value],
            };
            values.into_iter().for_each(|value| note(inner, value, &path, tried));
        }
        tried.insert(path);
    }
}

/// The mapping with named fields that a value is, or a list is of.
fn inside(kind: &Kind) -> Option<&'static Object> {
    match kind {
        Kind::Object(object) => Some(object),
        Kind::List { item, .. } => inside(item),
        _ => None,
    }
}
