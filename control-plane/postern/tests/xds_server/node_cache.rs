//! A node cache in this process, with clients that keep to the protocol and clients that do not.

use std::{net::SocketAddr, path::Path, time::Duration};

use envoy_types::pb::envoy::{
    config::cluster::v3::Cluster,
    service::{
        cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient,
        discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
};
use postern_compile::snapshot::ResourceType;
use postern_deliver::{
    node_cache::{Address, NodeCache, Options, Shelf, Socket, Upstream},
    xds::Limits,
};
use postern_fixtures::assembled;
use prost::Message as _;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::{Code, Status, Streaming, transport::Channel};

use super::server::{Client, Server, answer_to, first, first_incremental, soon, until};

const DAY: Duration = Duration::from_secs(86_400);
const CLUSTERS: ResourceType = ResourceType::Cluster;

/// A running cache with a directory of its own.
struct Cache {
    address: SocketAddr,
    task: JoinHandle<()>,
    folder: TempDir,
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cache {
    fn start(control_plane: SocketAddr, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(folder.path(), None, DAY, 4).unwrap();
        let upstream = Upstream::new(&control_plane.to_string()).unwrap();
        let socket = Socket::bind(&Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        let Address::Tcp(address) = *socket.address() else { panic!("it is a TCP socket") };
        let cache = NodeCache::new(shelf, upstream, options);
        let task = tokio::spawn(async move { cache.serve(socket).await.unwrap() });
        Self { address, task, folder }
    }

    async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        soon("the connection", endpoint.connect()).await.unwrap()
    }

    async fn client(&self, node: &str) -> Client {
        Client::open(self.channel().await, node).await.unwrap()
    }

    async fn incremental(&self, requests: Vec<DeltaDiscoveryRequest>) -> Streaming<DeltaDiscoveryResponse> {
        let requests = tokio_stream::StreamExt::chain(tokio_stream::iter(requests), tokio_stream::pending());
        let mut client = AggregatedDiscoveryServiceClient::new(self.channel().await);
        soon("the stream", client.delta_aggregated_resources(requests)).await.unwrap().into_inner()
    }
}

/// Puts one cluster in force, whose content depends on the version.
async fn publish(server: &Server, version: u8) {
    let (name, alt_stat_name) = ("a".to_owned(), format!("version {version}"));
    let cluster = Cluster { name, alt_stat_name, ..Cluster::default() }.encode_to_vec();
    let snapshot = assembled(&[(CLUSTERS, "a", cluster.as_slice())]);
    server.plane.commands().publish(snapshot).await.unwrap();
}

fn files(folder: &Path) -> usize {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "node")).count()
}

/// The status of a stream's first answer, which must be one.
async fn status(mut client: Client) -> Status {
    client.next().await.unwrap_err()
}

/// A client whose node accepted all clusters of version 1, through a cache that has them on the disk.
async fn accepted(server: &Server, cache: &Cache, node: &str) -> (Client, DiscoveryResponse) {
    let mut client = cache.client(node).await;
    client.subscribe().await;
    let response = client.next().await.unwrap();
    client.answer(&response, None).await;
    until("the ACK", || {
        server.plane.fleet().report().iter().any(|it| it.id == node && it.types.contains_key(&CLUSTERS))
    })
    .await;
    until("a file", || files(cache.folder.path()) > 0).await;
    (client, response)
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_unchanged_and_serves_the_same_when_the_control_plane_is_gone() {
    let server = Server::start(Limits::default()).await;
    publish(&server, 1).await;
    let cache = Cache::start(server.address, Options::default());
    let (mut client, relayed) = accepted(&server, &cache, "edge").await;
    let mut direct = server.stream("other").await;
    direct.subscribe().await;
    let own = direct.next().await.unwrap();
    assert_eq!((&relayed.resources, &relayed.version_info), (&own.resources, &own.version_info));
    drop(server);
    assert_eq!(client.next().await.unwrap_err().code(), Code::Unavailable);

    let mut served = cache.client("edge").await;
    served.subscribe().await;
    let response = served.next().await.unwrap();
    assert_eq!((&response.resources, &response.version_info), (&relayed.resources, &relayed.version_info));
    // The other variant has the same content.
    let mut changes = cache.incremental(vec![first_incremental("edge", CLUSTERS, &[])]).await;
    let changes = soon("a response", changes.message()).await.unwrap().unwrap();
    assert_eq!(changes.resources.len(), 1);
    assert_eq!(changes.resources[0].resource.as_ref(), relayed.resources.first());
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_nothing_to_a_client_that_has_what_is_kept_or_something_else() {
    let server = Server::start(Limits::default()).await;
    publish(&server, 1).await;
    let cache = Cache::start(server.address, Options::default());
    let (_client, relayed) = accepted(&server, &cache, "edge").await;
    drop(server);
    for version in [relayed.version_info.as_str(), "something else"] {
        let mut client = cache.client("edge").await;
        let request = DiscoveryRequest { version_info: version.to_owned(), ..first("edge", CLUSTERS) };
        client.requests.send(request).await.unwrap();
        // Requests are handled in order: an invalid one behind it is answered first if it has no answer.
        client.requests.send(first("edge", CLUSTERS)).await.unwrap();
        let no_type = DiscoveryRequest::default();
        client.requests.send(no_type).await.unwrap();
        assert_eq!(client.next().await.unwrap_err().code(), Code::InvalidArgument, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_comes_later_learns_what_a_running_client_has() {
    let server = Server::start(Limits::default()).await;
    publish(&server, 1).await;
    let mut direct = server.stream("edge").await;
    direct.subscribe().await;
    let had = direct.next().await.unwrap();
    drop(direct);
    let cache = Cache::start(server.address, Options::default());
    let mut client = cache.client("edge").await;
    let request = DiscoveryRequest { version_info: had.version_info.clone(), ..first("edge", CLUSTERS) };
    client.requests.send(request).await.unwrap();
    let again = client.next().await.unwrap();
    assert_eq!(again.resources, had.resources);
    client.answer(&again, None).await;
    until("a file", || files(cache.folder.path()) > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gives_a_client_no_more_than_its_own_node_accepted() {
    let server = Server::start(Limits::default()).await;
    publish(&server, 1).await;
    let cache = Cache::start(server.address, Options::default());
    let (client, _) = accepted(&server, &cache, "edge").await;
    // A second client with the name of the node refuses everything, or takes less: what is kept stays.
    let mut second = cache.client("edge").await;
    second.subscribe().await;
    let response = second.next().await.unwrap();
    second.requests.send(answer_to(&response, Some("no"))).await.unwrap();
    publish(&server, 2).await;
    let changed = second.next().await.unwrap();
    second.answer(&changed, None).await;
    let runs = || {
        server.plane.fleet().report().iter().any(|it| {
            it.types[&CLUSTERS].running.as_ref().is_some_and(|version| version.as_str() == changed.version_info)
        })
    };
    until("the second client's ACK", runs).await;
    drop(second);
    drop((client, server));

    let other = cache.client("other").await;
    other.subscribe().await;
    let refused = status(other).await;
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("nothing is kept of node `other`"), "{refused}");
    assert!(refused.message().contains("the control plane is gone"), "{refused}");
    let mut own = cache.client("edge").await;
    own.subscribe().await;
    let kept = own.next().await.unwrap();
    assert_eq!(kept.resources, response.resources, "what the second client accepted is not the node's");
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_what_it_does_not_serve_and_goes_on() {
    let server = Server::start(Limits::default()).await;
    publish(&server, 1).await;
    let cache = Cache::start(server.address, Options { streams: 3, ..Options::default() });
    let single = ClusterDiscoveryServiceClient::new(cache.channel().await)
        .stream_clusters(tokio_stream::iter([first("edge", CLUSTERS)]))
        .await
        .unwrap_err();
    assert_eq!(single.code(), Code::Unimplemented);
    assert!(single.message().contains("the aggregated stream (ADS) only"), "{single}");

    let nobody = cache.client("").await;
    nobody.subscribe().await;
    assert_eq!(status(nobody).await.code(), Code::InvalidArgument);
    let long = cache.client(&"x".repeat(300)).await;
    long.subscribe().await;
    assert_eq!(status(long).await.code(), Code::InvalidArgument);

    let (_first, _) = accepted(&server, &cache, "edge").await;
    let channel = cache.channel().await;
    // Silent ones: they hold their streams until they have been waited for.
    let mut idle = Vec::new();
    let refused = loop {
        match Client::open(channel.clone(), "idle").await {
            Ok(client) => idle.push(client),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(idle.len() <= 2, "{}", idle.len());
    drop(idle);
    soon("room for another", async {
        while Client::open(channel.clone(), "edge").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
