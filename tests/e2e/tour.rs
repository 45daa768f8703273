//! What a new user tries in a terminal, on two real Envoys: every command that looks at a running control plane, with right
//! and wrong input.

use std::io::{BufRead as _, BufReader};

use postern_tests::{ControlPlane, process::Process, wait};
use serde_json::Value;

use crate::operations::Shop;

const TWO: [&[&str]; 2] = [&["--id", "edge-1"], &["--id", "edge-2", "--tag", "stage=canary"]];

/// The exit code of a command, and what it prints on both outputs.
fn all(shop: &Shop, arguments: &[&str]) -> (i32, String) {
    let output = shop.run(arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[track_caller]
fn check(shop: &Shop, arguments: &[&str], code: i32, parts: &[&str]) {
    let (found, said) = all(shop, arguments);
    assert_eq!(found, code, "{arguments:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{arguments:?}: `{part}` is not in:\n{said}");
    }
    let widest = said.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(!said.contains('\u{1b}'), "colours in a pipe: {said}");
    assert!(widest <= 160, "{arguments:?}: {widest} columns:\n{said}");
}

#[test]
fn tries_every_command_as_a_new_user_does() {
    let shop = Shop::open(&TWO, &[]);
    check(&shop, &["nodes"], 0, &["NODE    SERVICE  STATE  REVISION", "edge-2  edge     ready  1", "stage=canary"]);
    check(&shop, &["nodes", "edge-1"], 0, &["extensionConfig", "ago"]);
    check(&shop, &["nodes", "edge-9"], 1, &["no node `edge-9` is known: did you mean `edge-1`?"]);
    check(&shop, &["get"], 0, &["Consumer     mobile-app", "True   2/2", "policies.yaml:2"]);
    check(
        &shop,
        &["get", "routepolicy/users-api"],
        0,
        &["kind: RoutePolicy\n", "policy: apiKeyAuth\n", "Ready        edge-2  True"],
    );
    check(&shop, &["get", "RoutePolcy"], 1, &["unknown kind `RoutePolcy`: did you mean `RoutePolicy`?"]);
    check(&shop, &["get", "RoutePolicy/"], 2, &["`RoutePolicy/` is not a kind, nor a kind and a name"]);
    check(&shop, &["status", "RoutePolicy"], 1, &["which RoutePolicy? Name one"]);
    let yaml = shop.says(&["get", "RoutePolicy/users-api", "-o", "yaml"]);
    assert!(yaml.starts_with("apiVersion: postern/v1\nkind: RoutePolicy\n"), "{yaml}");
    for listing in [&["get"][..], &["nodes"], &["revisions"], &["status"], &["events", "--no-follow"]] {
        let json = shop.says(&[listing, &["-o", "json"]].concat());
        assert!(
            json.lines().next().is_some_and(
                |line| serde_json::from_str::<Value>(&json).is_ok() || serde_json::from_str::<Value>(line).is_ok()
            ),
            "{json}"
        );
        check(&shop, &[listing, &["-o", "yaml"]].concat(), 0, &[": "]);
    }

    check(&shop, &["diff", shop.edited()], 0, &["no difference\n"]);
    shop.edited.replace("policies.yaml", "header: x-api-key", "header: x-key").unwrap();
    check(
        &shop,
        &["diff", shop.edited()],
        1,
        &[
            "~ RoutePolicy/users-api",
            "spec.request[0].params.header: x-api-key → x-key",
            "~ users  on edge-1, edge-2",
            "~ request apiKeyAuth",
            "2 of 2 get something else: edge-1, edge-2",
        ],
    );
    check(
        &shop,
        &["apply", shop.edited(), "--wait", "-o", "json"],
        0,
        &["\"result\": \"created\"", "\"status\": \"True\""],
    );
    check(&shop, &["diff", "--revision", "2"], 1, &["x-api-key → x-key"]);
    check(&shop, &["diff", "--revision", "2", "--against", "2"], 0, &["no difference"]);
    check(&shop, &["diff", "--revision", "9"], 2, &["revision 9 is not kept"]);
    check(&shop, &["diff"], 2, &["SOURCE"]);
    shop.edited.replace("policies.yaml", "policy: apiKeyAuth", "policy: apiKeyAuht").unwrap();
    check(&shop, &["diff", shop.edited()], 2, &["policies.yaml:8:", "did you mean `apiKeyAuth`?"]);
    check(&shop, &["revisions", "2"], 0, &["REVISION", "Ready        edge-1  True"]);
    check(&shop, &["get", "--revision", "1", "RoutePolicy"], 0, &["header: x-api-key"]);

    let request = ["simulate", "--node", "edge-1", "--route", "users", "--path", "/users/7"];
    check(
        &shop,
        &[&request[..], &["-H", "x-key: demo-key"]].concat(),
        0,
        &["It goes upstream, as consumer mobile-app."],
    );
    check(&shop, &request, 1, &["apiKeyAuth denies", "It is denied with 401 by apiKeyAuth"]);
    check(&shop, &["simulate", "--node", "edge-9"], 2, &["no node `edge-9` is known"]);
    check(
        &shop,
        &["explain", "--node", "edge-2", "--route", "users"],
        0,
        &["edge-2 service edge", "stage=canary", "x-key"],
    );
    let local = shop.served.directory().to_str().unwrap();
    check(&shop, &["explain", "--config", local, "--route", "users"], 0, &["x-api-key"]);

    check(
        &shop,
        &["delete", "Service/backend"],
        1,
        &[
            "Service `backend` cannot be deleted: other resources need it",
            "gateway.yaml:13:",
            "unknown service `backend`",
        ],
    );
    check(&shop, &["delete", "Consumer/mobile-app", "--dry-run"], 0, &["valid"]);
    check(&shop, &["delete", "Consumer/mobile-app", "--parent", "1"], 1, &["the latest revision is 2, not 1"]);
    check(
        &shop,
        &["delete", "Consumer/mobile-app", "--wait"],
        0,
        &["revision 3 created", "revision 3 runs on 2 nodes"],
    );
    check(&shop, &["get", "Consumer/mobile-app"], 1, &["Consumer `mobile-app` is not in force"]);
    check(&shop, &["rollback", "1", "--wait"], 0, &["revision 4 runs on 2 nodes"]);
    check(
        &shop,
        &["events", "--last", "50", "--no-follow"],
        0,
        &[
            "revision 2 accepted from alice",
            "node edge-1 accepted extensionConfig",
            "rollout of revision 4: completed, step 1 of 1",
        ],
    );
    check(&shop, &["nodes", "--server", "127.0.0.1:1"], 1, &["no control plane answers at 127.0.0.1:1"]);
}

#[test]
fn follows_events_across_a_restart_of_the_control_plane() {
    let mut shop = Shop::open(&[&["--id", "edge-1"]], &[]);
    let mut command = ControlPlane::command().unwrap();
    command.args(["events", "--last", "0"]).env("POSTERN_SERVER", shop.control_plane.http().to_string());
    let follower = Process::start("postern events", &mut command).unwrap();
    // That it follows is known when it shows something: until then, there is something new again and again.
    let policies = shop.edited.read("policies.yaml").unwrap();
    let mut word = 0;
    wait::until_true("the follower", || {
        word += 1;
        shop.edited.write("policies.yaml", &policies.replace("nosniff", &format!("word-{word}"))).unwrap();
        shop.says(&["apply", shop.edited(), "-m", "before"]);
        Ok(follower.stdout().iter().any(|line| line.contains("accepted from alice: before")))
    })
    .unwrap();
    shop.control_plane.kill_and_restart().unwrap();
    wait::until_true("the follower to come back", || {
        Ok(follower.stdout().iter().any(|line| line.contains("some events may have been missed")))
    })
    .unwrap();
    shop.edited.write("policies.yaml", &policies.replace("nosniff", "after")).unwrap();
    shop.says(&["apply", shop.edited(), "-m", "after"]);
    wait::until_true("what happened after", || {
        Ok(follower.stdout().iter().any(|line| line.contains("accepted from alice: after")))
    })
    .unwrap();
    assert!(follower.stderr().iter().any(|line| line.contains("the control plane has gone away")));
}

#[test]
fn ends_when_nobody_reads_its_events() {
    let shop = Shop::open(&[&["--id", "edge-1"]], &[]);
    let mut command = ControlPlane::command().unwrap();
    command.args(["events", "--last", "3"]).env("POSTERN_SERVER", shop.control_plane.http().to_string());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(!first.is_empty());
    // The reader is gone; the next things that happen tell it so.
    let policies = shop.edited.read("policies.yaml").unwrap();
    let mut word = 0;
    let ended = wait::until_true("the end", || {
        word += 1;
        shop.edited.write("policies.yaml", &policies.replace("nosniff", &format!("word-{word}"))).unwrap();
        shop.says(&["apply", shop.edited()]);
        Ok(child.try_wait()?.is_some_and(|status| status.success()))
    });
    if ended.is_err() {
        // By its id, whatever becomes of the test.
        let _ = child.kill();
    }
    ended.unwrap();
}
