//! The command line, with right and wrong input.

use std::process::{Command, Output};

use postern_tests::{ControlPlane, Site};

fn postern(arguments: &[&str]) -> Output {
    ControlPlane::command().unwrap().args(arguments).output().unwrap()
}

/// Runs a command that must fail, and compares its exit code and output.
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
        &["serve", "--config", config, "--strict", "--xds", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        1,
        "did you mean `RoutePolicy`",
    );
}

/// A filter that refuses every plan for this reason.
fn refusing_filter(directory: &std::path::Path, reason: &str) -> std::path::PathBuf {
    let size = reason.len();
    let text = format!(
        r#"(module
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "{reason}")
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 8192))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $log (i32.const 4) (i32.const 1024) (i32.const {size}))) (i32.const 0)))"#
    );
    let path = directory.join("refusing.wasm");
    std::fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
    path
}

#[test]
fn stops_a_policy_that_the_filter_refuses_at_the_gate_with_the_filters_reason() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(&directory.path().join("site"));
    let reason = "plan refused: keys are out of fashion [at=1;chain=0;phase=request;step=apiKeyAuth]";
    let filter = refusing_filter(directory.path(), reason);
    let (config, filter) = (site.directory().to_str().unwrap(), filter.to_str().unwrap());
    let expect = "spec.request[0]: the filter refuses this: keys are out of fashion";
    check_fails(&["validate", config, "--filter", filter], 1, expect);
    let addresses = ["--xds", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    check_fails(&[&["serve", "--config", config, "--strict", "--filter", filter][..], &addresses].concat(), 1, expect);
}

#[test]
fn validates_without_a_filter_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(&directory.path().join("site"));
    // Far from any filter.
    let program = directory.path().join("postern");
    std::fs::copy(postern_tests::control_plane::from_environment("POSTERN_BIN").unwrap(), &program).unwrap();
    let mut command = std::process::Command::new(program);
    let output = command.arg("validate").arg(site.directory()).env_remove("POSTERN_FILTER").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success()
            && said.contains("valid, 3 files")
            && said.contains("(no filter was found: checked by the engine alone)")
    );
}

#[test]
fn tries_expressions_out() {
    let directory = tempfile::tempdir().unwrap();
    let request = directory.path().join("request.yaml");
    std::fs::write(&request, "request: { method: POST, headers: { x-debug: 'on' } }\n").unwrap();
    let expression = "request.method in ['GET', 'HEAD'] || request.headers['x-debug'] == 'on'";
    let output = postern(&["eval", expression, "--input", request.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout == b"true\n", "{output:?}");
    let expect = "unknown attribute `request.metod`: did you mean `request.method`?\n  request.metod == 'GET'\n  ^\n";
    check_fails(&["eval", "request.metod == 'GET'"], 1, expect);
}

#[test]
fn explains_a_route_and_what_becomes_of_a_request_without_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(&directory.path().join("policies"));
    let request = directory.path().join("request.yaml");
    std::fs::write(&request, "{ path: /users/7, headers: { x-api-key: demo-key } }\n").unwrap();
    let (config, request) = (site.directory().to_str().unwrap(), request.to_str().unwrap());
    let place = ["explain", "--config", config, "--node", "e1", "--service", "edge", "--route", "users"];
    let output = postern(&[&place[..], &["--request", request]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for part in ["route  users", "params.header", "1 ✓ apiKeyAuth passes", "It goes upstream, as consumer mobile-app."]
    {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
}

#[test]
fn shows_in_the_demo_what_the_policies_decide() {
    let demo = env!("CARGO_BIN_EXE_postern-demo");
    let output = Command::new(demo).args(["--once", "--port", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for row in ["401     step apiKeyAuth: key_missing", "200     all steps passed, consumer mobile-app"] {
        assert!(said.contains(row), "`{row}` is not in:\n{said}");
    }
}

#[test]
fn runs_users_own_tests_on_the_filter() {
    let examples = postern_tests::site::repository().join("control-plane/examples/quickstart-tests");
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("junit.xml");
    let output = postern(&["test", examples.to_str().unwrap(), "--junit", junit.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.ends_with("3 passed, 0 failed\n"), "{output:?}");
    assert!(std::fs::read_to_string(junit).unwrap().contains("tests=\"3\" failures=\"0\""));
}

#[test]
fn says_how_a_users_test_fails_and_what_is_wrong_with_one() {
    let directory = tempfile::tempdir().unwrap();
    site(&directory.path().join("policies"));
    let tests = directory.path().join("tests");
    std::fs::create_dir(&tests).unwrap();
    let write = |tests_of: &str| {
        std::fs::write(tests.join("a.yaml"), format!("resources: ../policies\ntests:\n{tests_of}")).unwrap();
    };
    write(
        "  - { name: open, request: { route: users }, expect: { status: 200, step: headers, headers: { x-a: b }, \
         upstreamHeaders: { x-b: null } } }\n",
    );
    let output = postern(&["test", tests.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    for line in [
        "a.yaml: open",
        "status: expected `200`, got `401`",
        "step: expected `headers`, got `apiKeyAuth`",
        "header `x-a`: expected `b`, got nothing",
        "upstream header `x-b`: expected nothing, got `no request reached the upstream`",
        "decided: deny by step `apiKeyAuth` (key_missing), status 401",
        "0 passed, 1 failed",
    ] {
        assert!(said.contains(line), "`{line}` is not in:\n{said}");
    }
    write("  - { name: odd, request: { route: users, colour: red }, expect: { status: 200 } }\n");
    check_fails(&["test", tests.to_str().unwrap()], 1, "a.yaml: tests[0]: unknown field `colour`");
    write("  - { name: odd, request: { route: users }, expect: {} }\n");
    check_fails(&["test", tests.to_str().unwrap()], 1, "tests[0].expect: it expects nothing, and so cannot fail");
    write("  - { name: odd, request: { route: usres }, expect: { verdict: none } }\n");
    let slip = "`odd`: no resource names route `usres`: did you mean `users`?";
    check_fails(&["test", tests.to_str().unwrap()], 1, slip);
}

/// An issuer that publishes its keys, and routes that ask for its tokens.
const TOKENS: &str = "apiVersion: postern/v1
kind: Issuer
metadata: { name: accounts }
spec: { issuer: https://accounts.test, audiences: [shop], jwksUri: https://accounts.test/keys }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: tokens }
spec:
  targetRef: { kind: HTTPRoute, name: welcome }
  request:
    - { policy: jwtValidation, params: { issuers: [accounts] } }
    - { policy: roleCheck, params: { scopes: [read] } }
";

#[test]
fn signs_tokens_for_users_tests_and_finds_their_routes() {
    let directory = tempfile::tempdir().unwrap();
    let policies = site(&directory.path().join("policies"));
    policies.write("tokens.yaml", TOKENS).unwrap();
    let tests = directory.path().join("tests");
    std::fs::create_dir(&tests).unwrap();
    let run = |tests_of: &str| {
        std::fs::write(tests.join("a.yaml"), format!("resources: ../policies\n{tests_of}")).unwrap();
        let output = postern(&["test", tests.to_str().unwrap()]);
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let sent = |name: &str, request: &str, expect: &str| {
        format!("  - {{ name: {name}, request: {{ {request} }}, expect: {{ {expect} }} }}\n")
    };
    let token = |claims: &str| format!("path: /welcome, token: {{ issuer: accounts, claims: {{ {claims} }} }}");
    let all = [
        sent("good", &token("sub: alice, scope: read"), "verdict: allow, status: 200"),
        sent("no-scope", &token("sub: alice"), "verdict: deny, step: roleCheck, status: 403"),
        sent("old", &token("scope: read, exp: 1000000000"), "reason: token_expired, status: 401"),
        sent("other-audience", &token("scope: read, aud: other"), "status: 401"),
        sent("none", "path: /welcome", "status: 401, step: jwtValidation"),
        sent("nowhere", "path: /nowhere", "verdict: unrouted, status: 404"),
        sent("guarded", "path: //users/7", "step: apiKeyAuth, status: 401"),
    ];
    let (said, _) = run(&format!("tests:\n{}", all.concat()));
    assert!(said.ends_with("7 passed, 0 failed\n"), "{said}");

    let (_, error) = run(&format!("tests:\n{}", sent("odd", "path: /, token: { issuer: acounts }", "status: 200")));
    assert!(error.contains("`odd`: token.issuer: no Issuer `acounts`: did you mean `accounts`?"), "{error}");
    let stray = "keySets: { 'https://acounts.test/keys': { keys: [] } }\ntests: []\n";
    let (_, error) = run(stray);
    assert!(error.contains("no Issuer has this `jwksUri`: did you mean `https://accounts.test/keys`?"), "{error}");
    let bad = "keySets: { 'https://accounts.test/keys': { keys: [{ kty: EC }] } }\ntests: []\n";
    let (_, error) = run(bad);
    assert!(error.contains("keySets[https://accounts.test/keys]: keys[0]: "), "{error}");
}

#[test]
fn logs_what_the_level_says() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    let config = site.directory().to_str().unwrap();
    // A control plane that is asked something, and its log from then on.
    let log = |options: &[&str]| {
        let options: Vec<_> = options.iter().map(std::ffi::OsStr::new).collect();
        let control_plane = ControlPlane::start_with(site.directory(), &options).unwrap();
        control_plane.status().unwrap();
        control_plane.log().join("\n")
    };
    let told = log(&[]);
    assert!(told.contains(" INFO ") && !told.contains(" DEBUG "), "{told}");
    let told = log(&["--log", "debug"]);
    assert!(told.contains(" INFO ") && told.contains(" DEBUG "), "{told}");
    // One of its parts alone.
    assert!(!log(&["--log", "info,nothing=debug"]).contains(" DEBUG "));
    // Below the level, not even that it listens.
    site.replace("policies.yaml", "kind: RoutePolicy", "kind: RoutePolice").unwrap();
    let addresses = ["serve", "--config", config, "--strict", "--xds", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let told = |level: &[&str]| String::from_utf8(postern(&[&addresses[..], level].concat()).stderr).unwrap();
    assert!(told(&[]).contains("listening"));
    assert!(!told(&["--log", "warn"]).contains("listening"));
    check_fails(&[&addresses[..], &["--log", "postern=loud"]].concat(), 1, "`postern=loud` is not a log filter");
}

#[test]
fn says_which_unit_a_length_of_time_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    let policy = site.read("policies.yaml").unwrap();
    let step = "    - policy: rateLimit\n      params: { requests: 5, per: 10 }\n";
    site.write("policies.yaml", &policy.replacen("  request:\n", &format!("  request:\n{step}"), 1)).unwrap();
    let config = site.directory().to_str().unwrap();
    let message =
        "params.per: expected a length of time such as `250ms`, `1s` or `5m`, found `10`: did you mean `10s`?";
    check_fails(&["validate", config], 1, message);
}

#[test]
fn validates_a_single_file() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    let path = |file: &str| site.path(file).to_str().unwrap().to_owned();
    let output = postern(&["validate", &path("consumers.yaml")]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("valid, 1 file"), "{output:?}");
    let output = postern(&["validate", "-o", "yaml", &path("consumers.yaml")]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("valid: true"), "{output:?}");
    site.replace("consumers.yaml", "kind: Consumer", "kind: Consmer").unwrap();
    check_fails(&["validate", &path("consumers.yaml")], 1, "did you mean `Consumer`?");
    check_fails(&["validate", &path("nowhere.yaml")], 1, "nowhere.yaml");
}

#[test]
fn says_which_json_files_it_ignores() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    site.write("more.json", r#"{"apiVersion": "postern/v1", "kind": "Consumer", "metadata": {"name": "x"}}"#).unwrap();
    site.write("package.json", r#"{"name": "shop"}"#).unwrap();
    let output = postern(&["validate", site.directory().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("more.json is ignored: resources are read from `.yaml`"),
        "{said}"
    );
    assert!(!said.contains("package.json"), "{said}");
}

#[test]
fn bootstraps_a_node_of_a_control_plane_with_a_name() {
    let bootstrap = |xds: &str| postern(&["bootstrap", "--id", "a", "--service", "edge", "--xds", xds]);
    let document: serde_json::Value = serde_json::from_slice(&bootstrap("postern.internal:18000").stdout).unwrap();
    let cluster = &document["static_resources"]["clusters"][0];
    let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
    let address = &endpoint["address"]["socket_address"];
    assert_eq!((cluster["type"].as_str(), address["address"].as_str()), (Some("STRICT_DNS"), Some("postern.internal")));
    assert_eq!(address["port_value"], 18000);
    let document: serde_json::Value = serde_json::from_slice(&bootstrap("[::1]:18000").stdout).unwrap();
    assert_eq!(document["static_resources"]["clusters"][0]["type"], "STATIC");
    for wrong in ["postern.internal", "postern.internal:x", "300.1.1.1:80", "a b:80", ":80", "http://a:80"] {
        let arguments = ["bootstrap", "--id", "a", "--service", "b", "--xds", wrong];
        check_fails(&arguments, 2, "expected an address or a DNS name, and a port");
    }
}

#[test]
fn says_what_a_server_by_https_lacks() {
    check_fails(&["status", "--server", "https://postern.internal:18001"], 2, "does not serve HTTPS yet");
    check_fails(&["status", "--server", "ftp://a"], 2, "is no HTTP address");
    check_fails(&["status", "--server", "http://127.0.0.1:1/"], 1, "no control plane answers at 127.0.0.1:1");
}

#[test]
fn takes_flags_of_serve_from_a_file_and_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(&directory.path().join("policies"));
    let file = directory.path().join("serve.yaml");
    let (config, file_name) = (site.directory().to_str().unwrap(), file.to_str().unwrap());
    let check = |text: &str, code: i32, expect: &str| {
        std::fs::write(&file, text).unwrap();
        check_fails(&["serve", "--config-file", file_name], code, expect);
    };
    check("xdss: 127.0.0.1:0\n", 2, "serve.yaml:1:1: `serve` has no flag `xdss`: did you mean `xds`?");
    check("strict: maybe\n", 2, "`strict` is `true` or `false`");
    check("[]\n", 2, "expected flags of `serve`");
    check("xds: [a, b]\n", 2, "`xds` has one value");
    // What cannot be bound shows which address was taken: the file's, the environment's, or the command line's.
    let text = format!("config: {config}\nxds: 192.0.2.1:1\nhttp: 127.0.0.1:0\n");
    check(&text, 1, "192.0.2.1:1 is not a loopback address");
    let run = |arguments: &[&str], xds: &str| {
        let mut command = ControlPlane::command().unwrap();
        command.args(arguments).env("POSTERN_XDS", xds).env("POSTERN_CONFIG_FILE", file_name);
        String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned()
    };
    assert!(run(&["serve"], "192.0.2.2:2").contains("192.0.2.2:2 is not a loopback address"));
    assert!(run(&["serve", "--xds", "192.0.2.3:3"], "192.0.2.2:2").contains("192.0.2.3:3 is not a loopback address"));
    let help = String::from_utf8_lossy(&postern(&["serve", "--help"]).stdout).into_owned();
    let flags = help.lines().filter(|line| line.trim_start().starts_with("--")).count();
    let variables = help.split_whitespace().filter(|word| word.starts_with("POSTERN_") && word.contains('=')).count();
    assert!(flags > 20 && variables >= flags, "{flags} flags, {variables} variables:\n{help}");
}

/// The candidates of a shell for a command line whose last word is under way.
fn completed(words: &[&str], server: &str) -> Vec<String> {
    let mut command = ControlPlane::command().unwrap();
    command.env("COMPLETE", "bash").env("POSTERN_SERVER", server).env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_COMPLETE_COMP_TYPE", "9");
    command.env("_CLAP_COMPLETE_SPACE", "false").args(["--", "postern"]).args(words);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn completes_kinds_names_and_revisions() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    let server = control_plane.http().to_string();
    let kinds = completed(&["get", "Rou"], &server);
    assert!(kinds.iter().any(|it| it == "RoutePolicy"), "{kinds:?}");
    assert_eq!(completed(&["get", "Gateway/"], &server), ["Gateway/edge"]);
    assert_eq!(completed(&["rollback", ""], &server).first().map(String::as_str), Some("1"));
    // Without a control plane there are kinds still, at once.
    assert!(completed(&["get", "Gate"], "127.0.0.1:1").iter().any(|it| it == "Gateway"));
    assert_eq!(completed(&["get", "Gateway/"], "127.0.0.1:1"), Vec::<String>::new());
    let script = postern(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&script.stdout).contains("COMPLETE="), "{script:?}");
}

#[test]
fn means_the_same_by_o_everywhere() {
    for format in ["json", "yaml", "text"] {
        assert_eq!(String::from_utf8_lossy(&postern(&["eval", "1 + 1", "-o", format]).stdout).trim(), "2");
    }
    for command in ["status", "nodes", "get", "events", "revisions", "explain", "simulate", "validate", "eval"] {
        let help = String::from_utf8_lossy(&postern(&[command, "--help"]).stdout).into_owned();
        assert!(help.contains("-o, --output") && help.contains("json") && help.contains("yaml"), "{command}:\n{help}");
    }
}
