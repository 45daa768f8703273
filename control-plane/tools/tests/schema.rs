//! The JSON Schemas for editors accept everything that is admitted, and refuse what is clearly wrong.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use jsonschema::Validator;
use postern_engine::policy;
use postern_model::{File, KindSchema, SCHEMAS, schema};
use postern_tools::reference;
use serde_json::{Value, json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validator(schema: &Value) -> Validator {
    jsonschema::draft202012::meta::validate(schema).unwrap_or_else(|error| panic!("no schema: {error}"));
    jsonschema::draft202012::new(schema).unwrap()
}

/// The documents of a file, one after the other.
fn documents(text: &str) -> Vec<Value> {
    let read = |text: &str| {
        let file = File { name: "document".to_owned(), bytes: text.as_bytes().to_vec() };
        postern_model::read_document(&file).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
    };
    format!("\n{text}").split("\n---\n").map(read).filter(|document| !document.is_null()).collect()
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

/// Every admitted resource of the repository: in the examples, the references and the corpus.
fn admitted() -> Vec<Value> {
    let mut found = Vec::new();
    for path in yaml_files("control-plane/examples/quickstart") {
        found.extend(documents(&fs::read_to_string(path).unwrap()));
    }
    found.extend(SCHEMAS.iter().flat_map(|schema| documents(schema.example)));
    found.extend(policy::SCHEMAS.iter().flat_map(|schema| documents(&reference::example(schema))));
    for path in yaml_files("tests/cases") {
        let file = documents(&fs::read_to_string(&path).unwrap()).remove(0);
        found.extend(file["resources"].as_array().into_iter().flatten().cloned());
        for case in file["cases"].as_array().unwrap() {
            if let Some(chain) = case.get("chain").filter(|chain| !chain.is_null()) {
                let mut spec = chain.clone();
                spec["targetRef"] = json!({ "kind": "HTTPRoute", "name": "r" });
                found.push(document("RoutePolicy", spec));
            }
        }
    }
    found
}

fn document(kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": "postern/v1", "kind": kind, "metadata": { "name": "x" }, "spec": spec })
}

#[test]
fn whatever_is_admitted_fits_the_schema() {
    let all = validator(&schema::of_all_kinds());
    let one = |schema: &KindSchema| (schema.name, validator(&schema::of_kind(schema.name).unwrap()));
    let by_kind: BTreeMap<_, _> = SCHEMAS.iter().map(one).collect();
    let resources = admitted();
    for resource in &resources {
        for schema in [&all, &by_kind[resource["kind"].as_str().unwrap()]] {
            let errors: Vec<_> = schema.iter_errors(resource).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{resource:#}\n{}", errors.join("\n"));
        }
    }
    assert!(resources.len() > 300, "only {} resources were tried", resources.len());
    for schema in SCHEMAS {
        assert!(resources.iter().any(|resource| resource["kind"] == schema.name), "no {}", schema.name);
    }
}

/// Invalid resources that the schema refuses as admission does.
fn wrong() -> Vec<Value> {
    let listeners = json!([{ "name": "http", "port": 80 }]);
    let route = |more: Value| {
        let mut route = json!({ "name": "r", "service": "s" });
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        document("Gateway", json!({ "listeners": listeners, "routes": [route] }))
    };
    let service = |more: Value| {
        let mut spec = json!({ "endpoints": [{ "address": "127.0.0.1", "port": 80 }] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        document("Service", spec)
    };
    let step = |step: Value| {
        document("RoutePolicy", json!({ "targetRef": { "kind": "HTTPRoute", "name": "r" }, "request": [step] }))
    };
    let mut found = vec![
        json!({}),
        json!({ "kind": "Gateway" }),
        json!([]),
        document("Ingress", json!({})),
        document("Gateway", json!({ "listeners": listeners, "routes": [] })),
        document(
            "Gateway",
            json!({ "listeners": [{ "name": "http", "port": 0 }], "routes": [{ "name": "r", "service": "s" }] }),
        ),
        route(json!({ "servce": "s" })),
        route(json!({ "services": [{ "service": "s" }] })),
        route(json!({ "hosts": ["a b"] })),
        route(json!({ "match": { "path": { "exact": "/a", "prefix": "/b" } } })),
        route(json!({ "match": { "path": { "template": "a" } } })),
        route(json!({ "match": { "headers": [{ "name": "x-a" }] } })),
        route(json!({ "match": { "methods": ["get"] } })),
        route(json!({ "retries": { "on": ["never"] } })),
        route(json!({ "retries": { "on": ["5xx"], "perTryTimeout": "0s" } })),
        service(json!({ "protocol": "http3" })),
        service(json!({ "endpoints": [{ "address": "127.0.0.1", "port": 80, "tags": { "a": 1 } }] })),
        service(json!({ "tls": {} })),
        service(json!({ "tls": { "ca": "no certificate" } })),
        service(json!({ "tls": { "ca": { "path": "ca.pem" } } })),
        service(json!({ "healthCheck": { "interval": "1s" } })),
        service(json!({ "healthCheck": { "tcp": {}, "http": { "path": "/" } } })),
        document("Agent", json!({ "address": "a:1", "timeout": 5 })),
        document("Settings", json!({ "agentUnavailable": { "status": 200 } })),
        document("Consumer", json!({ "apiKeys": [{ "key": "a", "sha256": "b" }] })),
        step(json!({ "policy": "apiKeyAht", "params": {} })),
        step(json!({ "policy": "apiKeyAuth", "params": { "heder": "x-api-key" } })),
        step(json!({ "policy": "rateLimit", "params": { "requests": 1, "per": "soon" } })),
        step(json!({ "policy": "headers", "params": { "set": { "a b": "c" } } })),
        step(json!({ "policy": "headers", "mode": "quiet" })),
    ];
    for (field, value) in [("name", json!("a b")), ("mesh", json!("")), ("mesh", json!(1)), ("namespace", json!("a"))] {
        let mut wrong = service(json!({}));
        wrong["metadata"][field] = value;
        found.push(wrong);
    }
    let mut other = service(json!({}));
    other["apiVersion"] = json!("postern/v2");
    found.push(other);
    found
}

#[test]
fn what_is_plainly_wrong_does_not_fit_and_is_not_admitted() {
    let all = validator(&schema::of_all_kinds());
    for resource in wrong() {
        assert!(!all.is_valid(&resource), "fits the schema: {resource:#}");
        let bytes = resource.to_string().into_bytes();
        assert!(postern_model::read(&[File { name: "f".to_owned(), bytes }]).is_err(), "is admitted: {resource:#}");
    }
}

#[test]
fn says_what_fields_mean_and_what_leaving_them_out_means() {
    let service = schema::of_kind("Service").unwrap();
    let spec = &service["properties"]["spec"]["properties"];
    assert_eq!(spec["protocol"]["default"], "http1");
    assert_eq!(spec["healthCheck"]["properties"]["healthyThreshold"]["default"], 2);
    assert_eq!(spec["endpoints"]["description"], "Where requests can be sent.");
    assert_eq!(service.get("$defs"), None, "it has no steps");
}

#[test]
fn knows_no_other_kinds() {
    let error = schema::of_kind("Gatway").unwrap_err();
    assert_eq!(error.to_string(), "unknown kind `Gatway`: did you mean `Gateway`?");
}
