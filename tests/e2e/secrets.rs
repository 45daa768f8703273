//! Secrets where nobody needs them: what an Envoy's administrator sees of a plan, which secrets a plan has, and who can
//! read what is delivered to files.

use std::{ffi::OsStr, fs, os::unix::fs::MetadataExt, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use memchr::memmem;
use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, site::free_port, wait};
use serde_json::{Value, json};

use crate::world::{KEY, World, users_with};

/// Whether a text is anywhere in a document, as it is or in base64.
fn shows(document: &Value, text: &str) -> bool {
    match document {
        Value::String(string) => {
            let decoded = BASE64_STANDARD.decode(string).unwrap_or_default();
            string.contains(text) || memmem::find(&decoded, text.as_bytes()).is_some()
        }
        Value::Array(items) => items.iter().any(|item| shows(item, text)),
        Value::Object(fields) => fields.values().any(|value| shows(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Every dump that the admin interface has.
#[track_caller]
fn assert_redacted(envoy: &Envoy, what: &str, known: &[&str]) {
    for path in ["/config_dump", "/config_dump?include_eds", "/config_dump?resource=ecds_filters"] {
        let dump = Client::new(envoy.admin()).get(path).unwrap().body;
        let dump: Value = serde_json::from_str(&dump).unwrap();
        assert!(dump.to_string().contains("GenericSecret"), "{what} {path}: no filter is in the dump");
        assert!(shows(&dump, "[redacted]"), "{what} {path}: nothing is redacted");
        for text in known {
            assert!(!shows(&dump, text), "{what} {path}: `{text}` of the plan is in the dump");
        }
    }
}

#[test]
fn hole_10_no_dump_of_an_envoy_shows_a_plan() {
    let world = World::start();
    assert_eq!(world.send(&users_with(KEY)).status, 200, "the plan is in force");
    assert_redacted(&world.envoy, "whole", &["x-guarded-by"]);
    world.site.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: again").unwrap();
    wait::until_true("the update", || Ok(world.send(&users_with(KEY)).echoed("x-guarded-by") == ["again"])).unwrap();
    assert_redacted(&world.envoy, "whole, updated", &["x-guarded-by"]);
    world.assert_no_vm_failure();
}

const OVERLAY: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: app }
spec:
  hmac: [{ keyId: app-1, secret: a-secret-that-signs-requests-0123456789 }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: p }
spec:
  targetRef: { kind: Mesh }
  request:
    - policy: hmacAuth
";

#[test]
fn hole_10_no_dump_of_an_envoy_with_its_own_configuration_shows_a_plan() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    fs::write(directory.path().join("p.yaml"), OVERLAY).unwrap();
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let port = free_port().unwrap();
    let ports = [
        ("port_value: 10001", format!("port_value: {}", upstream.address().port())),
        ("port_value: 10000", format!("port_value: {port}")),
    ];
    let replace: Vec<_> = ports.iter().map(|(from, to)| (*from, to.as_str())).collect();
    let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
    let guarded = || Ok(Client::new(([127, 0, 0, 1], port).into()).get("/users/7")?.status == 401);
    wait::until_true("the policy", guarded).unwrap();
    assert_redacted(&envoy, "overlay", &["a-secret-that-signs-requests", "app-1"]);
}

const MESH: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: app }
spec:
  apiKeys: [{ key: a-key-of-the-app }]
  hmac: [{ keyId: app-1, secret: a-secret-that-signs-requests-0123456789 }]
---
apiVersion: postern/v1
kind: Issuer
metadata: { name: accounts }
spec:
  issuer: https://accounts.example
  jwks: { keys: [{ kty: oct, alg: HS256, kid: k, k: YS1zZWNyZXQtdGhhdC1zaWducy10b2tlbnMtMDEyMzQ1Njc4OQ }] }
---
apiVersion: postern/v1
kind: Issuer
metadata: { name: others }
spec:
  issuer: https://others.example
  jwks: { keys: [{ kty: oct, alg: HS256, kid: k, k: b3RoZXItc2VjcmV0LXRoYXQtc2lnbnMtdG9rZW5zLTAxMjM0NQ }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: signed }
spec:
  targetRef: { kind: Service, name: signed }
  request: [{ policy: hmacAuth }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: tokens }
spec:
  targetRef: { kind: Service, name: tokens }
  request: [{ policy: jwtValidation, params: { issuers: [others] } }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: keys }
spec:
  targetRef: { kind: Service, name: keys }
  request: [{ policy: apiKeyAuth, params: { header: x-api-key } }]
";

const SIGNS: &str = "a-secret-that-signs-requests";
const TOKENS: &str = "a-secret-that-signs-tokens";
const OTHERS: &str = "other-secret-that-signs-tokens";

#[test]
fn hole_10_a_plan_has_only_the_secrets_that_its_steps_need() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("p.yaml"), MESH).unwrap();
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let check = |service: &str, step: &str, expect: &[&str]| {
        let node = json!({ "node": { "id": "edge-1", "cluster": service }, "resourceNames": ["postern"] }).to_string();
        let poll = Request::new("POST", "/v3/discovery:extension_configs");
        let poll = poll.host("postern").header("content-type", "application/json").body(node);
        let answer = Client::new(control_plane.http()).send(&poll).unwrap();
        let plan: Value = serde_json::from_str(&answer.body).unwrap();
        assert!(shows(&plan, step), "{service}: {}", answer.status);
        let found: Vec<_> = [SIGNS, TOKENS, OTHERS].into_iter().filter(|secret| shows(&plan, secret)).collect();
        assert_eq!(found, expect, "for a node of `{service}`");
    };
    check("signed", "hmacAuth", &[SIGNS]);
    check("tokens", "jwtValidation", &[OTHERS]);
    check("keys", "apiKeyAuth", &[]);
    check("elsewhere", "", &[]);
}

#[test]
fn hole_10_delivered_files_are_for_their_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    let (delivered, state) = (directory.path().join("delivered"), directory.path().join("state"));
    let options = [OsStr::new("--deliver-to"), delivered.as_os_str(), OsStr::new("--state"), state.as_os_str()];
    let _control_plane = ControlPlane::start_with(site.directory(), &options).unwrap();
    wait::until_true("the files", || Ok(delivered.join("lds.json").exists())).unwrap();
    let mut seen = 0;
    for root in [&delivered, &state] {
        assert_private(root, &mut seen);
    }
    assert!(seen > 8, "{seen} files and folders");
}

fn assert_private(path: &Path, seen: &mut usize) {
    let metadata = fs::metadata(path).unwrap();
    assert_eq!(metadata.mode() & 0o077, 0, "{} has mode {:o}", path.display(), metadata.mode());
    *seen += 1;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            assert_private(&entry.unwrap().path(), seen);
        }
    }
}
