//! Resources: listing, showing, deleting and comparing them, and their conditions.

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::snapshot::ResourceType;
use postern_deliver::xds::session::Event;
use serde_json::{Value, json};

use crate::server::{RESOURCES, Server};

fn names(listing: &Value) -> Vec<(&str, &str)> {
    let resources = listing.as_array().unwrap().iter();
    resources.map(|found| (found["kind"].as_str().unwrap(), found["metadata"]["name"].as_str().unwrap())).collect()
}

#[test]
fn lists_resources_by_kind_and_hides_credentials() {
    let server = Server::running();
    let all = server.get("/api/v1/resources");
    let expect = [
        ("Consumer", "app"),
        ("Gateway", "edge"),
        ("RoutePolicy", "canaries"),
        ("RoutePolicy", "users-api"),
        ("Service", "backend"),
    ];
    assert_eq!(names(&all.json()), expect);
    assert!(!all.body.contains("a-secret-key"), "{}", all.body);
    let policies = server.get("/api/v1/resources/RoutePolicy").json();
    assert_eq!(names(&policies), [("RoutePolicy", "canaries"), ("RoutePolicy", "users-api")]);
    let one = server.get("/api/v1/resources/routepolicy/users-api").json();
    assert_eq!(one["spec"]["request"][0]["policy"], "apiKeyAuth");
    assert_eq!((&one["status"]["file"], &one["status"]["line"]), (&"r.yaml".into(), &18.into()));
    let yaml = server.send("get", "/api/v1/resources/RoutePolicy/users-api", &[("accept", "application/yaml")], None);
    assert!(
        yaml.body.starts_with("apiVersion: postern/v1\nkind: RoutePolicy\nmetadata:\n  name: users-api\n"),
        "{}",
        yaml.body
    );
}

/// The nodes in a resource's conditions for the revision in force, each with its status and reason.
fn nodes_of(server: &Server, resource: &str) -> Vec<(String, String, String)> {
    let revisions = server.get(&format!("/api/v1/resources/{resource}/conditions")).json();
    let in_force = revisions.as_array().unwrap().iter().find(|revision| revision["inForce"] == true).unwrap();
    let conditions = in_force["conditions"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_nodes = conditions.iter().filter(|condition| condition["node"].is_string());
    of_nodes.map(|found| (text(&found["node"]), text(&found["status"]), text(&found["reason"]))).collect()
}

#[test]
fn speaks_of_the_nodes_that_a_resource_concerns_and_of_no_others() {
    let server = Server::running();
    let acked = |node: &str| (node.to_owned(), "True".to_owned(), "Acked".to_owned());
    assert_eq!(nodes_of(&server, "RoutePolicy/users-api"), [acked("edge-1"), acked("edge-2")]);
    assert_eq!(nodes_of(&server, "RoutePolicy/canaries"), [acked("edge-2")]);
    let conditions = server.get("/api/v1/resources/RoutePolicy/canaries/conditions").json();
    let all = conditions[0]["conditions"].as_array().unwrap();
    let ready = all.iter().find(|found| found["type"] == "Ready" && found["node"].is_null()).unwrap();
    assert_eq!((&ready["status"], &ready["message"]), (&"True".into(), &"1 of 1 nodes run it".into()));
}

#[test]
fn shows_at_the_resource_which_node_refused_it_and_why() {
    let server = Server::running();
    assert_eq!(server.apply(&RESOURCES.replace("x-api-key", "x-key")).json()["revision"]["number"], 2);
    let publication = server.plane.publications().latest().unwrap();
    let node = NodeIdentity { id: "edge-1".to_owned(), service: "edge".to_owned(), ..NodeIdentity::default() };
    let snapshot = publication.snapshot_for(&node);
    let all = postern_compile::snapshot::Selection::Everything;
    let version = snapshot.select(ResourceType::ExtensionConfig, &all).version;
    let (message, resources) = ("no such plugin".to_owned(), Vec::new());
    let refused =
        Event::Nacked { kind: ResourceType::ExtensionConfig, version, message, resources, carried: Vec::new() };
    server.learn("edge-1", 1, vec![refused], Some("header `x-key` is odd".to_owned()));
    server.plane.commands().look().wait().unwrap();

    assert_eq!(server.get("/api/v1/rollout").json()["state"], "rolledBack");
    let resource = server.get("/api/v1/resources/RoutePolicy/users-api").json();
    assert_eq!(
        resource["spec"]["request"][0]["params"]["header"], "x-api-key",
        "what is in force is the last good one"
    );
    let revisions = resource["status"]["revisions"].as_array().unwrap();
    assert_eq!(
        revisions.iter().map(|found| (&found["revision"], &found["inForce"])).collect::<Vec<_>>(),
        [(&2.into(), &false.into()), (&1.into(), &true.into())]
    );
    let refused =
        revisions[0]["conditions"].as_array().unwrap().iter().find(|found| found["node"] == "edge-1").unwrap();
    assert_eq!((&refused["status"], &refused["reason"]), (&"False".into(), &"Rejected".into()));
    assert!(refused["message"].as_str().unwrap().contains("header `x-key` is odd"), "{refused}");
    // The next look and the next revision keep it.
    server.plane.commands().look().wait().unwrap();
    assert_eq!(server.get("/api/v1/resources/RoutePolicy/users-api").json()["status"], resource["status"]);
    let node = server.get("/api/v1/nodes/edge-1").json();
    assert_eq!((&node["state"], &node["target"]), (&"refusing".into(), &1.into()));
}

#[test]
fn deletes_a_resource_as_a_new_revision_and_keeps_what_others_need() {
    let server = Server::running();
    let delete = |resource: &str, headers: &[(&str, &str)]| {
        server.send("delete", &format!("/api/v1/resources/{resource}"), headers, None)
    };
    let refused = delete("Service/backend", &[]);
    assert_eq!(refused.status, 409);
    let problem = refused.json();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("Service `backend` cannot be deleted: other resources need it\nr.yaml:6:"), "{detail}");
    assert!(detail.contains("unknown service `backend`"), "{detail}");
    assert_eq!(problem["errors"][0]["resource"], "Gateway `edge`");

    assert_eq!(delete("Consumer/app?dryRun=true", &[]).json()["result"], "valid");
    assert_eq!(server.get("/api/v1/revisions").json().as_array().unwrap().len(), 1, "nothing was changed");
    let outcome = delete("Consumer/app?author=bob", &[("if-match", "\"1\"")]).json();
    assert_eq!((&outcome["result"], &outcome["revision"]["number"]), (&"created".into(), &2.into()));
    assert_eq!(
        (&outcome["revision"]["author"], &outcome["revision"]["message"]),
        (&"bob".into(), &"delete Consumer `app`".into())
    );
    assert_eq!(server.get("/api/v1/resources/Consumer/app").status, 404);
    assert_eq!(delete("Consumer/app", &[]).status, 404);
    assert_eq!(delete("RoutePolicy/canaries", &[("if-match", "\"1\"")]).status, 412);
    assert_eq!(server.get("/api/v1/resources/RoutePolicy/canaries").status, 200);
    let back = server.send("post", "/api/v1/rollback", &[], Some(&json!({ "revision": 1 }))).json();
    assert_eq!(back["revision"]["number"], 3);
    assert_eq!(server.get("/api/v1/resources/Consumer/app").status, 200);
}

#[test]
fn says_what_a_bundle_would_change_and_changes_nothing() {
    let server = Server::running();
    let diff = |text: &str| {
        let body = json!({ "files": [{ "name": "r.yaml", "text": text }] });
        server.send("post", "/api/v1/diff", &[], Some(&body)).json()
    };
    let none = diff(RESOURCES);
    assert_eq!((&none["from"], &none["resources"], &none["nodes"]), (&1.into(), &json!([]), &json!([])));
    let some = diff(&RESOURCES.replace("x-stage: canary", "x-stage: new"));
    let resource = &some["resources"][0];
    assert_eq!(
        (&resource["kind"], &resource["name"], &resource["change"]),
        (&"RoutePolicy".into(), &"canaries".into(), &"changed".into())
    );
    let field = json!({ "field": "spec.response[0].params.set.x-stage", "before": "canary", "after": "new" });
    assert_eq!(resource["fields"], json!([field]));
    let nodes: Vec<_> = some["nodes"].as_array().unwrap().iter().map(|node| &node["id"]).collect();
    assert_eq!(nodes, ["edge-2"], "only the canary gets something else");
    let routes = some["routes"].as_array().unwrap();
    let users = routes.iter().find(|route| route["route"] == "users" && route["nodes"] == json!(["edge-2"])).unwrap();
    assert_eq!((&users["steps"][0]["phase"], &users["steps"][0]["step"]), (&"response".into(), &"headers".into()));
    assert_eq!(server.get("/api/v1/revisions").json().as_array().unwrap().len(), 1);
}

#[test]
fn compares_revisions() {
    let server = Server::running();
    assert_eq!(server.apply(&RESOURCES.replace("x-api-key", "x-key")).status, 200);
    let diff = server.get("/api/v1/revisions/2/diff").json();
    assert_eq!((&diff["from"], &diff["to"]), (&1.into(), &2.into()));
    assert_eq!(diff["resources"][0]["fields"][0]["after"], "x-key");
    let back = server.get("/api/v1/revisions/1/diff?against=2").json();
    assert_eq!(back["resources"][0]["fields"][0]["after"], "x-api-key");
    let first = server.get("/api/v1/revisions/1/diff").json();
    assert_eq!((first["from"].is_null(), first["resources"].as_array().unwrap().len()), (true, 5));
    let content = server.get("/api/v1/revisions/1/resources");
    assert_eq!(content.json().as_array().unwrap().len(), 5);
    assert!(!content.body.contains("a-secret-key"));
    let digest = Digest::of(b"");
    assert_ne!(server.get("/api/v1/revisions/2").json()["digest"], digest.as_str());
}
