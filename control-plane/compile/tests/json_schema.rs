//! Compares the engine's JSON Schema with another implementation: pairs of schemas and instances with the verdicts of
//! Python's `jsonschema` (tests/cases/generate/json_schema.py).

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{fs, path::Path, sync::Arc};

use postern_compile::{pipeline::compile, snapshot::FilterCode};
use postern_engine::{Ask, Inputs, Plan, Run, Turn, Verdict, agent::Health, host::Alone};
use postern_model::File;
use serde_json::{Value, json};

fn plan(schema: &Value) -> Arc<Plan> {
    let step = json!({ "policy": "jsonSchema", "params": { "schema": schema } });
    let document = json!({
        "apiVersion": "postern/v1",
        "kind": "RoutePolicy",
        "metadata": { "name": "p" },
        "spec": { "targetRef": { "kind": "HTTPRoute", "name": "r" }, "request": [step] },
    });
    let file = File { name: "pair".into(), bytes: document.to_string().into_bytes() };
    let snapshot =
        compile(&[file], &FilterCode::new(Vec::new(), None)).unwrap_or_else(|error| panic!("{schema}: {error}"));
    Arc::new(Plan::load(snapshot.plan().bytes()).unwrap())
}

/// Whether a body is valid, or the reason why not.
fn decide(plan: &Arc<Plan>, body: &str) -> Result<(), &'static str> {
    let mut run = Run::request(plan, "r", &Health::default()).unwrap();
    loop {
        match run.advance(&mut Alone::default()) {
            Turn::Ask(Ask::Inputs(_)) => {
                let mut inputs = Inputs::default();
                inputs.request_headers = [("content-type", "application/json")].into_iter().collect();
                inputs.body = body.into();
                run.give(inputs);
            }
            Turn::Ask(other) => panic!("{other:?}"),
            Turn::Done => {
                let decision = run.take_decision();
                return match decision.verdict {
                    Verdict::Continue(_) => Ok(()),
                    _ => Err(decision.reason.unwrap()),
                };
            }
        }
    }
}

#[test]
fn agrees_with_another_implementation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/json-schema-pairs.json");
    let pairs: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for entry in &pairs {
        let plan = plan(&entry["schema"]);
        for pair in entry["instances"].as_array().unwrap() {
            let (instance, fits) = (pair[0].as_str().unwrap(), pair[1].as_bool().unwrap());
            let expect = if fits { Ok(()) } else { Err("schema_violated") };
            let found = decide(&plan, instance);
            count += 1;
            if found != expect {
                wrong.push(format!("{} on {instance}: {found:?}", entry["schema"]));
            }
        }
    }
    println!("{count} pairs");
    assert!(wrong.is_empty(), "{} of {count} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 900, "there are only {count} pairs");
}
