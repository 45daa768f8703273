//! Documented defaults are the real ones: writing out the default of an absent parameter does not change the plan.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeSet;

use postern_compile::{pipeline::compile, snapshot::FilterCode};
use postern_engine::{
    Phase,
    policy::SCHEMAS,
    schema::{Kind, Object, PolicySchema},
};
use postern_model::{File, read_document};
use serde_json::{Value, json};

/// The resources that steps may name.
const RESOURCES: &str = include_str!("fixtures/examples.yaml");

/// Parameters in addition to the examples, for defaults inside of objects that the examples lack.
const FURTHER: &[(&str, &str)] = &[
    ("auditLog", "{ to: { http: { service: collector } } }"),
    ("faultInjection", "{ delay: { duration: 1s }, abort: { status: 503 } }"),
    ("respond", "{ redirect: { to: /elsewhere } }"),
    ("roleCheck", "{ roles: [admin], scopes: [read] }"),
];

/// The path of a parameter.
type ParameterPath = Vec<&'static str>;

fn read(text: &str) -> Value {
    read_document(&File { name: "text".into(), bytes: text.as_bytes().to_vec() })
        .unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The parameters to test a policy with: those of its example, and further ones.
fn samples(schema: &PolicySchema) -> Vec<Value> {
    let steps = read(&format!("steps:\n{}", schema.example));
    let steps = steps["steps"].as_array().unwrap().iter().filter(|step| step["policy"] == schema.name);
    let examples = steps.map(|step| step.get("params").cloned().unwrap_or_else(|| json!({})));
    let further = FURTHER.iter().filter(|(policy, _)| *policy == schema.name).map(|(_, params)| read(params));
    examples.chain(further).collect()
}

/// Every parameter with a documented default, and the default.
fn defaults(object: &'static Object, at: &[&'static str]) -> Vec<(ParameterPath, &'static str)> {
    let mut found = Vec::new();
    for field in object.fields {
        let place = [at, &[field.name]].concat();
        if let Kind::Object(inner) = &field.kind {
            found.extend(defaults(inner, &place));
        }
        found.extend(field.default.map(|default| (place, default)));
    }
    found
}

/// The encoded plan of one step, or its errors.
fn plan(schema: &PolicySchema, params: &Value) -> Result<Vec<u8>, String> {
    let phase = if schema.phases.first() == Some(&Phase::Response) { "response" } else { "request" };
    let policy = json!({
        "apiVersion": "postern/v1",
        "kind": "RoutePolicy",
        "metadata": { "name": "policy" },
        "spec": { "targetRef": { "kind": "HTTPRoute", "name": "api" },
                  phase: [{ "policy": schema.name, "params": params }] },
    });
    let file = File { name: "resources".into(), bytes: format!("{RESOURCES}---\n{policy}\n").into_bytes() };
    let snapshot = compile(&[file], &FilterCode::new(Vec::new(), None)).map_err(|error| error.to_string())?;
    Ok(snapshot.plan().bytes().to_vec())
}

/// The object that contains the parameter. `None` if the sample has no such object.
fn holder<'a>(params: &'a mut Value, place: &[&str]) -> Option<&'a mut serde_json::Map<String, Value>> {
    let (_, above) = place.split_last()?;
    above.iter().try_fold(params, |at, name| at.get_mut(*name))?.as_object_mut()
}

/// Checks one default on one sample. `None` if the sample cannot tell.
fn check(schema: &PolicySchema, sample: &Value, place: &ParameterPath, default: &str) -> Option<Result<(), String>> {
    let (mut without, mut with) = (sample.clone(), sample.clone());
    let name = *place.last()?;
    holder(&mut without, place)?.remove(name);
    let without = plan(schema, &without).ok()?;
    let object = holder(&mut with, place)?;
    // A default that names another parameter is that parameter's value: `burst` is by default equal to `requests`.
    let number = object.get(default).filter(|value| value.is_number()).cloned();
    let value = number.unwrap_or_else(|| read(&format!("value: {default}"))["value"].clone());
    object.insert(name.to_owned(), value);
    let complaint = || format!("{}: `{}` is documented to be `{default}`, and is not", schema.name, place.join("."));
    // Some parameters are valid only with others: a redirect has a status of its own.
    let with = plan(schema, &with).ok()?;
    if with == without { Some(Ok(())) } else { Some(Err(complaint())) }
}

#[test]
fn every_documented_default_is_the_real_one() {
    let (mut checked, mut wrong) = (0, BTreeSet::new());
    for schema in SCHEMAS {
        let samples = samples(schema);
        for (place, default) in defaults(&schema.params, &[]) {
            // On every sample, since a default may depend on other parameters.
            let results: Vec<_> = samples.iter().filter_map(|sample| check(schema, sample, &place, default)).collect();
            if results.is_empty() {
                wrong.insert(format!("{}: no sample is fit to check `{}`", schema.name, place.join(".")));
            }
            checked += 1;
            wrong.extend(results.into_iter().filter_map(Result::err));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked >= 50, "only {checked} defaults are documented");
}
