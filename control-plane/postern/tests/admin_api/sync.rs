//! `apply` adds and changes, `sync` makes it exactly that, and a followed directory that removes much is held.

use postern_model::File;
use postern_release::releases::Proposal;
use serde_json::{Value, json};

use crate::server::{ApiResponse, RESOURCES, Server};

const BOB: &str =
    "apiVersion: postern/v1\nkind: Consumer\nmetadata: { name: bob }\nspec: { apiKeys: [{ key: bobs-key }] }\n";

fn send(server: &Server, path: &str, text: &str, more: Value) -> ApiResponse {
    let mut body = json!({ "files": [{ "name": "r.yaml", "text": text }], "author": "alice" });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    server.send("post", path, &[], Some(&body))
}

fn names(server: &Server) -> Vec<String> {
    let all = server.get("/api/v1/resources").json();
    let name =
        |found: &Value| format!("{}/{}", found["kind"].as_str().unwrap(), found["metadata"]["name"].as_str().unwrap());
    all.as_array().unwrap().iter().map(name).collect()
}

/// Without the documents of these names.
fn without(gone: &[&str]) -> String {
    let stays = |document: &&str| !gone.iter().any(|name| document.contains(&format!("name: {name} }}")));
    RESOURCES.split("---\n").filter(stays).collect::<Vec<_>>().join("---\n")
}

#[test]
fn apply_adds_and_changes_and_removes_nothing() {
    let server = Server::running();
    let before = names(&server);
    assert_eq!(send(&server, "/api/v1/apply", BOB, json!({})).json()["revision"]["number"], 2);
    let mut expect = [before, vec!["Consumer/bob".to_owned()]].concat();
    expect.sort();
    let mut found = names(&server);
    found.sort();
    assert_eq!(found, expect);
    // One that is there is replaced, wherever it stood.
    let changed = "apiVersion: postern/v1\nkind: Consumer\nmetadata: { name: app }\nspec: { groups: [new] }\n";
    assert_eq!(send(&server, "/api/v1/apply", changed, json!({})).json()["revision"]["number"], 3);
    assert_eq!(names(&server), found.iter().map(String::clone).collect::<Vec<_>>());
    assert_eq!(server.get("/api/v1/resources/Consumer/app").json()["spec"], json!({ "groups": ["new"] }));
    // The file of the others is written anew: they are shown where they were.
    let bob = server.get("/api/v1/resources/Consumer/bob").json();
    assert_eq!((&bob["status"]["file"], &bob["status"]["generation"]), (&"revision-2/r.yaml".into(), &1.into()));
    // An error in what stays, or in what is new, changes nothing, and names its place.
    let wrong = changed.replace("groups", "gruops");
    let answer = send(&server, "/api/v1/apply", &wrong, json!({}));
    assert!(answer.status == 422 && answer.body.contains("r.yaml:4:"), "{}", answer.body);
    let answer = send(&server, "/api/v1/apply", "", json!({ "files": [{ "name": "a.pem", "text": "x" }] }));
    assert!(answer.status == 400 && answer.body.contains("there is no resource in what was sent"), "{}", answer.body);
    assert_eq!(server.get("/api/v1/revisions").json().as_array().unwrap().len(), 3);
    assert_eq!(send(&server, "/api/v1/apply", changed, json!({})).json()["result"], "unchanged");
}

#[test]
fn a_certificate_that_is_added_changes_no_other_resource() {
    let server = Server::empty();
    let gateway = |name: &str, port: u16| {
        format!(
            "apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: {name} }}\n\
             spec: {{ endpoints: [{{ address: 127.0.0.1, port: {port} }}], tls: {{ ca: {{ file: ca.pem }} }} }}\n"
        )
    };
    let pem = |name: &str| {
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    };
    let [one, two] = [pem("one"), pem("two")];
    let apply = |name: &str, port: u16, pem: Option<&str>| {
        let mut files = vec![json!({ "name": format!("{name}.yaml"), "text": gateway(name, port) })];
        files.extend(pem.map(|pem| json!({ "name": "ca.pem", "text": pem })));
        send(&server, "/api/v1/apply", "", json!({ "files": files }))
    };
    assert_eq!(apply("a", 1, Some(&one)).status, 200);
    let answer = apply("b", 2, Some(&two));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let documents = server.plane.store().documents(2).unwrap().unwrap();
    let of = |file: &str| {
        let found = documents.iter().filter(|document| document.file == file);
        found.map(|document| String::from_utf8(document.text.clone()).unwrap()).collect::<String>()
    };
    assert_eq!((of("ca.pem"), of("revision-1/ca.pem")), (two.clone(), one));
    // What is named still, and was not sent, is taken along.
    let answer = apply("b", 3, None);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let documents = server.plane.store().documents(3).unwrap().unwrap();
    let kept = documents.iter().find(|document| document.file == "ca.pem").unwrap();
    assert_eq!(String::from_utf8(kept.text.clone()).unwrap(), two);
}

#[test]
fn sync_makes_it_exactly_that_with_the_words_for_it() {
    let server = Server::running();
    let one = without(&["canaries"]);
    let dry = send(&server, "/api/v1/sync", &one, json!({ "dryRun": true })).json();
    assert_eq!(
        (&dry["result"], &dry["removals"]["of"], &dry["removals"]["most"]),
        (&"valid".into(), &5.into(), &1.into())
    );
    assert_eq!(dry["removals"]["resources"], json!([{ "kind": "RoutePolicy", "mesh": "default", "name": "canaries" }]));
    let answer = send(&server, "/api/v1/sync", &one, json!({}));
    assert!(answer.status == 409 && answer.body.contains("would remove RoutePolicy `canaries`"), "{}", answer.body);
    // What is confirmed is what was shown.
    let other = json!({ "allowRemovals": true, "removals": "0123456789ab" });
    let answer = send(&server, "/api/v1/sync", &one, other);
    assert!(answer.status == 409 && answer.body.contains("is not what was shown"), "{}", answer.body);
    assert_eq!(names(&server).len(), 5);
    let shown = json!({ "allowRemovals": true, "removals": dry["removals"]["digest"] });
    assert_eq!(send(&server, "/api/v1/sync", &one, shown).json()["revision"]["number"], 2);
    assert_eq!(names(&server).len(), 4);

    // Above the share, it takes one more word.
    let few = without(&["canaries", "users-api", "app"]);
    let some = json!({ "allowRemovals": true, "allowUnguarded": true });
    let answer = send(&server, "/api/v1/sync", &few, some);
    assert!(
        answer.status == 409 && answer.body.contains("would remove 2 of 4 resources, more than 1"),
        "{}",
        answer.body
    );
    let many = json!({ "removeMany": true, "allowUnguarded": true });
    assert_eq!(send(&server, "/api/v1/sync", &few, many).status, 409, "both words are needed");
    let both = json!({ "allowRemovals": true, "removeMany": true });
    let answer = send(&server, "/api/v1/sync", &few, both.clone());
    assert!(answer.status == 409 && answer.body.contains("without authentication"), "{}", answer.body);
    let all = json!({ "allowRemovals": true, "removeMany": true, "allowUnguarded": true });
    assert_eq!(send(&server, "/api/v1/sync", &few, all).json()["result"], "created");
    // Nothing to remove needs no word.
    assert_eq!(send(&server, "/api/v1/sync", RESOURCES, json!({})).json()["result"], "created");
}

/// What a followed directory proposes.
fn followed(text: &str) -> Proposal {
    let files = vec![File { name: "r.yaml".to_owned(), bytes: text.as_bytes().to_vec() }];
    Proposal { files, author: "directory".to_owned(), message: "as in d".to_owned(), ..Proposal::default() }
}

#[test]
fn a_directory_that_removes_much_is_held_until_exactly_that_is_confirmed() {
    let server = Server::running();
    let follow = |text: &str| server.plane.commands().follow(followed(text)).wait().unwrap();
    follow(RESOURCES);
    let confirm = |digest: &Value| {
        server.send("post", "/api/v1/sync/confirm", &[], Some(&json!({ "digest": digest, "author": "bob" })))
    };
    assert_eq!(server.get("/api/v1/sync/held").status, 404);
    assert_eq!(confirm(&"0".into()).status, 409);
    let few = without(&["canaries", "app"]);
    follow(&few);
    let held = server.get("/api/v1/sync/held").json();
    let removed: Vec<_> = held["removals"]["resources"].as_array().unwrap().iter().map(|key| &key["name"]).collect();
    assert_eq!((&held["tooMany"], removed), (&true.into(), vec![&Value::from("app"), &Value::from("canaries")]));
    assert_eq!(server.get("/status").json()["held"], held);
    assert_eq!((names(&server).len(), server.get("/status").json()["inForce"].clone()), (5, 1.into()));
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains("\npostern_change_held 1\n") && metrics.contains("\npostern_held_removals 2\n"),
        "{metrics}"
    );
    let events = || server.get("/api/v1/events?last=100&follow=false").body.matches("event: changeHeld").count();
    assert_eq!(events(), 1);
    follow(&few);
    assert_eq!(events(), 1, "it is told once");
    // Another change meanwhile: the directory would remove that, too.
    assert_eq!(send(&server, "/api/v1/apply", BOB, json!({})).status, 200);
    let answer = confirm(&held["digest"]);
    assert!(answer.status == 409 && answer.body.contains("is not what was shown"), "{}", answer.body);
    let now = server.get("/api/v1/sync/held").json();
    assert_eq!(now["removals"]["resources"].as_array().unwrap().len(), 3);
    assert_eq!(names(&server).len(), 6, "nothing was changed");
    // The directory says everything again, and nothing is held.
    follow(&format!("{RESOURCES}---\n{BOB}"));
    assert_eq!(server.get("/api/v1/sync/held").status, 404);
    follow(&few);
    let held = server.get("/api/v1/sync/held").json();
    assert_eq!(held["digest"], now["digest"], "it is the same change");
    let outcome = confirm(&held["digest"]).json();
    assert_eq!(outcome["revision"]["message"], "as in d, confirmed by bob", "{outcome}");
    assert_eq!((names(&server).len(), server.get("/api/v1/sync/held").status), (3, 404));
    let revisions = server.get("/api/v1/revisions").json().as_array().unwrap().len();
    follow(&few);
    assert_eq!(server.get("/api/v1/revisions").json().as_array().unwrap().len(), revisions, "it was heard");
}

#[test]
fn a_directory_that_removes_the_last_guard_of_a_route_is_held() {
    let server = Server::running();
    let follow = |text: &str| server.plane.commands().follow(followed(text)).wait().unwrap();
    follow(RESOURCES);
    // One resource is not many, and a step that is gone removes no resource at all.
    for open in [
        without(&["users-api"]),
        RESOURCES.replace("policy: apiKeyAuth\n      params: { header: x-api-key }", "policy: requestId"),
    ] {
        follow(&open);
        let held = server.get("/api/v1/sync/held").json();
        assert_eq!((&held["tooMany"], held["routes"].as_array().unwrap().len()), (&false.into(), 1), "{held}");
        assert_eq!(names(&server).len(), 5);
    }
    // One resource that guards nothing is simply removed.
    follow(&without(&["canaries"]));
    assert_eq!((names(&server).len(), server.get("/api/v1/sync/held").status), (4, 404));
    // What is wrong is refused, and not held.
    let wrong = without(&["users-api"]).replace("kind: Consumer", "kind: Consumr");
    assert!(server.plane.commands().follow(followed(&wrong)).wait().is_err());
    assert_eq!(server.get("/api/v1/sync/held").status, 404);
}

#[test]
fn what_was_hidden_is_kept_and_never_a_value() {
    let server = Server::running();
    assert_eq!(send(&server, "/api/v1/apply", BOB, json!({})).status, 200);
    let shown = |resource: &str| {
        let path = format!("/api/v1/resources/{resource}");
        server.send("get", &path, &[("accept", "application/yaml")], None).body
    };
    let bob = shown("Consumer/bob");
    assert!(bob.contains("key: \"(hidden)\"") && bob.contains("status:"), "{bob}");
    let answer = send(&server, "/api/v1/apply", &bob, json!({}));
    assert_eq!(answer.json()["result"], "unchanged", "{}", answer.body);
    let body = json!({ "files": [{ "name": "b.yaml", "text": bob }], "additions": true });
    assert_eq!(server.send("post", "/api/v1/diff", &[], Some(&body)).json()["resources"], json!([]));
    let answer = send(&server, "/api/v1/apply", &bob.replace("spec:", "spec:\n  groups: [g]"), json!({}));
    assert_eq!(answer.json()["result"], "created", "{}", answer.body);
    let written = server.plane.catalogue(3).unwrap().unwrap();
    let of = |name: &str| {
        let found = written.iter().find(|(key, _)| key.name == name).unwrap();
        found.1.written()["spec"]["apiKeys"][0]["key"].clone()
    };
    assert_eq!((of("bob"), of("app")), ("bobs-key".into(), "a-secret-key".into()));
    // Elsewhere it is an error that names the field.
    let check = |text: &str, part: &str| {
        let answer = send(&server, "/api/v1/apply", text, json!({}));
        assert_eq!(answer.status, 422, "{}", answer.body);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(part), "{detail}");
    };
    let renamed = bob.replace("name: bob", "name: robert");
    check(&renamed, "Consumer `robert`: spec.apiKeys[0].key: `(hidden)` cannot be kept: the resource is not in force");
    check(
        &bob.replace("- key: \"(hidden)\"", "- key: (hidden)\n    - key: (hidden)"),
        "spec.apiKeys[1].key: `(hidden)` cannot be kept",
    );
    check(&bob.replace("\"(hidden)\"", "' (hidden)'"), "`(hidden)` stands for a value that is not shown");
    check(&bob.replace("\"(hidden)\"", "Bearer (hidden)"), "`(hidden)` stands for a value that is not shown");
    // A directory must say its values itself: a restart without a store has nothing to keep.
    let error = server.plane.commands().follow(followed(&bob)).wait().unwrap_err().to_string();
    assert!(error.contains("spec.apiKeys[0].key: `(hidden)` stands for"), "{error}");
}

fn states(server: &Server) -> Vec<(u64, String)> {
    let all = server.get("/api/v1/revisions").json();
    let state = |found: &Value| (found["number"].as_u64().unwrap(), found["state"].as_str().unwrap().to_owned());
    all.as_array().unwrap().iter().map(state).collect()
}

fn named(states: &[(u64, &str)]) -> Vec<(u64, String)> {
    states.iter().map(|(number, state)| (*number, (*state).to_owned())).collect()
}

#[test]
fn a_revision_has_one_fate_and_one_digest_everywhere() {
    let server = Server::running();
    assert_eq!(states(&server), named(&[(1, "inForce")]));
    server.apply(&RESOURCES.replace("x-api-key", "x-key"));
    assert_eq!(states(&server), named(&[(2, "progressing"), (1, "lastGood")]));
    crate::lifecycle::refuse(&server);
    assert_eq!(states(&server), named(&[(2, "rolledBack"), (1, "inForce")]));
    let digest = |number: u64| server.get(&format!("/api/v1/revisions/{number}")).json()["digest"].clone();
    let status = server.get("/status").json();
    assert_eq!((&status["inForce"], &status["revision"]), (&1.into(), &digest(1)), "what is in force, not what failed");
    assert_eq!(server.get("/readyz").json()["revision"], digest(1));
    // Why it failed stays with it.
    server.apply(&RESOURCES.replace("x-api-key", "x-other"));
    server.settle_all();
    assert_eq!(states(&server), named(&[(3, "inForce"), (2, "rolledBack"), (1, "superseded")]));
    let failed = server.get("/api/v1/revisions/2").json();
    assert_eq!((&failed["node"], &failed["reason"]), (&"edge-1".into(), &"ECDS: no such plugin".into()));
    let ready = failed["conditions"].as_array().unwrap().iter().find(|found| found["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&"False".into(), &"Rejected".into()));
    assert_eq!(server.get("/status").json()["revision"], digest(3));
    // So does the lookup of what a log line has.
    let publication = server.plane.publications().latest().unwrap();
    let label = publication.snapshot_for(&server.plane.identities()[0]).plan().label().to_owned();
    let used = server.get(&format!("/api/v1/plans/{label}")).json();
    assert_eq!((&used[0]["revision"], &used[0]["digest"]), (&3.into(), &digest(3)));
    server.apply(RESOURCES);
    assert_eq!(server.send("post", "/api/v1/rollout/abort", &[], Some(&json!({}))).status, 204);
    server.apply(&RESOURCES.replace("x-api-key", "x-fifth"));
    server.settle_all();
    let expect = [(5, "inForce"), (4, "aborted"), (3, "superseded"), (2, "rolledBack"), (1, "superseded")];
    assert_eq!(states(&server), named(&expect));
}

const CANARY: &str = "---\napiVersion: postern/v1\nkind: Settings\nmetadata: { name: s }\n\
                      spec: { rollout: { steps: [{ tags: { stage: canary }, pause: 1h }] } }\n";

/// Two nodes that run a revision with a canary of one hour.
fn with_a_canary() -> Server {
    let server = Server::running();
    assert_eq!(server.apply(CANARY.trim_start_matches("---\n")).status, 200);
    server.settle_all();
    assert_eq!(server.get("/api/v1/rollout").json()["state"], "completed");
    server
}

#[test]
fn a_change_spreads_by_the_settings_in_force_before_it() {
    let server = with_a_canary();
    // It removes the settings, and does not escape them; nor does the next one.
    let words = json!({ "allowRemovals": true });
    assert_eq!(
        send(&server, "/api/v1/sync", &RESOURCES.replace("x-api-key", "x-key"), words).json()["result"],
        "created"
    );
    assert_eq!(server.get("/api/v1/rollout").json()["steps"], 2);
    server.apply(&RESOURCES.replace("x-api-key", "x-next"));
    let rollout = server.get("/api/v1/rollout").json();
    assert_eq!((&rollout["candidate"], &rollout["steps"], &rollout["step"]), (&4.into(), &2.into(), &1.into()));
}

#[test]
fn a_rollback_goes_everywhere_at_once_unless_told_otherwise() {
    let server = with_a_canary();
    assert_eq!(send(&server, "/api/v1/apply", BOB, json!({})).status, 200);
    let rollout = || server.get("/api/v1/rollout").json();
    assert_eq!((&rollout()["candidate"], &rollout()["steps"]), (&3.into(), &2.into()));
    let back = |more: Value| {
        let mut body = json!({ "revision": 2, "author": "bob" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.send("post", "/api/v1/rollback", &[], Some(&body))
    };
    assert_eq!(back(json!({})).json()["result"], "created");
    assert_eq!(
        (&rollout()["candidate"], &rollout()["steps"]),
        (&4.into(), &1.into()),
        "during a canary, past its pause"
    );
    server.settle_all();
    assert_eq!(rollout()["state"], "completed");
    // A credential that is valid again is named, and not shown.
    let forth = server.send("post", "/api/v1/rollback", &[], Some(&json!({ "revision": 3, "gradually": true })));
    let expect = json!([{ "kind": "Consumer", "mesh": "default", "name": "bob", "field": "spec.apiKeys[0]" }]);
    assert_eq!(forth.json()["revived"], expect, "{}", forth.body);
    assert!(!forth.body.contains("bobs-key"));
    assert_eq!(rollout()["steps"], 2, "it was told to");
    assert_eq!(back(json!({ "canary": ["50%:1h", "stage=canary:1m"] })).status, 200);
    assert_eq!(rollout()["steps"], 3);
    let answer = back(json!({ "canary": ["half"] }));
    assert!(answer.status == 400 && answer.body.contains("`canary`: `half` is neither"), "{}", answer.body);
}

#[test]
fn a_rollout_is_promoted_past_its_pause() {
    let server = with_a_canary();
    let promote = |now: &str| server.send("post", &format!("/api/v1/rollout/promote{now}"), &[], Some(&json!({})));
    let step = || server.get("/api/v1/rollout").json()["step"].clone();
    assert!(promote("").body.contains("the rollout of revision 2 is completed"));
    server.apply(BOB);
    assert_eq!(promote("").status, 204);
    server.plane.commands().look().wait().unwrap();
    assert_eq!(step(), 1, "its nodes have not answered");
    server.settle_all();
    assert_eq!(step(), 2);
    let answer = promote("");
    assert!(
        answer.status == 409 && answer.body.contains("at its last step: all nodes get it already"),
        "{}",
        answer.body
    );
    server.settle_all();
    server.apply(RESOURCES);
    assert_eq!(server.send("post", "/api/v1/rollout/pause?now=true", &[], Some(&json!({}))).status, 400);
    server.apply(&BOB.replace("bobs-key", "another-key"));
    assert_eq!(server.send("post", "/api/v1/rollout/pause", &[], Some(&json!({}))).status, 204);
    assert_eq!(promote("?now=true").status, 204);
    let rollout = server.get("/api/v1/rollout").json();
    assert_eq!((&rollout["state"], &rollout["step"]), (&"progressing".into(), &2.into()));
    server.settle_all();
    assert_eq!(server.get("/api/v1/rollout").json()["state"], "completed");
}

#[test]
fn how_many_may_be_removed_is_configured() {
    let server = Server::running();
    let settings = |removed: &str| {
        format!(
            "apiVersion: postern/v1\nkind: Settings\nmetadata: {{ name: s }}\nspec: {{ rollout: {{ maxRemoved: {removed} }} }}\n"
        )
    };
    let most = |server: &Server| {
        let dry = send(server, "/api/v1/sync", &without(&["canaries", "app"]), json!({ "dryRun": true })).json();
        (dry["removals"]["resources"].as_array().unwrap().len(), dry["removals"]["most"].clone())
    };
    for (removed, expect) in [("{ share: 50 }", 3), ("{ resources: 0 }", 0), ("{ share: 0 }", 1)] {
        server.apply(&settings(removed));
        server.settle_all();
        assert_eq!(most(&server), (3, expect.into()), "{removed}");
    }
    let answer = send(&server, "/api/v1/apply", &settings("{ share: 101 }"), json!({}));
    assert!(answer.status == 422 && answer.body.contains("spec.rollout.maxRemoved.share"), "{}", answer.body);
}
