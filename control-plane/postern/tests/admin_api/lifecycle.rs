//! What the API says of refused changes, generations and key sets at a resource, and its ways back: single resources, and
//! purges.

use std::time::{Duration, Instant};

use postern_base::node::NodeIdentity;
use postern_compile::snapshot::{ResourceType, Selection};
use postern_deliver::xds::session::Event;
use postern_model::File;
use postern_release::{owner::Steering, releases::Proposal, store::Parent};
use serde_json::{Value, json};

use crate::server::{RESOURCES, Server};

fn initialized(conditions: &Value) -> (String, String, String) {
    let found = conditions.as_array().unwrap().iter().find(|found| found["type"] == "Initialized").unwrap();
    let text = |name: &str| found[name].as_str().unwrap().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[test]
fn shows_a_refused_change_at_the_resources_that_it_was_refused_for() {
    let server = Server::running();
    let wrong = RESOURCES.replace("apiKeyAuth", "apiKeyAuht");
    assert_eq!(server.apply(&wrong).status, 422);
    let policy = server.get("/api/v1/resources/RoutePolicy/users-api").json();
    let refused = &policy["status"]["refusedChanges"][0];
    assert_eq!(refused["author"], "alice");
    let (status, reason, message) = initialized(&refused["conditions"]);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Invalid"));
    assert!(message.starts_with("r.yaml:24:") && message.contains("did you mean `apiKeyAuth`?"), "{message}");
    // What is in force is as it was, and no other resource is to blame.
    let in_force = &policy["status"]["revisions"][0];
    assert_eq!((&in_force["revision"], initialized(&in_force["conditions"]).0), (&1.into(), "True".to_owned()));
    assert_eq!(server.get("/api/v1/resources/Consumer/app").json()["status"]["refusedChanges"], Value::Null);
    let status = server.get("/status").json();
    assert!(status["refusedChange"][0].as_str().unwrap().contains("did you mean `apiKeyAuth`?"), "{status}");
    let events = server.get("/api/v1/events?last=100&follow=false").body;
    assert!(events.contains("event: changeRefused"), "{events}");

    // A dry run is no change, and a conflict is about the moment.
    let other = RESOURCES.replace("apiKeyAuth", "apiKeyOther");
    let body = json!({ "files": [{ "name": "r.yaml", "text": other }], "dryRun": true });
    assert_eq!(server.send("post", "/api/v1/apply", &[], Some(&body)).status, 422);
    let body = json!({ "files": [{ "name": "r.yaml", "text": RESOURCES.replace("x-api-key", "x-other") }] });
    assert_eq!(server.send("post", "/api/v1/apply", &[("if-match", "\"7\"")], Some(&body)).status, 412);
    let again = server.get("/api/v1/resources/RoutePolicy/users-api").json();
    assert_eq!(again["status"]["refusedChanges"], policy["status"]["refusedChanges"]);
    // The next change that is accepted ends it.
    assert_eq!(server.apply(&RESOURCES.replace("x-api-key", "x-key")).status, 200);
    let policy = server.get("/api/v1/resources/RoutePolicy/users-api").json();
    assert_eq!(policy["status"]["refusedChanges"], Value::Null);
    assert_eq!(server.get("/status").json()["refusedChange"], Value::Null);
}

#[test]
fn shows_a_resource_that_exists_in_a_refused_change_only_without_what_it_says() {
    let server = Server::running();
    let new = format!(
        "{RESOURCES}---\napiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: new, mesh: other }}\n\
         spec: {{ apiKyes: [{{ key: a-key-at-a-wrong-place }}] }}\n"
    );
    assert_eq!(server.apply(&new).status, 422);
    let found = server.get("/api/v1/resources/Consumer/new?mesh=other");
    assert_eq!(found.status, 200, "{}", found.body);
    assert!(!found.body.contains("a-key-at-a-wrong-place"), "{}", found.body);
    let found = found.json();
    assert_eq!(
        (&found["kind"], &found["spec"], &found["metadata"]["mesh"]),
        (&"Consumer".into(), &Value::Null, &"other".into())
    );
    assert_eq!((&found["status"]["line"], &found["status"]["revisions"]), (&36.into(), &json!([])));
    let (_, _, message) = initialized(&found["status"]["refusedChanges"][0]["conditions"]);
    assert!(message.contains("unknown field `apiKyes`: did you mean `apiKeys`?"), "{message}");
    assert_eq!(server.get("/api/v1/resources/Consumer/new").status, 404, "of another mesh");
    let list = server.get("/api/v1/resources/Consumer").json();
    assert_eq!(list.as_array().unwrap().len(), 1, "a list has what is in force");
}

#[test]
fn shows_the_generation_of_each_resource() {
    let server = Server::running();
    let generation = |resource: &str| {
        let found = server.get(&format!("/api/v1/resources/{resource}")).json();
        let revision = found["status"]["revisions"][0].clone();
        assert_eq!(revision["generation"], found["status"]["generation"]);
        let all = revision["conditions"].as_array().unwrap();
        assert!(all.iter().all(|found| found["observedGeneration"] == revision["generation"]), "{revision}");
        found["status"]["generation"].as_u64().unwrap()
    };
    assert_eq!(generation("RoutePolicy/users-api"), 1);
    assert_eq!(server.apply(&RESOURCES.replace("x-api-key", "x-key")).json()["revision"]["number"], 2);
    assert_eq!((generation("RoutePolicy/users-api"), generation("RoutePolicy/canaries")), (2, 1));
    let listed = server.get("/api/v1/resources/RoutePolicy").json();
    assert_eq!((&listed[0]["status"]["generation"], &listed[1]["status"]["generation"]), (&1.into(), &2.into()));
    // Before the new one is everywhere, the former is there with its own.
    let former = server.get("/api/v1/resources/RoutePolicy/users-api/conditions").json();
    assert_eq!((&former[1]["revision"], &former[1]["generation"]), (&1.into(), &1.into()));
}

#[test]
fn shows_at_the_issuer_that_its_keys_cannot_be_fetched() {
    let server = Server::empty();
    server.follow_keys();
    let issuer = "apiVersion: postern/v1\nkind: Issuer\nmetadata: { name: main }\n\
                  spec: { issuer: 'https://issuer', jwksUri: 'http://127.0.0.1:1/keys' }\n";
    assert_eq!(server.apply(issuer).status, 200);
    let begin = Instant::now();
    let found = loop {
        let conditions = server.get("/api/v1/resources/Issuer/main/conditions").json();
        let found = initialized(&conditions[0]["conditions"]);
        if found.0 == "False" {
            break found;
        }
        assert_eq!((found.0.as_str(), found.1.as_str()), ("Unknown", "KeysPending"));
        assert!(begin.elapsed() < Duration::from_secs(20), "{found:?}");
    };
    assert_eq!(found.1, "KeysUnavailable");
    assert!(found.2.starts_with("http://127.0.0.1:1/keys: "), "{found:?}");
    // The revision is what it was: the keys are not in it.
    let revision = server.get("/api/v1/revisions/1").json();
    assert_eq!(initialized(&revision["conditions"]).0, "True");
}

fn back(server: &Server, body: &Value) -> crate::server::ApiResponse {
    server.send("post", "/api/v1/rollback", &[], Some(body))
}

#[test]
fn goes_back_with_one_resource_and_leaves_all_others() {
    let server = Server::running();
    let changed = RESOURCES.replace("x-api-key", "x-key").replace("x-stage: canary", "x-stage: new");
    assert_eq!(server.apply(&changed).json()["revision"]["number"], 2);
    let only = json!([{ "kind": "routepolicy", "name": "users-api" }]);
    let outcome = back(&server, &json!({ "revision": 1, "only": only, "author": "bob" })).json();
    assert_eq!((&outcome["result"], &outcome["revision"]["number"]), (&"created".into(), &3.into()), "{outcome}");
    assert_eq!(outcome["revision"]["message"], "rollback of RoutePolicy `users-api` to revision 1");
    let policy = server.get("/api/v1/resources/RoutePolicy/users-api").json();
    assert_eq!(policy["spec"]["request"][0]["params"]["header"], "x-api-key");
    assert_eq!((&policy["status"]["file"], &policy["status"]["line"]), (&"revision-1/r.yaml".into(), &18.into()));
    let other = server.get("/api/v1/resources/RoutePolicy/canaries").json();
    assert_eq!(other["spec"]["response"][0]["params"]["set"]["x-stage"], "new");
    assert_eq!((&other["status"]["file"], &other["status"]["line"]), (&"r.yaml".into(), &27.into()), "where it was");
    let diff = server.get("/api/v1/revisions/3/diff").json();
    let resources: Vec<_> = diff["resources"].as_array().unwrap().iter().map(|found| &found["name"]).collect();
    assert_eq!(resources, ["users-api"]);
    // A deleted resource comes back.
    assert_eq!(server.send("delete", "/api/v1/resources/Consumer/app", &[], None).status, 200);
    let only = json!([{ "kind": "Consumer", "name": "app" }, { "kind": "RoutePolicy", "name": "canaries" }]);
    assert_eq!(back(&server, &json!({ "revision": 1, "only": only })).json()["result"], "created");
    assert_eq!(server.get("/api/v1/resources/Consumer/app").status, 200);
    let other = server.get("/api/v1/resources/RoutePolicy/canaries").json();
    assert_eq!(other["spec"]["response"][0]["params"]["set"]["x-stage"], "canary");
}

#[test]
fn goes_back_with_one_resource_only_if_it_was_there_and_fits() {
    let server = Server::running();
    let second = "---\napiVersion: postern/v1\nkind: Service\nmetadata: { name: second }\n\
                  spec: { endpoints: [{ address: 127.0.0.1, port: 9001 }] }\n";
    let moved = RESOURCES.replace("service: backend }", "service: second }");
    assert_eq!(server.apply(&format!("{moved}{second}")).json()["revision"]["number"], 2);
    let only = |kind: &str, name: &str| json!({ "revision": 1, "only": [{ "kind": kind, "name": name }] });
    let answer = back(&server, &only("Service", "second"));
    assert_eq!(answer.status, 404);
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "revision 1 has no Service `second`: `postern get --revision 1` lists what it has");
    assert_eq!(back(&server, &only("Servce", "second")).status, 404);
    let body = json!({ "revision": 9, "only": [{ "kind": "Service", "name": "second" }] });
    assert_eq!(
        back(&server, &body).json()["detail"],
        "revision 9 is not kept: `postern revisions` lists those that are"
    );

    // The service of the former Gateway is gone by now.
    assert_eq!(server.send("delete", "/api/v1/resources/Service/backend", &[], None).json()["revision"]["number"], 3);
    let answer = back(&server, &only("Gateway", "edge"));
    assert_eq!(answer.status, 409, "{}", answer.body);
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.starts_with("Gateway `edge` of revision 1 alone does not fit the other resources\nrevision-1/r.yaml:6:"),
        "{detail}"
    );
    assert!(detail.contains("unknown service `backend`"), "{detail}");
    assert_eq!(server.get("/api/v1/revisions").json().as_array().unwrap().len(), 3, "nothing was changed");
    let both = json!([{ "kind": "Gateway", "name": "edge" }, { "kind": "Service", "name": "backend" }]);
    assert_eq!(back(&server, &json!({ "revision": 1, "only": both })).status, 200);
}

#[test]
fn the_last_guard_of_a_route_does_not_go_with_one_resource_either() {
    let server = Server::empty();
    let open = RESOURCES.replace("policy: apiKeyAuth\n      params: { header: x-api-key }", "policy: requestId");
    assert_eq!(server.apply(&open).json()["revision"]["number"], 1);
    assert_eq!(server.apply(RESOURCES).json()["revision"]["number"], 2);
    let only = json!([{ "kind": "RoutePolicy", "name": "users-api" }]);
    let answer = back(&server, &json!({ "revision": 1, "only": only }));
    assert_eq!(answer.status, 409);
    assert!(answer.body.contains("would leave routes without authentication"), "{}", answer.body);
    assert_eq!(back(&server, &json!({ "revision": 1, "only": only, "allowUnguarded": true })).status, 200);
}

#[test]
fn purges_a_deleted_resource_from_all_revisions() {
    let server = Server::running();
    let purge = |body: &Value| server.send("post", "/api/v1/purge", &[], Some(body));
    let app = json!({ "resource": { "kind": "Consumer", "name": "app" }, "author": "bob" });
    let refused = purge(&app);
    assert_eq!(refused.status, 409);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    let expect =
        "Consumer `app` cannot be purged: revision 1, in force, has it; delete it first, and let the rollout end";
    assert_eq!(detail, expect);
    assert_eq!(server.send("delete", "/api/v1/resources/Consumer/app", &[], None).status, 200);
    let refused = purge(&app).json();
    assert!(refused["detail"].as_str().unwrap().contains("revision 1, which the rollout needs, has it"), "{refused}");
    server.settle_all();
    assert_eq!(server.get("/api/v1/rollout").json()["state"], "completed");

    // It was looked at before, and is remembered nowhere.
    assert!(server.get("/api/v1/revisions/1/resources").body.contains("\"app\""));
    let dry = json!({ "resource": { "kind": "Consumer", "name": "app" }, "dryRun": true });
    assert_eq!(purge(&dry).json()["revisions"], json!([1]));
    assert!(server.get("/api/v1/revisions/1/resources").body.contains("\"app\""), "nothing was changed");
    assert_eq!(purge(&app).json()["revisions"], json!([1]));
    assert!(!server.get("/api/v1/revisions/1/resources").body.contains("\"app\""));
    let revision = server.get("/api/v1/revisions/1").json();
    assert_eq!(
        (&revision["purged"], &revision["digest"], &revision["documents"]),
        (&json!(["Consumer `app`"]), &"".into(), &4.into())
    );
    let events = server.get("/api/v1/events?last=100&follow=false").body;
    assert!(events.contains("event: resourcePurged") && events.contains(r#""author":"bob""#), "{events}");
    assert_eq!(purge(&app).status, 404, "it is gone");

    // What is not whole is not gone back to as if it were.
    let answer = back(&server, &json!({ "revision": 1 }));
    assert_eq!(answer.status, 409);
    assert!(
        answer.body.contains("revision 1 is no longer whole, since Consumer `app` was purged from it"),
        "{}",
        answer.body
    );
    let only = |kind: &str, name: &str| json!({ "revision": 1, "only": [{ "kind": kind, "name": name }] });
    assert_eq!(back(&server, &only("Consumer", "app")).status, 404);
    assert_eq!(back(&server, &only("RoutePolicy", "canaries")).status, 200);
    assert_eq!(server.get("/api/v1/resources/RoutePolicy/users-api").status, 200, "what is in force is as it was");
}

/// What a followed directory proposes.
pub(crate) fn followed(text: &str) -> Proposal {
    let files = vec![File { name: "r.yaml".to_owned(), bytes: text.as_bytes().to_vec() }];
    let (author, message) = ("directory".to_owned(), String::new());
    Proposal {
        files,
        author,
        message,
        parent: Parent::Latest,
        again: false,
        allow_unguarded: false,
        ..Proposal::default()
    }
}

/// Lets `edge-1` refuse the plan that it is served.
pub(crate) fn refuse(server: &Server) {
    let publication = server.plane.publications().latest().unwrap();
    let node = NodeIdentity { id: "edge-1".to_owned(), service: "edge".to_owned(), ..NodeIdentity::default() };
    let version = publication.snapshot_for(&node).select(ResourceType::ExtensionConfig, &Selection::Everything).version;
    let (message, resources) = ("no such plugin".to_owned(), Vec::new());
    let kind = ResourceType::ExtensionConfig;
    let refused = Event::Nacked { kind, version, message, resources, carried: Vec::new() };
    server.learn("edge-1", 1, vec![refused], None);
    server.plane.commands().look().wait().unwrap();
}

/// A server whose directory became revision 2, which a node refused, and what the directory says.
fn taken_back() -> (Server, String) {
    let server = Server::running();
    server.plane.commands().follow(followed(RESOURCES)).wait().unwrap();
    let changed = RESOURCES.replace("x-api-key", "x-key");
    server.plane.commands().follow(followed(&changed)).wait().unwrap();
    refuse(&server);
    assert_eq!(server.get("/api/v1/rollout").json()["state"], "rolledBack");
    (server, changed)
}

#[test]
fn an_unrelated_edit_of_the_directory_does_not_bring_back_what_was_taken_back() {
    let (server, changed) = taken_back();
    let held = server.get("/status").json()["directory"].clone();
    assert_eq!((&held["revision"], &held["to"]), (&2.into(), &1.into()), "{held}");
    assert_eq!(held["resources"], json!(["RoutePolicy `users-api`"]));
    assert_eq!(held["reason"], "node `edge-1`: ECDS: no such plugin");
    let unrelated = changed.replace("x-stage: canary", "x-stage: new");
    for text in [&unrelated, &format!("# a comment\n{changed}"), &changed.replace("a-secret-key", "another-key")] {
        let error = server.plane.commands().follow(followed(text)).wait().unwrap_err().to_string();
        let expect = "the directory still says what was taken back with revision 2 (node `edge-1`: ECDS: no such plugin), so that \
                      nothing of it is applied: change RoutePolicy `users-api`, or put it in force once more with `postern apply`";
        assert_eq!(error, expect);
    }
    // The same again is no error: it was heard before.
    server.plane.commands().follow(followed(&changed)).wait().unwrap();
    assert_eq!(server.get("/api/v1/revisions").json().as_array().unwrap().len(), 2);
    assert_eq!(server.get("/status").json()["directory"], held);
    // A change there counts, and brings the rest along.
    server.plane.commands().follow(followed(&unrelated.replace("x-key", "x-other"))).wait().unwrap();
    let status = server.get("/status").json();
    assert_eq!((&status["directory"], &status["rollout"]["candidate"]), (&Value::Null, &3.into()));
}

#[test]
fn what_is_in_force_by_other_ways_is_no_longer_held_back() {
    let (server, changed) = taken_back();
    // Somebody puts it in force once more, and the nodes take it by now.
    assert_eq!(server.apply(&changed).json()["revision"]["number"], 3);
    assert_eq!(server.get("/status").json()["directory"], Value::Null);
    let unrelated = changed.replace("x-stage: canary", "x-stage: new");
    server.plane.commands().follow(followed(&unrelated)).wait().unwrap();
    assert_eq!(server.get("/api/v1/rollout").json()["candidate"], 4);
}

#[test]
fn an_abort_and_a_rollback_hold_back_what_the_directory_says() {
    let changed = RESOURCES.replace("x-api-key", "x-key");
    let unrelated = changed.replace("x-stage: canary", "x-stage: new");
    let check = |way_back: &dyn Fn(&Server), reason: &str| {
        let server = Server::running();
        server.plane.commands().follow(followed(RESOURCES)).wait().unwrap();
        server.plane.commands().follow(followed(&changed)).wait().unwrap();
        way_back(&server);
        assert_eq!(server.get("/status").json()["directory"]["reason"], reason);
        let error = server.plane.commands().follow(followed(&unrelated)).wait().unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("change RoutePolicy `users-api`"), "{error}");
        let header = || {
            server.get("/api/v1/resources/RoutePolicy/users-api").json()["spec"]["request"][0]["params"]["header"]
                .clone()
        };
        assert_eq!(header(), "x-api-key");
    };
    check(&|server| server.plane.commands().steer(Steering::Abort).wait().unwrap(), "it was aborted");
    let whole = |server: &Server| assert_eq!(back(server, &json!({ "revision": 1, "author": "bob" })).status, 200);
    check(&whole, "bob went back to revision 1");
    let only = json!([{ "kind": "RoutePolicy", "name": "users-api" }]);
    let alone = |server: &Server| {
        assert_eq!(back(server, &json!({ "revision": 1, "only": only, "author": "bob" })).status, 200)
    };
    check(&alone, "bob went back to revision 1");
}
