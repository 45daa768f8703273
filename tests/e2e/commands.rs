//! The command line, with right and wrong input.

use std::process::Output;

use postern_tests::{ControlPlane, Site};

fn postern(arguments: &[&str]) -> Output {
    ControlPlane::command().unwrap().args(arguments).output().unwrap()
}

/// Runs a command that must fail, and compares what it says.
fn check_fails(arguments: &[&str], code: i32, expect: &str) {
    let output = postern(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(expect), "{said}");
}

fn site(directory: &std::path::Path) -> Site {
    Site::quickstart(directory, ([127, 0, 0, 1], 1).into(), 1).unwrap()
}

#[test]
fn validates_a_good_directory() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    let output = postern(&["validate", site.directory().to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("valid, 3 files"));
}

#[test]
fn prints_schemas_for_editors() {
    let all = postern(&["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let one = postern(&["schema", "Gateway"]);
    let schema: serde_json::Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(schema["properties"]["kind"]["enum"][0], "Gateway");
    check_fails(&["schema", "Servce"], 1, "unknown kind `Servce`: did you mean `Service`?");
}

#[test]
fn reports_every_error_of_a_bundle_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    site.replace("policies.yaml", "policy: apiKeyAuth", "policy: apiKeyAuht").unwrap();
    site.replace("gateway.yaml", "service: backend", "service: backend2").unwrap();
    site.replace("consumers.yaml", "sha256: ", "sha256: x").unwrap();
    let output = postern(&["validate", site.directory().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    for part in [
        "policies.yaml:8:",
        "did you mean `apiKeyAuth`",
        "gateway.yaml:13:",
        "did you mean `backend`",
        "consumers.yaml:8:",
    ] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
}

#[test]
fn refuses_to_start_on_wrong_input() {
    let directory = tempfile::tempdir().unwrap();
    let good = site(directory.path());
    let config = good.directory().to_str().unwrap();
    check_fails(&["serve"], 2, "--config <DIR>");
    check_fails(&["serve", "--config", "/nowhere", "--xds", "127.0.0.1:0", "--http", "127.0.0.1:0"], 1, "/nowhere");
    check_fails(&["serve", "--config", config, "--xds", "0.0.0.0:0"], 1, "0.0.0.0:0 is not a loopback address");
    check_fails(&["serve", "--config", config, "--filter", config], 1, "cannot read the filter");
    let text = good.path("policies.yaml");
    check_fails(&["serve", "--config", config, "--filter", text.to_str().unwrap()], 1, "is not a WebAssembly module");
    good.replace("policies.yaml", "kind: RoutePolicy", "kind: RoutePolice").unwrap();
    check_fails(
        &["serve", "--config", config, "--xds", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        1,
        "did you mean `RoutePolicy`",
    );
}
