//! What a control plane finds in its store when it starts again.

use std::fs;

use postern_release::store::{Database, Draft, Parent, Store};
use postern_tests::{Client, ControlPlane, wait};
use serde_json::Value;

use crate::{
    fleet::{Stage, completed, envoys},
    operations::Shop,
    world::{KEY, users, users_with},
};

#[test]
fn serves_the_stored_revision_after_a_restart_even_if_the_directory_is_broken() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &[]).unwrap();
    let _envoys = envoys(control_plane.xds(), 2);
    let before = control_plane.wait_for_status("both nodes", completed(2)).unwrap();
    control_plane.kill();
    stage.change("policy: apiKeyAuth", "policy: apiKeyAuht");
    control_plane.kill_and_restart().unwrap();
    let refused = |status: &Value| completed(2)(status) && status["refusedChange"][0].is_string();
    let status = control_plane.wait_for_status("both nodes again, and the refusal", refused).unwrap();
    assert_eq!(status["revision"], before["revision"]);
    assert!(status["refusedChange"][0].as_str().unwrap().contains("did you mean `apiKeyAuth`"), "{status}");
    wait::until_true("requests to be decided", || Ok(Client::new(stage.site.listener()).send(&users())?.status == 401))
        .unwrap();
    stage.change("policy: apiKeyAuht", "policy: apiKeyAuth");
    stage.change("nosniff", "mended");
    let next = |status: &Value| status["rollout"]["lastGood"] == 2;
    control_plane.wait_for_status("the next revision", next).unwrap();
    assert!(stage.answers("mended"));
}

#[test]
fn serves_what_has_become_invalid_in_the_store_as_a_500_and_everything_else_as_before() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &[]).unwrap();
    control_plane.kill();
    // What an older version took: this one does not know such a policy. And the directory is no help.
    {
        let store = Database::open(state.path()).unwrap();
        let mut documents = store.documents(1).unwrap().unwrap();
        for document in &mut documents {
            let text = String::from_utf8(document.text.clone()).unwrap();
            document.text = text.replace("policy: apiKeyAuth", "policy: apiKeyOfOld").into_bytes();
        }
        let (author, message, at) = ("test".to_owned(), String::new(), std::time::SystemTime::now());
        store
            .append(
                Draft { digest: "old".to_owned(), author, message, at, documents: documents.into() },
                Parent::Latest,
            )
            .unwrap();
    }
    stage.change("policy: apiKeyAuth", "policy: apiKeyOfOld");
    control_plane.kill_and_restart().unwrap();
    let _envoys = envoys(control_plane.xds(), 1);
    control_plane.wait_for_status("the node", completed(1)).unwrap();
    let mut client = Client::new(stage.site.listener());
    wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
    let answer = client.send(&users_with(KEY)).unwrap();
    assert_eq!(answer.status, 500, "a policy that is not known is not left out");
    assert!(answer.body.contains("POLICY_NOT_SUPPORTED"), "{}", answer.body);
    let reported = |line: &String| line.contains("stored, but not valid") && line.contains("policies.yaml:8:");
    assert!(control_plane.log().iter().any(reported), "{:?}", control_plane.log());
    let http = control_plane.http();
    let revision: Value = serde_json::from_str(&Client::new(http).get("/api/v1/revisions/2").unwrap().body).unwrap();
    let initialized = &revision["conditions"][1];
    assert_eq!((&initialized["type"], &initialized["status"]), (&"Initialized".into(), &"False".into()));
}

#[test]
fn remembers_nodes_and_conditions_across_a_restart() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &[]).unwrap();
    let running = envoys(control_plane.xds(), 1);
    control_plane.wait_for_status("the node", completed(1)).unwrap();
    let http = control_plane.http();
    let get = |path: &str| serde_json::from_str::<Value>(&Client::new(http).get(path).unwrap().body).unwrap();
    let before = get("/api/v1/revisions/1");
    assert_eq!(get("/api/v1/nodes/absent"), serde_json::json!({}));
    drop(running);
    control_plane.kill_and_restart().unwrap();
    let absent = get("/api/v1/nodes/absent");
    assert_eq!((&absent["edge-1"]["service"], &absent["edge-1"]["revision"]), (&"edge".into(), &1.into()));
    let after = get("/api/v1/revisions/1");
    assert_eq!(after["conditions"][0], before["conditions"][0], "the times of transitions are kept");
}

#[test]
fn says_that_a_store_is_damaged_and_starts_anew_when_it_is_moved_away() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    drop(ControlPlane::start_with_state(stage.site.directory(), state.path(), &[]).unwrap());
    let store = state.path().join("store.redb");
    fs::write(&store, b"not a store").unwrap();
    let error = format!("{:#}", ControlPlane::start_with_state(stage.site.directory(), state.path(), &[]).unwrap_err());
    assert!(error.contains("the store is damaged") && error.contains("move it away and start again"), "{error}");
    fs::rename(&store, state.path().join("damaged")).unwrap();
    let control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &[]).unwrap();
    control_plane.wait_for_status("the first revision", |status| status["rollout"]["candidate"] == 1).unwrap();
}

#[test]
fn a_restart_does_not_bring_back_what_the_directory_said_before_others_changed_it() {
    let mut shop = Shop::open(&[&["--id", "edge-1"]], &[]);
    shop.edited.replace("policies.yaml", "nosniff", "applied").unwrap();
    shop.says(&["apply", shop.edited(), "--wait"]);
    // An Envoy acknowledges before all of its workers have the new filter.
    let answers = |shop: &Shop, value: &str| {
        postern_tests::wait::until_true(value, || Ok((0..8).all(|_| shop.answers(value)))).unwrap();
    };
    answers(&shop, "applied");
    shop.control_plane.kill_and_restart().unwrap();
    let settled = |candidate: u64| move |status: &Value| status["rollout"]["lastGood"] == candidate;
    shop.control_plane.wait_for_status("what was applied", settled(2)).unwrap();
    // The same again is no news either.
    shop.served.replace("policies.yaml", "nosniff", "nosnif: f").unwrap();
    let refused = |status: &Value| status["refusedChange"].as_array().is_some_and(|reasons| !reasons.is_empty());
    shop.control_plane.wait_for_status("the refusal", refused).unwrap();
    shop.served.replace("policies.yaml", "nosnif: f", "nosniff").unwrap();
    let status = shop.control_plane.wait_for_status("no refusal", |status| !refused(status)).unwrap();
    assert_eq!(status["rollout"]["candidate"], 2);
    answers(&shop, "applied");
    // What is new counts.
    shop.served.replace("policies.yaml", "nosniff", "followed").unwrap();
    shop.control_plane.wait_for_status("what the directory says now", settled(3)).unwrap();
    answers(&shop, "followed");
}

#[test]
fn a_control_plane_without_a_directory_takes_all_changes_by_its_api() {
    let site = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start_without_directory(state.path()).unwrap();
    let ready = |control_plane: &ControlPlane| Client::new(control_plane.http()).get("/readyz").unwrap().status;
    assert_eq!(ready(&control_plane), 503);
    let applied = ControlPlane::command()
        .unwrap()
        .args(["apply", site.site.directory().to_str().unwrap()])
        .env("POSTERN_SERVER", control_plane.http().to_string())
        .output()
        .unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let _envoys = envoys(control_plane.xds(), 1);
    control_plane.wait_for_status("the node", completed(1)).unwrap();
    control_plane.kill_and_restart().unwrap();
    control_plane.wait_for_status("the node again", completed(1)).unwrap();
    assert_eq!(
        (ready(&control_plane), control_plane.status().unwrap()["rollout"]["candidate"].clone()),
        (200, 1.into())
    );
}
