//! A start with a directory that is not valid, and SIGHUP: what is valid is served, what is not answers 500 and is
//! reported, and the first good state is in force as usual.

use std::{net::SocketAddr, os::unix::fs::symlink, process::Command};

use postern_tests::{Client, ControlPlane, Envoy, Received, Request, Site, Upstream, site::free_port, wait};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    updates::Load,
    world::{KEY, World, assert_no_vm_failure, users, users_with},
};

/// The quickstart's resources, not yet served.
struct Draft {
    site: Site,
    upstream: Upstream,
    directory: TempDir,
}

impl Draft {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        Self { site, upstream, directory }
    }

    fn send(&self, request: &Request) -> Received {
        Client::new(self.site.listener()).send(request).unwrap()
    }

    /// Waits until the gateway answers a request without a key like this.
    fn wait_for(&self, request: &Request, status: u16) {
        let mut client = Client::new(self.site.listener());
        let answers = || Ok(client.send(request).is_ok_and(|answer| answer.status == status));
        wait::until_true(&format!("{status} for {:?}", String::from_utf8_lossy(request.path())), answers).unwrap();
    }

    fn settings(&self, spec: &str) {
        let text = format!("apiVersion: postern/v1\nkind: Settings\nmetadata: {{ name: all }}\nspec: {spec}\n");
        self.site.write("settings.yaml", &text).unwrap();
    }
}

fn welcome() -> Request {
    Request::get("/welcome")
}

/// The output of a command that asks this control plane.
fn says(control_plane: &ControlPlane, arguments: &[&str]) -> String {
    let server = control_plane.http().to_string();
    let output = ControlPlane::command().unwrap().args(arguments).env("POSTERN_SERVER", server).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_typo_in_a_policy_closes_its_route_and_is_mended_later() {
    let draft = Draft::new();
    draft.settings("{ policyNotSupported: { status: 501, headers: { X-Own: set, retry-after: '7' }, body: not now } }");
    draft.site.replace("policies.yaml", "policy: apiKeyAuth", "policy: apiKeyAuht").unwrap();
    let control_plane = ControlPlane::start(draft.site.directory()).unwrap();
    let envoy = Envoy::whole(control_plane.xds()).unwrap();
    draft.wait_for(&welcome(), 200);
    for request in [users(), users_with(KEY), users_with("wrong")] {
        let answer = draft.send(&request);
        assert_eq!((answer.status, answer.body.as_str()), (501, "not now"));
        let headers = ["x-own", "retry-after", "x-policy-error"].map(|name| answer.header(name));
        assert_eq!(
            headers,
            [Some("set"), Some("7"), None],
            "headers of the settings take the place of the default ones"
        );
    }

    let lines = || -> Vec<_> {
        let lines = envoy.log().into_iter();
        lines.filter(|line| line.contains(r#""error_type":"POLICY_NOT_SUPPORTED""#)).collect()
    };
    wait::until_true("Envoy's log", || Ok(!lines().is_empty())).unwrap();
    for _ in 0..200 {
        assert_eq!(draft.send(&users()).status, 501);
    }
    let lines = lines();
    assert!(lines.len() < 40, "requests fill the log with {} lines", lines.len());
    for part in [
        "[error]",
        r#""route":"users","unsupported_policies":["users-api"],"available_agents":[]"#,
        r#""response_status":501"#,
    ] {
        assert!(lines[0].contains(part), "{}", lines[0]);
    }

    let status = control_plane.status().unwrap();
    let invalid = status["invalid"][0].as_str().unwrap();
    assert!(invalid.contains("policies.yaml:8:") && invalid.contains("did you mean `apiKeyAuth`"), "{status}");
    assert!(
        control_plane
            .log()
            .iter()
            .any(|line| line.contains("not valid, and served as a refusal") && line.contains(invalid))
    );
    let shown = says(&control_plane, &["status"]);
    assert!(shown.contains(&format!("invalid   {invalid}")), "{shown}");
    let resource = says(&control_plane, &["status", "RoutePolicy/users-api"]);
    assert!(resource.contains("Invalid") && resource.contains("apiKeyAuht"), "{resource}");
    let explained = says(&control_plane, &["explain", "--route", "users"]);
    assert!(explained.contains("Every request is refused: RoutePolicy `users-api`"), "{explained}");

    // Another mistake is refused, and changes nothing.
    draft.site.replace("policies.yaml", "nosniff", "nosniff: x: y").unwrap();
    let refused = |status: &Value| status["refusedChange"][0].is_string();
    control_plane.wait_for_status("the refusal", refused).unwrap();
    assert_eq!((draft.send(&users_with(KEY)).status, draft.send(&welcome()).status), (501, 200));

    draft.site.replace("policies.yaml", "nosniff: x: y", "nosniff").unwrap();
    draft.site.replace("policies.yaml", "policy: apiKeyAuht", "policy: apiKeyAuth").unwrap();
    draft.wait_for(&users_with(KEY), 200);
    assert_eq!(draft.send(&users()).status, 401);
    let status = control_plane.status().unwrap();
    assert!(status["invalid"].is_null() && status["refusedChange"].is_null(), "{status}");
    assert_no_vm_failure(&envoy);
}

#[test]
fn a_settings_answer_keeps_the_default_of_what_it_does_not_say() {
    let draft = Draft::new();
    draft.settings("{ policyNotSupported: { status: 503 } }");
    draft.site.replace("policies.yaml", "policy: apiKeyAuth", "policy: apiKeyAuht").unwrap();
    let control_plane = ControlPlane::start(draft.site.directory()).unwrap();
    let _envoy = Envoy::whole(control_plane.xds()).unwrap();
    draft.wait_for(&users(), 503);
    let answer = draft.send(&users_with(KEY));
    assert_eq!(answer.status, 503);
    let headers = ["content-type", "x-policy-error", "retry-after"].map(|name| answer.header(name));
    assert_eq!(headers, [Some("application/json"), Some("configuration"), None]);
    assert_eq!(answer.body, r#"{"error": "Policy configuration error", "code": "POLICY_NOT_SUPPORTED"}"#);
}

#[test]
fn a_document_that_cannot_be_read_closes_every_route() {
    for (from, to, says) in [
        ("kind: RoutePolicy", "kind: RoutePolice", "did you mean `RoutePolicy`"),
        ("  targetRef: {", "  targetRef: {{", "not valid YAML"),
        ("name: users }", "name: userss }", "unknown route `userss`"),
    ] {
        let draft = Draft::new();
        let state = draft.directory.path().join("state");
        draft.site.replace("policies.yaml", from, to).unwrap();
        let mut control_plane = ControlPlane::start_with_state(draft.site.directory(), &state, &[]).unwrap();
        let _envoy = Envoy::whole(control_plane.xds()).unwrap();
        draft.wait_for(&welcome(), 500);
        for request in [users(), users_with(KEY), Request::get("/nowhere")] {
            assert_eq!(draft.send(&request).status, 500, "{from}");
        }
        let is_said = |status: &Value| status["invalid"][0].as_str().is_some_and(|invalid| invalid.contains(says));
        control_plane.wait_for_status(says, is_said).unwrap();
        // A restart finds it in the store, and knows no more.
        control_plane.kill_and_restart().unwrap();
        control_plane.wait_for_status(says, is_said).unwrap();
        assert_eq!(draft.send(&welcome()).status, 500);
        draft.site.replace("policies.yaml", to, from).unwrap();
        draft.wait_for(&welcome(), 200);
        draft.wait_for(&users(), 401);
        assert_eq!(draft.send(&users_with(KEY)).status, 200);
    }
}

#[test]
fn an_envoy_with_routes_of_its_own_is_closed_while_anything_cannot_be_read() {
    let draft = Draft::new();
    std::fs::remove_file(draft.site.path("gateway.yaml")).unwrap();
    // A file without a byte is most likely being written.
    let empty = draft.site.path("more.yaml");
    std::fs::write(&empty, "").unwrap();
    let control_plane = ControlPlane::start(draft.site.directory()).unwrap();
    let port = free_port().unwrap();
    let ports = [
        ("port_value: 10001", format!("port_value: {}", draft.upstream.address().port())),
        ("port_value: 10000", format!("port_value: {port}")),
    ];
    let replace: Vec<_> = ports.iter().map(|(from, to)| (*from, to.as_str())).collect();
    let _envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
    let listener = SocketAddr::from(([127, 0, 0, 1], port));
    let answers = |request: &Request, status: u16| {
        wait::until_true(&format!("{status}"), || {
            Ok(Client::new(listener).send(request).is_ok_and(|answer| answer.status == status))
        })
        .unwrap();
    };
    let said = |status: &Value| status["invalid"].to_string();
    assert!(said(&control_plane.status().unwrap()).contains("the file is empty"));
    // No policy names the route, so that it would be open.
    answers(&welcome(), 500);
    answers(&users_with(KEY), 500);
    std::fs::remove_file(empty).unwrap();
    answers(&welcome(), 200);
    answers(&users(), 401);
    answers(&users_with(KEY), 200);
}

#[test]
fn sighup_loses_no_request_and_reads_the_directory_again() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let first = Site::quickstart(directory.path().join("first"), upstream.address(), 0).unwrap();
    let port = first.listener().port();
    let second = Site::quickstart(directory.path().join("second"), upstream.address(), port).unwrap();
    second.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: second").unwrap();
    let link = directory.path().join("current");
    symlink(first.directory(), &link).unwrap();
    let control_plane = ControlPlane::start(&link).unwrap();
    let envoy = Envoy::whole(control_plane.xds()).unwrap();
    envoy.wait_until_serving(first.listener(), &welcome()).unwrap();
    let load = Load::on(first.listener(), 4);
    for _ in 0..20 {
        hang_up(&control_plane);
    }
    let guarded_by = |value: &str| {
        wait::until_true(value, || {
            let answer = Client::new(first.listener()).send(&users_with(KEY))?;
            Ok(answer.echoed("x-guarded-by") == [value])
        })
        .unwrap();
    };
    guarded_by("postern");
    // Nothing in the directory changes, only what the path leads to: no watch sees that.
    let next = directory.path().join("next");
    symlink(second.directory(), &next).unwrap();
    std::fs::rename(&next, &link).unwrap();
    hang_up(&control_plane);
    guarded_by("second");
    // It is the new directory that is followed now.
    second.replace("policies.yaml", "x-guarded-by: second", "x-guarded-by: third").unwrap();
    guarded_by("third");
    let (sent, unexpected) = load.stop();
    assert!(sent > 0 && unexpected.is_empty(), "{} of {sent}: {:?}", unexpected.len(), unexpected.first());
    assert!(control_plane.log().iter().any(|line| line.contains("SIGHUP")));
}

#[test]
fn sighup_ends_no_control_plane_without_a_directory() {
    let state = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start_without_directory(state.path()).unwrap();
    hang_up(&control_plane);
    wait::until_true("the signal", || Ok(control_plane.log().iter().any(|line| line.contains("SIGHUP")))).unwrap();
    assert!(control_plane.status().unwrap().is_object());
}

#[test]
fn a_directory_that_is_emptied_changes_nothing_by_sighup_either() {
    let world = World::start();
    // What runs goes on: this is no start.
    for file in ["policies.yaml", "consumers.yaml", "gateway.yaml"] {
        world.site.write(file, "# nothing\n").unwrap();
    }
    hang_up(&world.control_plane);
    let refused = |status: &Value| status["refusedChange"][0].is_string();
    world.control_plane.wait_for_status("the refusal", refused).unwrap();
    assert_eq!(world.send(&users_with(KEY)).status, 200);
}

fn hang_up(control_plane: &ControlPlane) {
    let sent = Command::new("kill").args(["-HUP", &control_plane.id().to_string()]).status().unwrap();
    assert!(sent.success());
}
