//! The references in docs/ are up to date, and every example in them is valid.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::{fs, path::Path};

use postern_compile::{pipeline::compile, snapshot::FilterCode};
use postern_engine::policy::SCHEMAS;
use postern_model::File;
use postern_tools::reference;
use rcgen::{CertificateParams, KeyPair};

/// The resources that examples may refer to.
const RESOURCES: &str = include_str!("../../compile/tests/fixtures/examples.yaml");

#[test]
fn the_reference_is_current() {
    let pages = [
        ("policies.md", reference::policies()),
        ("resources.md", reference::resources()),
        ("expressions.md", reference::expressions()),
    ];
    for (name, page) in pages {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "docs/{name} is not current: run `cargo xtask docs`");
    }
}

#[test]
fn every_kind_has_an_example_and_all_of_them_fit_together() {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    let text: Vec<_> = postern_model::SCHEMAS.iter().map(|schema| schema.example).collect();
    let file = |name: &str, text: &str| File { name: name.to_owned(), bytes: text.as_bytes().to_vec() };
    let files = [
        file("examples.yaml", &text.join("---\n")),
        file("edge.crt", &certificate),
        file("ca.crt", &certificate),
        file("edge.key", &key.serialize_pem()),
    ];
    compile(&files, &FilterCode::new(Vec::new(), None)).unwrap_or_else(|error| panic!("{error}"));
    for schema in postern_model::SCHEMAS {
        let head = format!("apiVersion: postern/v1\nkind: {}\n", schema.name);
        assert!(schema.example.starts_with(&head), "{}", schema.example);
    }
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
