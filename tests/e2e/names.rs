//! Limits on names. Strangers on loopback invent nodes, meshes, tags and messages, as long and as many as they can. The
//! tests count what is kept of them, and what is logged.

use std::{fs, future::Future, time::Duration};

use envoy_types::pb::{
    envoy::{
        config::core::v3::{Locality, Node},
        service::{
            cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient,
            discovery::v3::{
                DeltaDiscoveryRequest, DiscoveryRequest,
                aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
            },
        },
    },
    google::rpc,
};
use postern_tests::{Client, ControlPlane, Request, Site, Upstream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status, transport::Channel};

const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

struct Target {
    control_plane: ControlPlane,
    runtime: Runtime,
    _upstream: Upstream,
    _directory: TempDir,
}

impl Target {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        let control_plane = ControlPlane::start(site.directory()).unwrap();
        Self { control_plane, runtime: Runtime::new().unwrap(), _upstream: upstream, _directory: directory }
    }

    fn poll(&self, node: &Value) -> (u16, String) {
        let body = json!({ "node": node }).to_string();
        let poll = Request::new("POST", "/v3/discovery:clusters").host("postern");
        let poll = poll.header("content-type", "application/json").body(body);
        let answer = Client::new(self.control_plane.http()).send(&poll).unwrap();
        (answer.status, answer.body)
    }

    fn get(&self, path: &str) -> String {
        Client::new(self.control_plane.http()).get(path).unwrap().body
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no `{name}` in {text}")).parse().unwrap()
    }

    fn nodes(&self) -> usize {
        serde_json::from_str::<Value>(&self.get("/api/v1/nodes")).unwrap().as_array().unwrap().len()
    }

    fn longest_log_line(&self) -> usize {
        self.control_plane.log().iter().map(String::len).max().unwrap_or_default()
    }

    /// The memory of the process, in bytes.
    fn resident(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.control_plane.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    async fn channel(&self) -> Channel {
        let address = format!("http://{}", self.control_plane.xds());
        Channel::from_shared(address).unwrap().connect().await.unwrap()
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("waited in vain for an answer")
}

/// Sends requests, and then nothing for as long as the stream is open.
fn requests<M: Send + 'static>(messages: Vec<M>) -> impl tokio_stream::Stream<Item = M> + Send {
    tokio_stream::iter(messages).chain(tokio_stream::pending())
}

/// The status with which an aggregated stream (state of the world) ends that begins with this request.
async fn ends(channel: Channel, first: DiscoveryRequest) -> Status {
    let mut service = AggregatedDiscoveryServiceClient::new(channel);
    let stream = service.stream_aggregated_resources(requests(vec![first])).await.unwrap();
    soon(stream.into_inner().message()).await.expect_err("the stream goes on")
}

fn world(node: Node) -> DiscoveryRequest {
    DiscoveryRequest { node: Some(node), type_url: CLUSTERS.to_owned(), ..Default::default() }
}

fn node(id: &str) -> Node {
    Node { id: id.to_owned(), ..Default::default() }
}

#[track_caller]
fn check(status: &Status, field: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().starts_with(&format!("`{field}` ")), "{status:?}");
    assert!(status.message().contains("at most") && status.message().len() < 1000, "{status:?}");
}

#[test]
fn hole_13_a_mesh_that_a_stranger_makes_up_costs_nothing() {
    let target = Target::start();
    assert_eq!(target.poll(&json!({ "id": "a" })).0, 200);
    let (groups, resident) = (target.metric("postern_node_groups"), target.resident());
    let long = "m".repeat(1_000_000);
    for _ in 0..300 {
        let (status, body) = target.poll(&json!({ "id": "a", "metadata": { "mesh": long } }));
        assert!(
            status == 400 && body.contains("`node.metadata.mesh` is 1000000 bytes long: at most 256"),
            "{status} {body}"
        );
    }
    for number in 0..2000 {
        let mesh = format!("{number}-{}", "m".repeat(200));
        assert_eq!(target.poll(&json!({ "id": mesh, "metadata": { "mesh": mesh, "tags": { "t": mesh } } })).0, 200);
    }
    // All of these meshes together are one that has no resources, in each of the two revisions of a rollout.
    assert!(target.metric("postern_node_groups") <= groups + 2, "{}", target.metric("postern_node_groups"));
    assert!(target.resident() < resident + 100_000_000, "{} after {resident} bytes", target.resident());
    assert!(target.longest_log_line() < 1000);
}

#[test]
fn hole_13_a_node_with_a_long_name_is_refused_by_that_name() {
    let target = Target::start();
    let resident = target.resident();
    let long = "n".repeat(1_900_000);
    target.runtime.block_on(async {
        for _ in 0..40 {
            check(&ends(target.channel().await, world(node(&long))).await, "node.id");
        }
        let channel = target.channel().await;
        let cluster = Node { cluster: long.clone(), ..node("a") };
        check(&ends(channel.clone(), world(cluster)).await, "node.cluster");
        let locality = Some(Locality { zone: long.clone(), ..Default::default() });
        check(&ends(channel.clone(), world(Node { locality, ..node("a") })).await, "node.locality.zone");
        check(
            &ends(channel.clone(), DiscoveryRequest { type_url: long.clone(), ..world(node("a")) }).await,
            "type_url",
        );
        let names = DiscoveryRequest { resource_names: vec![long.clone()], ..world(node("a")) };
        check(&ends(channel.clone(), names).await, "resource_names");
        let version = DiscoveryRequest { version_info: long.clone(), ..world(node("a")) };
        check(&ends(channel.clone(), version).await, "version_info");
        let many = DiscoveryRequest { resource_names: vec!["n".to_owned(); 60_000], ..world(node("a")) };
        check(&ends(channel.clone(), many).await, "resource_names");
        // The incremental variant, and a service of one type.
        let changes =
            DeltaDiscoveryRequest { node: Some(node(&long)), type_url: CLUSTERS.to_owned(), ..Default::default() };
        let mut service = AggregatedDiscoveryServiceClient::new(channel.clone());
        let stream = service.delta_aggregated_resources(requests(vec![changes])).await.unwrap();
        check(&soon(stream.into_inner().message()).await.unwrap_err(), "node.id");
        let changes = DeltaDiscoveryRequest {
            node: Some(node("a")),
            type_url: CLUSTERS.to_owned(),
            resource_names_subscribe: vec![long.clone()],
            ..Default::default()
        };
        let mut service = ClusterDiscoveryServiceClient::new(channel.clone());
        let stream = service.delta_clusters(requests(vec![changes])).await.unwrap();
        check(&soon(stream.into_inner().message()).await.unwrap_err(), "resource_names_subscribe");
        let mut service = ClusterDiscoveryServiceClient::new(channel);
        let stream = service.stream_clusters(requests(vec![world(node(&long))])).await.unwrap();
        check(&soon(stream.into_inner().message()).await.unwrap_err(), "node.id");
    });
    assert!(target.nodes() <= 1, "only `a` is known");
    let log: usize = target.control_plane.log().iter().map(String::len).sum();
    assert!(log < 50_000 && target.longest_log_line() < 1000, "{log} bytes of log");
    assert!(target.resident() < resident + 100_000_000, "{} after {resident} bytes", target.resident());
}

#[test]
fn hole_13_of_a_refusal_only_so_much_is_kept() {
    let target = Target::start();
    let resident = target.resident();
    let words = "because ".repeat(3_900_000 / 8);
    target.runtime.block_on(async {
        for number in 0..30 {
            let (sender, receiver) = tokio::sync::mpsc::channel(4);
            sender.send(world(node(&format!("stranger-{number}")))).await.unwrap();
            let mut service = AggregatedDiscoveryServiceClient::new(target.channel().await);
            let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
            let mut stream = service.stream_aggregated_resources(requests).await.unwrap().into_inner();
            let sent = soon(stream.message()).await.unwrap().unwrap();
            let error = rpc::Status { message: words.clone(), ..Default::default() };
            let refusal = DiscoveryRequest { response_nonce: sent.nonce, error_detail: Some(error), ..world(node("")) };
            sender.send(refusal).await.unwrap();
            // Asking for something else is answered after the refusal was taken in.
            let other = DiscoveryRequest {
                type_url: "type.googleapis.com/envoy.config.listener.v3.Listener".to_owned(),
                ..Default::default()
            };
            sender.send(other).await.unwrap();
            soon(stream.message()).await.unwrap().unwrap();
        }
    });
    let nodes = target.get("/api/v1/nodes");
    assert!(
        nodes.contains("because because") && nodes.contains("… (cut)"),
        "the refusals are told, and that they are cut"
    );
    assert!(nodes.len() < 30 * 12_000, "{} bytes about nodes", nodes.len());
    let events = target.get("/api/v1/events?last=4096&follow=false");
    assert!(events.contains("… (cut)") && events.len() < 30 * 12_000, "{} bytes of events", events.len());
    assert!(target.longest_log_line() < 6000, "{}", target.longest_log_line());
    assert!(target.resident() < resident + 100_000_000, "{} after {resident} bytes", target.resident());
}

#[test]
fn hole_13_the_admin_api_takes_no_longer_names() {
    let target = Target::start();
    let file = json!({ "name": "f.yaml", "text": "x" });
    let send = |body: Value| {
        let request = Request::new("POST", "/api/v1/apply").header("content-type", "application/json");
        let answer = Client::new(target.control_plane.http()).send(&request.body(body.to_string())).unwrap();
        (answer.status, answer.body)
    };
    for (field, size) in [("author", 257), ("message", 4097)] {
        let (status, body) = send(json!({ "files": [file], field: "x".repeat(size) }));
        assert!(status == 422 && body.contains(&format!("{size} bytes are too long")), "{field}: {status} {body}");
    }
    let (status, body) = send(json!({ "files": [{ "name": "n".repeat(5000), "text": "x" }] }));
    assert!(status == 422 && body.contains("5000 bytes are too long"), "{status} {body}");
}
