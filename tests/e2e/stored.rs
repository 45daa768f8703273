//! What a control plane finds in its store when it starts again.

use std::fs;

use postern::store::{Database, Draft, Parent, Store};
use postern_tests::{Client, ControlPlane, wait};
use serde_json::Value;

use crate::{
    fleet::{Stage, completed, envoys},
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
    let status = control_plane.wait_for_status("both nodes again", completed(2)).unwrap();
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
        store.append(Draft { digest: "old".to_owned(), author, message, at, documents }, Parent::Latest).unwrap();
    }
    stage.change("policy: apiKeyAuth", "policy: apiKeyOfOld");
    control_plane.kill_and_restart().unwrap();
    let _envoys = envoys(control_plane.xds(), 1);
    control_plane.wait_for_status("the node", completed(1)).unwrap();
    let mut client = Client::new(stage.site.listener());
    wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
    let answer = client.send(&users_with(KEY)).unwrap();
    assert_eq!(answer.status, 500, "a policy that is not known is not left out");
    assert!(answer.body.contains("POLICY_INVALID"), "{}", answer.body);
    let reported = |line: &String| line.contains("stored, but no longer valid") && line.contains("policies.yaml:8:");
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
    assert_eq!(control_plane.status().unwrap()["rollout"]["candidate"], 1);
}
