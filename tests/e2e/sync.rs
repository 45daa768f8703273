//! `apply`, `sync`, a followed directory that removes much, and the way back, from a terminal and under load on real
//! Envoys.

use std::{
    fs,
    io::Write as _,
    process::{Output, Stdio},
};

use postern_tests::{
    Client, ControlPlane, Request,
    key_server::{KeyServer, Mood},
    wait,
};
use serde_json::Value;

use crate::{
    operations::Shop,
    rollouts::Load,
    world::{KEY, users, users_with},
};

const TWO: [&[&str]; 2] = [&["--id", "edge-1"], &["--id", "edge-2", "--tag", "stage=canary"]];

fn json(shop: &Shop, arguments: &[&str]) -> Value {
    serde_json::from_str(&shop.says(&[arguments, &["-o", "json"]].concat())).unwrap()
}

fn names(shop: &Shop) -> Vec<String> {
    let all = json(shop, &["get"]);
    let name =
        |found: &Value| format!("{}/{}", found["kind"].as_str().unwrap(), found["metadata"]["name"].as_str().unwrap());
    all.as_array().unwrap().iter().map(name).collect()
}

/// Runs a command with a text on its standard input.
fn piped(shop: &Shop, arguments: &[&str], text: &str) -> Output {
    let mut command = ControlPlane::command().unwrap();
    command.args(arguments).env("POSTERN_SERVER", shop.control_plane.http().to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn consumer(name: &str) -> String {
    format!(
        "apiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: {name} }}\nspec: {{ apiKeys: [{{ key: key-of-{name} }}] }}\n"
    )
}

fn status_with(shop: &Shop, key: &str) -> u16 {
    Client::new(shop.served.listener()).send(&users_with(key)).unwrap().status
}

/// Waits until all workers of all Envoys answer so.
fn wait_for(shop: &Shop, key: &str, status: u16) {
    wait::until_true(key, || Ok((0..16).all(|_| status_with(shop, key) == status))).unwrap();
}

#[test]
fn one_consumer_in_a_directory_removes_nothing() {
    let shop = Shop::open(&TWO, &[]);
    let before = names(&shop);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bob.yaml");
    fs::write(&file, consumer("bob")).unwrap();
    // A directory, a file and the standard input, alone and together.
    assert!(shop.says(&["apply", directory.path().to_str().unwrap(), "--wait"]).contains("runs on 2 nodes"));
    let said = shop.says(&["apply", file.to_str().unwrap(), directory.path().to_str().unwrap()]);
    assert_eq!(said, "nothing to do: revision 2 says the same\n");
    let output = piped(&shop, &["apply", "-", file.to_str().unwrap(), "--wait"], &consumer("carol"));
    assert!(output.status.success(), "{output:?}");
    let mut expect = [before, vec!["Consumer/bob".to_owned(), "Consumer/carol".to_owned()]].concat();
    expect.sort();
    let mut found = names(&shop);
    found.sort();
    assert_eq!(found, expect);
    for key in [KEY, "key-of-bob", "key-of-carol"] {
        wait_for(&shop, key, 200);
    }
    // Wrong input names what is wrong.
    let output = piped(&shop, &["apply", "-"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stdin: there are no resources in it"), "{output:?}");
    let output = piped(&shop, &["apply", "-"], &consumer("dave").replace("apiKeys", "apiKyes"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("stdin:4:") && said.contains("did you mean `apiKeys`?"), "{said}");
    assert!(shop.fails(&["apply", "/nowhere.yaml"]).contains("/nowhere.yaml"));
    assert_eq!(shop.run(&["apply"]).status.code(), Some(2));
}

#[test]
fn what_get_shows_can_be_applied_and_opens_nothing() {
    let shop = Shop::open(&TWO, &[]);
    assert!(piped(&shop, &["apply", "-", "--wait"], &consumer("bob")).status.success());
    wait_for(&shop, "key-of-bob", 200);
    let shown = shop.says(&["get", "Consumer/bob", "-o", "yaml"]);
    assert!(shown.contains("(hidden)") && !shown.contains("key-of-bob"), "{shown}");
    let output = piped(&shop, &["apply", "-"], &shown);
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing to do"), "{output:?}");
    let output = piped(&shop, &["apply", "-", "--wait"], &shown.replace("spec:", "spec:\n  groups: [g]"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("runs on 2 nodes"), "{output:?}");
    wait_for(&shop, "key-of-bob", 200);
    assert_eq!(status_with(&shop, "(hidden)"), 401);
    let output = piped(&shop, &["apply", "-"], &shown.replace("name: bob", "name: eve"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Consumer `eve`: spec.apiKeys[0].key: `(hidden)` cannot be kept"), "{said}");
    let shown = serde_json::to_string(&json(&shop, &["get", "Consumer/bob"])).unwrap();
    assert!(piped(&shop, &["apply", "-"], &shown).status.success(), "JSON as well");
}

#[test]
fn a_sync_that_removes_half_of_the_resources_fails_no_request() {
    let shop = Shop::open(&TWO, &[]);
    let consumers: Vec<_> = (0..6).map(|number| consumer(&format!("c{number}"))).collect();
    shop.edited.write("more.yaml", &consumers.join("---\n")).unwrap();
    assert!(shop.says(&["apply", shop.edited(), "--wait"]).contains("runs on 2 nodes"));
    wait_for(&shop, "key-of-c5", 200);
    let load = Load::start(shop.served.listener());
    shop.edited.write("more.yaml", &consumer("c0")).unwrap();

    // Elsewhere than in a terminal it wants a word, and above the share one more; what would go is shown.
    let said = shop.fails(&["sync", shop.edited()]);
    assert!(
        said.contains("this removes 5 of 10 resources:\n  Consumer/c1\n") && said.contains("--remove-many"),
        "{said}"
    );
    let said = shop.fails(&["sync", shop.edited(), "--remove-many"]);
    assert!(said.contains("if that is meant, say `--yes`;"), "{said}");
    let said = shop.fails(&["sync", shop.edited(), "--yes"]);
    assert!(said.contains("one change may remove 2"), "{said}");
    let dry = shop.run(&["sync", shop.edited(), "--dry-run"]);
    let shown = String::from_utf8_lossy(&dry.stderr).into_owned();
    assert!(dry.status.success() && shown.starts_with("this would remove 5 of 10 resources:"), "{dry:?}");
    assert!(shop.fails(&["sync", shop.edited.path("more.yaml").to_str().unwrap()]).contains("this is none"));
    assert_eq!((names(&shop).len(), shop.run(&["sync"]).status.code()), (10, Some(2)));

    assert!(shop.says(&["sync", shop.edited(), "--yes", "--remove-many", "--wait"]).contains("runs on 2 nodes"));
    wait_for(&shop, "key-of-c5", 401);
    wait_for(&shop, "key-of-c0", 200);
    let sent = load.stop();
    assert!(sent > 0);
    assert_eq!(names(&shop).len(), 5);
    assert_eq!(shop.says(&["sync", shop.edited()]), "nothing to do: revision 3 says the same\n");
}

#[test]
fn a_rollback_during_a_canary_fails_no_request_and_waits_for_no_pause() {
    let shop = Shop::open(&TWO, &["--canary", "stage=canary:1h"]);
    assert!(shop.answers("nosniff"));
    let load = Load::start(shop.served.listener());
    shop.edited.replace("policies.yaml", "nosniff", "second").unwrap();
    let bob = consumer("bob");
    shop.edited.write("bob.yaml", &bob).unwrap();
    shop.says(&["apply", shop.edited()]);
    let running =
        |status: &Value| status["rollout"]["candidate"] == 2 && status["nodes"][1]["revision"] == status["revision"];
    shop.control_plane.wait_for_status("the canary", running).unwrap();
    // The pause of an hour is neither waited for on the way back, nor needed on the way forward.
    let said = shop.says(&["rollback", "1", "--wait"]);
    assert!(said.starts_with("revision 3 created\n") && said.contains("revision 3 runs on 2 nodes"), "{said}");
    wait::until_true("the former answer", || Ok((0..16).all(|_| shop.answers("nosniff")))).unwrap();
    let said = shop.says(&["rollback", "2", "--gradually"]);
    assert!(said.contains("valid again: Consumer/bob: spec.apiKeys[0]\n") && !said.contains("key-of-bob"), "{said}");
    let rollout = json(&shop, &["status"])["rollout"].clone();
    assert_eq!((&rollout["step"], &rollout["steps"]), (&1.into(), &2.into()));
    assert!(shop.says(&["rollout", "promote"]).starts_with("promoted"));
    let completed = |status: &Value| status["rollout"]["state"] == "completed";
    shop.control_plane.wait_for_status("the last step", completed).unwrap();
    assert!(shop.fails(&["rollout", "promote", "--now"]).contains("the rollout of revision 4 is completed"));
    assert!(load.stop() > 0);
    let states: Vec<_> = json(&shop, &["revisions"]).as_array().unwrap().iter().map(|it| it["state"].clone()).collect();
    assert_eq!(states, ["inForce", "superseded", "superseded", "superseded"]);
    assert_eq!(shop.run(&["rollback", "1", "--gradually", "--canary", "25%"]).status.code(), Some(2));
}

#[test]
fn a_rollback_waits_for_no_issuer() {
    let shop = Shop::open(&TWO, &[]);
    let issuer = "apiVersion: postern/v1\nkind: Issuer\nmetadata: { name: gone }\n\
                  spec: { issuer: 'https://gone', jwksUri: 'http://127.0.0.1:1/keys' }\n";
    assert!(piped(&shop, &["apply", "-", "--wait"], issuer).status.success());
    assert!(shop.says(&["rollback", "1", "--wait"]).contains("revision 3 runs on 2 nodes"));
    let said = shop.says(&["rollback", "2", "--wait"]);
    assert!(
        said.contains("revision 4 runs on 2 nodes") && said.contains("valid again: Issuer/gone: spec.jwksUri"),
        "{said}"
    );
}

#[test]
fn a_revision_has_one_digest_also_with_published_keys() {
    let all: Value = serde_json::from_str(include_str!("fixtures/key_rotation.json")).unwrap();
    let keys = |names: &[&str]| {
        let keys: Vec<_> = names.iter().map(|name| all[*name]["jwk"].clone()).collect();
        Mood::Serving(serde_json::json!({ "keys": keys }).to_string())
    };
    let server = KeyServer::start(keys(&["first"])).unwrap();
    let shop = Shop::open(&TWO, &[]);
    let issuer = format!(
        "apiVersion: postern/v1\nkind: Issuer\nmetadata: {{ name: accounts }}\n\
         spec: {{ issuer: 'https://accounts', jwksUri: 'http://{}/keys', refresh: 1s }}\n",
        server.address()
    );
    assert!(piped(&shop, &["apply", "-", "--wait"], &issuer).status.success());
    let fetched = |keys: u64| {
        move |status: &Value| {
            let runs = |node: &Value| node["revision"] == status["revision"];
            status["keySets"][0]["keys"] == keys && status["nodes"].as_array().unwrap().iter().all(runs)
        }
    };
    for (names, count) in [(&["first"][..], 1), (&["first", "second"], 2)] {
        server.set(keys(names));
        let status = shop.control_plane.wait_for_status("the keys", fetched(count)).unwrap();
        let revisions = json(&shop, &["revisions"]);
        assert_eq!((&revisions[0]["digest"], &revisions[0]["number"]), (&status["revision"], &status["inForce"]));
        let ready = Client::new(shop.control_plane.http()).get("/readyz").unwrap().body;
        assert!(ready.contains(status["revision"].as_str().unwrap()), "{ready}");
    }
}

#[test]
fn a_followed_directory_that_removes_much_is_held_also_over_a_restart() {
    let mut shop = Shop::open(&TWO, &[]);
    let consumers: Vec<_> = (0..6).map(|number| consumer(&format!("c{number}"))).collect();
    shop.served.write("more.yaml", &consumers.join("---\n")).unwrap();
    let completed = |candidate: u64| move |status: &Value| status["rollout"]["lastGood"] == candidate;
    shop.control_plane.wait_for_status("the consumers", completed(2)).unwrap();
    wait_for(&shop, "key-of-c5", 200);
    let load = Load::start(shop.served.listener());
    for file in ["more.yaml", "policies.yaml"] {
        fs::remove_file(shop.served.path(file)).unwrap();
    }
    let held = |status: &Value| status["held"]["removals"]["resources"].as_array().map_or(0, Vec::len) == 7;
    let before = shop.control_plane.wait_for_status("what is held", held).unwrap()["held"].clone();
    assert_eq!(before["routes"].as_array().unwrap().len(), 1, "{before}");
    shop.control_plane.kill_and_restart().unwrap();
    let after = shop.control_plane.wait_for_status("what is held, again", held).unwrap()["held"].clone();
    assert_eq!(after, before, "since when it is held is kept as well");
    let digest = before["digest"].as_str().unwrap();
    let said = shop.says(&["status"]);
    assert!(said.contains("held      the directory would remove 7 of 10 resources: Consumer/c0, "), "{said}");
    assert!(
        said.contains("routes without authentication: `users`")
            && said.contains(&format!("postern sync confirm {digest}")),
        "{said}"
    );
    let said = shop.says(&["events", "--last", "50", "--no-follow"]);
    assert!(said.contains(&format!("7 resources would be removed: postern sync confirm {digest}")), "{said}");
    let said = shop.fails(&["sync", "confirm"]);
    assert!(said.contains(&format!("say `postern sync confirm {digest}`")), "{said}");
    assert!(shop.fails(&["sync", "confirm", "0123456789ab"]).contains("is not what was shown"));
    assert_eq!(Client::new(shop.served.listener()).send(&users()).unwrap().status, 401);
    assert!(load.stop() > 0, "and no request failed");
    shop.control_plane.wait_for_status("both nodes", |status| status["rollout"]["state"] == "completed").unwrap();
    assert!(shop.says(&["sync", "confirm", digest, "--wait"]).contains("revision 3 created"));
    let open = || Ok((0..16).all(|_| Client::new(shop.served.listener()).send(&users()).unwrap().status == 200));
    wait::until_true("what was confirmed", open).unwrap();
    assert!(shop.fails(&["sync", "confirm", digest]).contains("no change of the directory is held"));
    assert_eq!(Client::new(shop.served.listener()).send(&Request::get("/welcome")).unwrap().status, 200);
}
