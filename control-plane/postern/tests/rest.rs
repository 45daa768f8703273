//! Polling over HTTP, as Envoy does it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use postern::{
    control_plane::ControlPlane,
    serve::{Sockets, serve},
};
use postern_compile::snapshot::{FilterCode, ResourceType, Selection};
use postern_fixtures::{SITE, snapshot};
use postern_model::protobuf_json::{self, Unknown, read_any};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The site, another Service, and a cluster of a user's own.
static RESOURCES: LazyLock<String> = LazyLock::new(|| {
    let others = r#"
apiVersion: postern/v1
kind: Service
metadata: { name: b }
spec: { endpoints: [{ address: 127.0.0.1, port: 9001 }] }
---
apiVersion: postern/v1
kind: EnvoyResource
metadata: { name: c }
spec:
  resource:
    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: c
    eds_cluster_config: { eds_config: { ads: {} } }
"#;
    format!("{SITE}---{others}")
});

/// A control plane's servers, on a free port.
struct Server {
    plane: Arc<ControlPlane>,
    http: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = runtime.block_on(Sockets::bind(any, any)).unwrap();
        let http = sockets.http_address().unwrap();
        let plane = Arc::new(ControlPlane::new(FilterCode::new(Vec::new(), None)));
        runtime.spawn(serve(Arc::clone(&plane), sockets));
        Self { plane, http, _runtime: runtime }
    }

    fn serving(resources: &str) -> Self {
        let server = Self::start();
        server.plane.commands().publish(snapshot(resources)).wait().unwrap();
        server
    }

    /// Posts a request. Returns status, content type and body.
    fn post(&self, service: &str, body: &str) -> (u16, String, String) {
        let url = format!("http://{}/v3/discovery:{service}", self.http);
        let request = ureq::post(url).config().http_status_as_error(false).build();
        let mut answer = request.header("host", "postern").content_type("application/json").send(body).unwrap();
        let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        (answer.status().as_u16(), kind.unwrap_or_default(), answer.body_mut().read_to_string().unwrap())
    }

    fn poll(&self, service: &str, version: &str, names: &[&str]) -> (u16, Value) {
        let request = json!({"versionInfo": version, "node": {"id": "a", "cluster": "web"}, "resourceNames": names});
        let (status, _, body) = self.post(service, &request.to_string());
        (status, if body.is_empty() { Value::Null } else { serde_json::from_str(&body).unwrap() })
    }
}

/// The names of clusters or endpoints in an answer.
fn names(answer: &Value) -> Vec<&str> {
    let resources = answer["resources"].as_array().unwrap();
    resources.iter().map(|one| one["name"].as_str().or(one["clusterName"].as_str()).unwrap()).collect()
}

#[test]
fn case_37_a_poll_at_the_current_version_gets_304() {
    let server = Server::serving(&RESOURCES);
    let (status, answer) = server.poll("clusters", "", &[]);
    assert_eq!((status, names(&answer)), (200, vec!["a", "b", "c"]));
    assert_eq!(answer["typeUrl"], ResourceType::Cluster.type_url());
    let version = answer["versionInfo"].as_str().unwrap();
    assert_eq!(server.poll("clusters", version, &[]), (304, Value::Null));
    // Versions are those of streams, and of each selection.
    let set = snapshot(&RESOURCES).select(ResourceType::Cluster, &Selection::Everything);
    assert_eq!(version, set.version.as_str());
    assert_eq!(server.poll("clusters", version, &["a"]).0, 200);
    // A change is seen by the next poll; a change of something else is not one.
    server.plane.commands().publish(snapshot(&RESOURCES.replace("port: 8080", "port: 8081"))).wait().unwrap();
    assert_eq!(server.poll("clusters", version, &[]).0, 304);
    server.plane.commands().publish(snapshot(&RESOURCES.replace("name: c\n", "name: d\n"))).wait().unwrap();
    let (status, answer) = server.poll("clusters", version, &[]);
    assert_eq!((status, names(&answer)), (200, vec!["a", "b", "d"]));
}

#[test]
fn case_37_bad_requests_get_400_and_a_problem_document() {
    let server = Server::serving(&RESOURCES);
    let check = |body: &str, expect: &str| {
        let (status, kind, problem) = server.post("listeners", body);
        assert_eq!((status, kind.as_str()), (400, "application/problem+json"), "{problem}");
        let problem: Value = serde_json::from_str(&problem).unwrap();
        assert_eq!(problem["status"], 400);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(expect), "`{expect}` is not in `{detail}`");
    };
    check("{", "the body is not JSON: EOF");
    check("", "the body is not JSON: EOF");
    check("[]", "the body is not a DiscoveryRequest: expected a mapping, found a list");
    check(r#"{"node": {"id": 5}}"#, "node.id: expected a string, found a number");
    check(r#"{"resource_names": "a"}"#, "resource_names: expected a list, found a string");
    check("{}", "node: missing required field `id`");
    check(r#"{"node": {"cluster": "web"}}"#, "node: missing required field `id`");
    let cluster = format!(r#"{{"node": {{"id": "a"}}, "type_url": "{}"}}"#, ResourceType::Cluster.type_url());
    check(&cluster, "type_url: expected `type.googleapis.com/envoy.config.listener.v3.Listener` at this path");
}

#[test]
fn case_37_names_are_filtered() {
    let server = Server::serving(&RESOURCES);
    let check = |service: &str, wanted: &[&str], expect: &[&str]| {
        let (status, answer) = server.poll(service, "", wanted);
        assert_eq!((status, names(&answer)), (200, expect.to_vec()), "{wanted:?}");
    };
    check("endpoints", &["b"], &["b"]);
    check("endpoints", &["b", "nowhere"], &["b"]);
    check("endpoints", &["nowhere"], &[]);
    check("endpoints", &["*"], &["a", "b"]);
    check("endpoints", &[], &[]);
    check("clusters", &["c"], &["c"]);
    check("routes", &["edge"], &["edge"]);
    check("extension_configs", &["postern"], &["postern"]);
    check("listeners", &[], &["edge/http"]);
    check("secrets", &["x"], &[]);
}

#[test]
fn answers_are_canonical_json_of_the_very_resources() {
    let server = Server::serving(&RESOURCES);
    let snapshot = snapshot(&RESOURCES);
    for (service, kind) in
        [("endpoints", ResourceType::Endpoints), ("extension_configs", ResourceType::ExtensionConfig)]
    {
        let (_, answer) = server.poll(service, "", &["*"]);
        let response: DiscoveryResponse = protobuf_json::read(&answer, Unknown::Refused).unwrap();
        let bodies: Vec<_> =
            snapshot.select(kind, &Selection::Everything).resources.iter().map(|one| one.body.clone()).collect();
        assert!(!bodies.is_empty());
        assert_eq!(response.resources, bodies);
        assert!(read_any(&answer["resources"][0], Unknown::Refused).is_ok());
    }
}

#[test]
fn generated_resources_refer_to_polling_and_raw_ones_are_served_as_they_are() {
    let server = Server::serving(&RESOURCES);
    let poll =
        json!({"apiType": "REST", "transportApiVersion": "V3", "clusterNames": ["postern"], "refreshDelay": "1s"});
    let (_, clusters) = server.poll("clusters", "", &[]);
    assert_eq!(clusters["resources"][0]["edsClusterConfig"]["edsConfig"]["apiConfigSource"], poll);
    assert_eq!(clusters["resources"][2]["edsClusterConfig"]["edsConfig"], json!({"ads": {}}));
    let (_, listeners) = server.poll("listeners", "", &[]);
    let manager = &listeners["resources"][0]["filterChains"][0]["filters"][0]["typedConfig"];
    assert_eq!(manager["rds"]["configSource"]["apiConfigSource"], poll);
    assert_eq!(manager["httpFilters"][0]["configDiscovery"]["configSource"]["apiConfigSource"], poll);
}

#[test]
fn before_anything_is_in_force_a_poll_is_to_come_again() {
    let server = Server::start();
    let (status, problem) = server.poll("clusters", "", &[]);
    assert_eq!((status, problem["detail"].as_str()), (503, Some("there is nothing in force yet")));
}
