//! Operating a running control plane from a terminal: apply, status, revisions, rollback, rollout, bootstrap; with right
//! and wrong input.

use std::{net::SocketAddr, process::Output};

use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, site::free_port, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{KEY, users_with};

/// A control plane, Envoys that were started with what `postern bootstrap` prints, and a copy of the resources to edit.
pub struct Shop {
    pub control_plane: ControlPlane,
    pub envoys: Vec<Envoy>,
    pub served: Site,
    pub edited: Site,
    _upstream: Upstream,
    _directory: TempDir,
}

impl Shop {
    pub fn open(nodes: &[&[&str]], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let served = Site::quickstart(directory.path().join("served"), upstream.address(), 0).unwrap();
        let port = served.listener().port();
        let edited = Site::quickstart(directory.path().join("edited"), upstream.address(), port).unwrap();
        let state = directory.path().join("state");
        let control_plane = ControlPlane::start_with_state(served.directory(), &state, options).unwrap();
        let envoys = nodes.iter().map(|arguments| envoy(control_plane.xds(), arguments)).collect();
        let shop = Self { control_plane, envoys, served, edited, _upstream: upstream, _directory: directory };
        let expect = nodes.len();
        let ready = |status: &Value| {
            let nodes = status["nodes"].as_array().unwrap();
            let running = |node: &Value| node["types"]["extensionConfig"]["running"].is_string();
            status["rollout"]["state"] == "completed" && nodes.iter().filter(|node| running(node)).count() == expect
        };
        // Without nodes, nobody acknowledges anything.
        if expect > 0 {
            shop.control_plane.wait_for_status("all nodes", ready).unwrap();
        }
        shop
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        let server = self.control_plane.http().to_string();
        let mut command = ControlPlane::command().unwrap();
        command.args(arguments).env("POSTERN_SERVER", server).env("USER", "alice").output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail, and returns its error output.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    pub fn edited(&self) -> &str {
        self.edited.directory().to_str().unwrap()
    }

    /// Whether requests are eventually decided so. An Envoy acknowledges a filter before all of its workers have it.
    pub fn answers(&self, value: &str) -> bool {
        let decides = || {
            let answer = Client::new(self.served.listener()).send(&users_with(KEY))?;
            Ok(answer.header("x-content-type-options") == Some(value))
        };
        wait::until_true(value, decides).is_ok()
    }
}

fn envoy(xds: SocketAddr, arguments: &[&str]) -> Envoy {
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let mut command = ControlPlane::command().unwrap();
    let addresses = [xds, admin].map(|address| address.to_string());
    command.args(["bootstrap", "--service", "edge", "--xds", &addresses[0], "--admin", &addresses[1]]).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Envoy::from_bootstrap(&String::from_utf8(output.stdout).unwrap(), admin).unwrap()
}

fn post(path: &str, body: &str) -> Request {
    Request::new("POST", path).header("content-type", "application/json").body(body)
}

#[test]
fn rolls_back_to_a_previous_policy_version_in_case_of_issues_with_the_latest() {
    let shop = Shop::open(&[&["--id", "edge-1"], &["--id", "edge-2"]], &[]);
    shop.edited.replace("policies.yaml", "nosniff", "second").unwrap();
    let said = shop.says(&["apply", shop.edited(), "--wait", "-m", "try something"]);
    assert!(said.starts_with("revision 2 created\n"), "{said}");
    assert!(said.contains("2 of 2 nodes") && said.contains("revision 2 runs on 2 nodes"), "{said}");
    assert!(shop.answers("second"));

    let table = shop.says(&["revisions"]);
    let lines: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["REVISION", "STATE", "DIGEST", "AGE", "DOCUMENTS", "AUTHOR", "MESSAGE"]);
    assert_eq!(lines[1][..3], ["2", "in", "force"]);
    assert_eq!(lines[1][6..], ["alice", "try", "something"]);
    assert_eq!((&lines[2][..2], lines[2][5]), (&["1", "superseded"][..], "directory"));
    let status = shop.says(&["status"]);
    assert!(status.contains("revision  2 (") && status.contains("completed, step 1 of 1; last good: 2"), "{status}");
    assert!(status.contains("edge-1") && status.contains("edge-2"), "{status}");

    let said = shop.says(&["rollback", "1", "--wait"]);
    assert!(said.starts_with("revision 3 created\n"), "{said}");
    assert!(shop.answers("nosniff"));
    let revisions: Value = serde_json::from_str(&shop.says(&["revisions", "-o", "json"])).unwrap();
    assert_eq!(revisions[0]["message"], "rollback to revision 1");
    assert_eq!(revisions[0]["digest"], revisions[2]["digest"], "the same content");
    assert!(
        shop.fails(&["rollback", "9"]).contains("revision 9 is not kept: `postern revisions` lists those that are")
    );
}

#[test]
fn knows_if_a_policy_was_successfully_compiled_and_validated() {
    let shop = Shop::open(&[&["--id", "edge-1"], &["--id", "edge-2"]], &[]);
    assert_eq!(shop.says(&["apply", shop.edited(), "--dry-run"]), "valid\n");
    assert_eq!(shop.says(&["apply", shop.edited()]), "nothing to do: revision 1 says the same\n");
    shop.edited.replace("policies.yaml", "policy: apiKeyAuth", "policy: apiKeyAuht").unwrap();
    for arguments in [&["apply", shop.edited()][..], &["apply", shop.edited(), "--dry-run"]] {
        let said = shop.fails(arguments);
        assert!(said.contains("policies.yaml:8:") && said.contains("did you mean `apiKeyAuth`"), "{said}");
    }
    let status: Value = serde_json::from_str(&shop.says(&["status", "-o", "json"])).unwrap();
    assert_eq!(status["rollout"]["candidate"], 1, "nothing was changed");
    let mut client = Client::new(shop.control_plane.http());
    let revision: Value = serde_json::from_str(&client.get("/api/v1/revisions/1").unwrap().body).unwrap();
    let conditions: Vec<_> = revision["conditions"].as_array().unwrap().iter().collect();
    let shown: Vec<_> = conditions.iter().map(|found| json!([found["type"], found["node"], found["status"]])).collect();
    let expect = [
        json!(["Scheduled", null, "True"]),
        json!(["Initialized", null, "True"]),
        json!(["Ready", null, "True"]),
        json!(["Ready", "edge-1", "True"]),
        json!(["Ready", "edge-2", "True"]),
    ];
    assert_eq!(shown, expect);
}

#[test]
fn lets_nobody_overwrite_what_he_has_not_seen() {
    let shop = Shop::open(&[], &[]);
    shop.edited.replace("policies.yaml", "nosniff", "mine").unwrap();
    assert!(shop.says(&["apply", shop.edited(), "--parent", "1"]).contains("revision 2 created"));
    shop.edited.replace("policies.yaml", "mine", "mine-too").unwrap();
    let said = shop.fails(&["apply", shop.edited(), "--parent", "1"]);
    assert!(said.contains("the latest revision is 2, not 1: look at what changed and apply again"), "{said}");
}

#[test]
fn takes_a_canary_by_tag_and_aborts_it() {
    let nodes: [&[&str]; 2] = [&["--id", "edge-1"], &["--id", "edge-2", "--tag", "stage=canary"]];
    let shop = Shop::open(&nodes, &["--canary", "stage=canary:1h"]);
    let plans = || {
        let status = shop.control_plane.status().unwrap();
        let plan = |node: &Value| node["types"]["extensionConfig"]["running"].clone();
        status["nodes"].as_array().unwrap().iter().map(plan).collect::<Vec<_>>()
    };
    let before = plans();
    shop.edited.replace("policies.yaml", "nosniff", "second").unwrap();
    shop.says(&["apply", shop.edited()]);
    wait::until_true("the canary", || Ok(plans()[1] != before[1])).unwrap();
    assert_eq!(plans()[0], before[0]);
    shop.says(&["rollout", "pause"]);
    assert!(shop.fails(&["rollout", "pause"]).contains("the rollout of revision 2 is paused"));
    shop.says(&["rollout", "resume"]);
    shop.says(&["rollout", "abort"]);
    wait::until_true("the way back", || Ok(plans() == before)).unwrap();
    assert!(shop.says(&["status"]).contains("aborted"));
    assert_eq!(shop.envoys.len(), 2);
}

#[test]
fn says_what_is_wrong_with_a_command_or_a_request() {
    let shop = Shop::open(&[], &[]);
    let said = shop.fails(&["status", "--server", "127.0.0.1:1"]);
    assert!(said.contains("no control plane answers at 127.0.0.1:1: start one with `postern serve`"), "{said}");
    assert!(shop.fails(&["apply", "/nowhere"]).contains("/nowhere"));
    let output = shop.run(&["serve", "--config", shop.edited(), "--canary", "half"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`half` is neither a share such as `25%` nor a tag"));
    assert!(shop.says(&["completions", "bash"]).contains("_postern"));

    let mut client = Client::new(shop.control_plane.http());
    let mut check = |request: Request, status: u16, detail: &str| {
        let answer = client.send(&request).unwrap();
        assert_eq!((answer.status, answer.header("content-type")), (status, Some("application/problem+json")));
        assert!(answer.body.contains(detail), "{}", answer.body);
    };
    check(Request::get("/api/v1/revisions/7"), 404, "revision 7 is not kept");
    check(post("/api/v1/apply", "{}"), 422, "missing field `files`");
    check(Request::new("POST", "/api/v1/apply").body("{}"), 415, "`Content-Type: application/json`");
    let body = r#"{"files": [{"name": "a.yaml", "text": "kind: Gatewya"}]}"#;
    let request = post("/api/v1/apply", body);
    check(request, 422, r#""errors":["#);
    let request = post("/api/v1/rollback", r#"{"revision": 1}"#);
    check(request.header("if-match", "one"), 400, "`If-Match` must be the number of a revision");
    check(post("/api/v1/rollout/stop", ""), 404, "`stop` is none of pause, resume, promote and abort");
}
