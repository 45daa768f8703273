//! Operators' questions: which node runs what, what guards a route there, health and metrics.

use postern_base::node::NodeIdentity;
use postern_tools::explain::Subject;
use serde_json::{Value, json};

use crate::server::{RESOURCES, Server};

#[test]
fn says_what_each_node_is_and_runs() {
    let server = Server::running();
    let nodes = server.get("/api/v1/nodes").json();
    let edge_2 = &nodes[1];
    assert_eq!((&edge_2["id"], &edge_2["tags"]["stage"]), (&"edge-2".into(), &"canary".into()));
    assert_eq!((&edge_2["state"], &edge_2["revision"], &edge_2["target"]), (&"ready".into(), &1.into(), &1.into()));
    assert!(edge_2["types"]["extensionConfig"]["running"].is_string());
    // A revision that the node has not answered yet.
    assert_eq!(server.apply(&RESOURCES.replace("x-stage: canary", "x-stage: new")).status, 200);
    let nodes = server.get("/api/v1/nodes").json();
    let seen = |node: &Value| (node["state"].clone(), node["revision"].clone(), node["target"].clone());
    assert_eq!(seen(&nodes[1]), ("pending".into(), 1.into(), 2.into()));
    // For the other node both revisions are the same: its stream has nothing to send, and settles at once.
    server.settle(&NodeIdentity { id: "edge-1".to_owned(), service: "edge".to_owned(), ..NodeIdentity::default() }, 1);
    let nodes = server.get("/api/v1/nodes").json();
    assert_eq!(seen(&nodes[0]), ("ready".into(), 2.into(), 2.into()));
    server.plane.fleet().disconnect("edge-2", 2, std::time::SystemTime::now());
    assert_eq!(server.get("/api/v1/nodes/edge-2").json()["state"], "gone");
}

#[test]
fn explains_what_is_in_force_at_a_node_of_the_fleet() {
    let server = Server::running();
    let explain = |body: Value| server.send("post", "/api/v1/explain", &[], Some(&body)).json();
    let canary = explain(json!({ "node": { "id": "edge-2" }, "route": "users" }));
    assert_eq!((&canary["node"]["service"], &canary["node"]["tags"]["stage"]), (&"edge".into(), &"canary".into()));
    assert_eq!(
        (canary["request"][0]["name"].clone(), canary["response"][0]["name"].clone()),
        ("apiKeyAuth".into(), "headers".into())
    );
    assert_eq!(canary["request"][0]["origins"][0]["line"], 24);
    let other = explain(json!({ "node": { "id": "edge-1" }, "route": "users" }));
    assert_eq!(other["response"], json!([]));
    let simulate = |key: &str| {
        let request = json!({ "path": "/users", "headers": { "x-api-key": key } });
        let body = json!({ "node": { "id": "edge-1" }, "route": "users", "request": request });
        server.send("post", "/api/v1/simulate", &[], Some(&body)).json()
    };
    // A misspelt route is not reported as one without guards.
    let body = json!({ "node": { "id": "edge-1" }, "route": "usres", "request": { "path": "/users" } });
    let slip = server.send("post", "/api/v1/simulate", &[], Some(&body)).json();
    assert_eq!(slip["hint"], "no resource names route `usres`: did you mean `users`?");
    // Without a route, it is the one that the request takes.
    let take = |path: &str| {
        let body = json!({ "node": { "id": "edge-1" }, "request": { "path": path } });
        server.send("post", "/api/v1/simulate", &[], Some(&body)).json()
    };
    let users = take("/users");
    assert_eq!((&users["route"], &users["decision"]["status"]), (&"users".into(), &401.into()));
    let nowhere = take("/nowhere");
    assert_eq!(
        (&nowhere["reached"]["answer"]["status"], &nowhere["decision"]["verdict"]),
        (&404.into(), &"unrouted".into())
    );
    let denied = simulate("wrong");
    assert_eq!(denied["hint"], Value::Null);
    assert_eq!((&denied["revision"], &denied["decision"]["verdict"]), (&1.into(), &"deny".into()));
    assert_eq!((&denied["decision"]["status"], &denied["decision"]["step"]), (&401.into(), &"apiKeyAuth".into()));
    let allowed = simulate("a-secret-key");
    assert_eq!((&allowed["decision"]["verdict"], &allowed["decision"]["consumer"]), (&"allow".into(), &"app".into()));
    // The error messages equal those of the directory mode.
    let files = [postern_model::File { name: "r.yaml".to_owned(), bytes: RESOURCES.as_bytes().to_vec() }];
    let node =
        serde_json::from_value::<std::collections::BTreeMap<String, String>>(json!({ "stage": "canary" })).unwrap();
    let node = NodeIdentity { id: "edge-2".to_owned(), service: "edge".to_owned(), tags: node, ..Default::default() };
    let bundle = postern_model::read(&files).unwrap();
    let subject = Subject { route: Some("users"), ..Subject::default() };
    let local = postern_tools::explain::explain(&bundle, &node, subject).unwrap();
    assert_eq!(serde_json::to_value(local).unwrap(), canary);
}

#[test]
fn hides_credentials_in_explanations() {
    let server = Server::empty();
    let text = RESOURCES.replace("x-stage: canary", "authorization: Basic c2VjcmV0, x-stage: canary");
    assert_eq!(server.apply(&text).status, 200);
    let body = json!({ "node": { "tags": { "stage": "canary" } }, "route": "users" });
    let answer = server.send("post", "/api/v1/explain", &[], Some(&body));
    assert!(answer.body.contains("authorization") && !answer.body.contains("c2VjcmV0"), "{}", answer.body);
}

#[test]
fn is_ready_once_something_is_in_force_and_says_why_not() {
    let server = Server::empty();
    assert_eq!((server.get("/healthz").status, server.get("/healthz").body.as_str()), (200, "ok\n"));
    let not_yet = server.get("/readyz");
    assert_eq!((not_yet.status, not_yet.json()["detail"].as_str().unwrap()), (503, "nothing is in force yet"));
    server.plane.commands().refuse(&"a.yaml:1:1: not valid").wait().unwrap();
    assert!(server.get("/readyz").body.contains("and this was refused:\\na.yaml:1:1: not valid"));
    assert_eq!(server.apply(RESOURCES).status, 200);
    assert_eq!(server.get("/readyz").status, 200);
}

/// Prometheus asks for OpenMetrics, in which a counter's family has no `_total`.
#[test]
fn counts_in_open_metrics_for_those_who_ask() {
    let server = Server::running();
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    let answer = server.send("get", "/metrics", &[("accept", accept)], None);
    assert_eq!(answer.content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(answer.body.ends_with("\n# EOF\n"), "{}", answer.body);
    for expect in ["# TYPE postern_applies counter", "postern_applies_total{result=\"created\"} 1"] {
        assert!(answer.body.lines().any(|line| line == expect), "`{expect}` is not in:\n{}", answer.body);
    }
    for (accept, expect) in [("*/*", "text/plain"), ("text/plain, application/json", "text/plain")] {
        let answer = server.send("get", "/metrics", &[("accept", accept)], None);
        assert_eq!(answer.content_type, format!("{expect}; version=0.0.4"));
        assert!(!answer.body.contains("# EOF"));
    }
    // The same series in both.
    let series = |text: &str| {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let plain = server.get("/metrics").body;
    assert_eq!(series(&plain), series(&server.send("get", "/metrics", &[("accept", accept)], None).body));
}

/// Every line of the text is a comment or `name{label="value"} number`, and every metric has a type.
#[test]
fn counts_in_the_text_that_prometheus_reads() {
    let server = Server::running();
    assert_eq!(server.apply("kind: Gatewya").status, 422);
    let text = server.get("/metrics");
    assert_eq!(text.content_type, "text/plain; version=0.0.4");
    let mut typed = std::collections::BTreeSet::new();
    for line in text.body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(typed.insert(rest.split(' ').next().unwrap().to_owned()), "twice: {line}");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = name.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        assert!(typed.contains(family) || typed.contains(name), "no type: {line}");
    }
    for expect in [
        "postern_nodes{state=\"ready\"} 2",
        "postern_nodes{state=\"gone\"} 0",
        "postern_xds_streams 2",
        "postern_revision 1",
        "postern_revision_last_good 1",
        "postern_revisions_kept 1",
        "postern_rollout_state{state=\"completed\"} 1",
        "postern_rollouts_total{outcome=\"completed\"} 1",
        "postern_applies_total{result=\"created\"} 1",
        "postern_applies_total{result=\"invalid\"} 1",
        "postern_apply_seconds_count 2",
        "postern_http_requests_total{operation=\"apply\",code=\"422\"} 1",
    ] {
        assert!(text.body.lines().any(|line| line == expect), "`{expect}` is not in:\n{}", text.body);
    }
}
