//! The reference of policies is current, and every example in it works.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::{fs, path::Path};

use postern::{model::File, pipeline::compile, reference, snapshot::FilterCode};
use postern_engine::policy::SCHEMAS;

/// What examples may name.
const RESOURCES: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: alice }
spec: { apiKeys: [{ key: alice-key }], hmac: [{ keyId: alice, secret: a-secret-of-alice }], groups: [admins] }
---
apiVersion: postern/v1
kind: Issuer
metadata: { name: accounts }
spec: { issuer: https://accounts.example.com, jwksUri: https://accounts.example.com/jwks }
---
apiVersion: postern/v1
kind: Service
metadata: { name: collector }
spec: { endpoints: [{ address: collector.example.com, port: 80 }] }
";

#[test]
fn the_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(written == reference::policies(), "docs/policies.md is not current: run `cargo xtask docs`");
}

#[test]
fn every_example_becomes_a_plan() {
    for schema in SCHEMAS {
        let text = format!("{RESOURCES}---\n{}", reference::example(schema));
        let file = File { name: schema.name.to_owned(), bytes: text.into_bytes() };
        compile(&[file], &FilterCode::new(Vec::new(), None)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn every_policy_has_an_example_of_itself_and_says_how_it_ends() {
    for schema in SCHEMAS {
        assert!(schema.example.contains(&format!("policy: {}", schema.name)), "{}", schema.name);
        assert!(!schema.about.is_empty() && schema.params.fields.iter().all(|field| !field.about.is_empty()));
    }
}
