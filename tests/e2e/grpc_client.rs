//! gRPC's own xDS client, which asks for a listener, routes, clusters and endpoints by name and listens on nothing.

use std::{fs, path::Path, process::Command};

use postern_tests::{
    ControlPlane,
    control_plane::from_environment,
    process::Process,
    site::{repository, write_whole},
    wait,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{node, running};

/// The target that the client calls. It is the name of the listener that it asks for.
const TARGET: &str = "echo.test";
const FILE: &str = "resources.yaml";
const TYPES: [&str; 4] = ["listener", "routeConfiguration", "cluster", "endpoints"];

/// Python with `grpcio`, and the program of these tests.
fn echo(arguments: &[&str]) -> Command {
    let mut command = Command::new(from_environment("POSTERN_GRPC_PYTHON").unwrap());
    command.arg(repository().join("tests/e2e/grpc/echo.py")).args(arguments);
    command
}

/// A server that answers with its name.
struct Server {
    port: u16,
    _process: Process,
}

impl Server {
    fn start(name: &str) -> Self {
        let mut process = Process::start("the echo server", &mut echo(&["serve", name])).unwrap();
        let port = |line: &str| line.strip_prefix("listening on ")?.parse().ok();
        Self { port: process.wait_for_line("its port", port).unwrap(), _process: process }
    }
}

/// A client that calls continuously and prints who answered.
struct Client {
    process: Process,
    _directory: TempDir,
}

impl Client {
    fn start(control_plane: &ControlPlane) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bootstrap = directory.path().join("bootstrap.json");
        let server = json!({
            "server_uri": control_plane.xds().to_string(),
            "channel_creds": [{ "type": "insecure" }],
            "server_features": ["xds_v3"],
        });
        let node = json!({ "id": "grpc-client", "cluster": "callers" });
        fs::write(&bootstrap, json!({ "xds_servers": [server], "node": node }).to_string()).unwrap();
        let mut command = echo(&["call", &format!("xds:///{TARGET}")]);
        let process = Process::start("the gRPC client", command.env("GRPC_XDS_BOOTSTRAP", &bootstrap)).unwrap();
        Self { process, _directory: directory }
    }

    /// Waits until a server of this name answers the calls that are made from now on.
    fn wait_until_answered_by(&self, name: &str) {
        let before = self.process.stdout_len();
        wait::until_true(&format!("an answer of `{name}`"), || {
            Ok(self.process.stdout().iter().skip(before).any(|line| line == name))
        })
        .unwrap();
    }

    /// Every answer so far, without repetition.
    fn answers(&self) -> Vec<String> {
        let mut answers = self.process.stdout();
        answers.dedup();
        answers
    }
}

fn raw(name: &str, resource: &Value) -> String {
    let document = json!({
        "apiVersion": "postern/v1",
        "kind": "EnvoyResource",
        "metadata": { "name": name },
        "spec": { "resource": resource },
    });
    format!("---\n{document}\n")
}

/// A client has no sockets to listen on, hence `api_listener`.
fn listener() -> String {
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let manager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    raw(
        "listener",
        &json!({
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
            "name": TARGET,
            "api_listener": { "api_listener": {
                "@type": format!("type.googleapis.com/{manager}"),
                "rds": { "route_config_name": "echo-routes", "config_source": { "ads": {} } },
                "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": { "@type": router } }],
            } },
        }),
    )
}

fn routes(cluster: &str) -> String {
    let route = json!({ "match": { "prefix": "/echo.Echo/" }, "route": { "cluster": cluster } });
    raw(
        "routes",
        &json!({
            "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            "name": "echo-routes",
            "virtual_hosts": [{ "name": "echo", "domains": [TARGET], "routes": [route] }],
        }),
    )
}

/// A cluster and its endpoints.
fn cluster(name: &str, server: &Server) -> String {
    cluster_at(name, server, 0)
}

/// Like [`cluster`], with endpoints of this priority. gRPC ignores localities without a weight.
fn cluster_at(name: &str, server: &Server, priority: u32) -> String {
    let address = json!({ "socket_address": { "address": "127.0.0.1", "port_value": server.port } });
    let place = json!({
        "locality": { "region": "here" },
        "load_balancing_weight": 1,
        "priority": priority,
        "lb_endpoints": [{ "endpoint": { "address": address } }],
    });
    let cluster = json!({
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": name,
        "type": "EDS",
        "lb_policy": "ROUND_ROBIN",
        "eds_cluster_config": { "eds_config": { "ads": {} } },
    });
    let endpoints = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": name,
        "endpoints": [place],
    });
    raw(&format!("{name}-cluster"), &cluster) + &raw(&format!("{name}-endpoints"), &endpoints)
}

fn write(directory: &Path, resources: &[String]) {
    write_whole(directory, FILE, &resources.concat()).unwrap();
}

#[test]
fn a_grpc_client_finds_its_server_by_xds_and_follows_endpoints_routes_and_restarts() {
    let servers = ["first", "second", "third"].map(Server::start);
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &[listener(), routes("one"), cluster("one", &servers[0])]);
    let mut control_plane = ControlPlane::start(directory.path()).unwrap();
    let client = Client::start(&control_plane);
    client.wait_until_answered_by("first");
    let status = control_plane
        .wait_for_status("all ACKs", |status| TYPES.iter().all(|kind| running(status, kind).is_some()))
        .unwrap();
    assert_eq!((&node(&status)["id"], &node(&status)["service"]), (&json!("grpc-client"), &json!("callers")));

    // Its endpoint changes.
    write(directory.path(), &[listener(), routes("one"), cluster("one", &servers[1])]);
    client.wait_until_answered_by("second");

    // The route moves to a cluster that it has not asked for before.
    let both = [cluster("one", &servers[1]), cluster("two", &servers[2])].concat();
    write(directory.path(), &[listener(), routes("two"), both]);
    client.wait_until_answered_by("third");

    // The control plane goes, calls go on; it comes back with another endpoint.
    control_plane.kill();
    client.wait_until_answered_by("third");
    write(directory.path(), &[listener(), routes("two"), cluster("two", &servers[0])]);
    control_plane.kill_and_restart().unwrap();
    client.wait_until_answered_by("first");

    assert_eq!(client.answers(), ["first", "second", "third", "first"], "in this order, and nothing failed");
    let status = control_plane.status().unwrap();
    let refused = |kind: &&str| !node(&status)["types"][*kind]["refused"].is_null();
    assert_eq!(TYPES.iter().filter(|kind| refused(kind)).count(), 0, "{status}");
}

#[test]
fn a_grpc_client_uses_the_endpoints_of_a_service() {
    let server = Server::start("first");
    let directory = tempfile::tempdir().unwrap();
    let service = json!({
        "apiVersion": "postern/v1",
        "kind": "Service",
        "metadata": { "name": "one" },
        "spec": { "endpoints": [{ "address": "127.0.0.1", "port": server.port }] },
    });
    write(directory.path(), &[listener(), routes("one"), format!("---\n{service}\n")]);
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let client = Client::start(&control_plane);
    client.wait_until_answered_by("first");
    assert_eq!(client.answers(), ["first"]);
}

#[test]
fn what_a_grpc_client_refuses_is_reported_in_its_words_and_calls_go_on() {
    let servers = ["first", "second"].map(Server::start);
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &[listener(), routes("one"), cluster("one", &servers[0])]);
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let client = Client::start(&control_plane);
    client.wait_until_answered_by("first");

    // Priorities must begin with the highest.
    write(directory.path(), &[listener(), routes("one"), cluster_at("one", &servers[1], 1)]);
    let refused = |status: &Value| status["nodes"][0]["types"]["endpoints"]["refused"]["message"].is_string();
    let status = control_plane.wait_for_status("the refusal", refused).unwrap();
    let message = node(&status)["types"]["endpoints"]["refused"]["message"].to_string();
    assert!(message.contains("priority"), "{message}");
    client.wait_until_answered_by("first");

    write(directory.path(), &[listener(), routes("one"), cluster("one", &servers[1])]);
    client.wait_until_answered_by("second");
    control_plane.wait_for_status("the mended version", |status| !refused(status)).unwrap();
    assert_eq!(client.answers(), ["first", "second"]);
}
