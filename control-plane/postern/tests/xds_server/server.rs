//! A server in this process, and a scripted client.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::rpc,
};
use postern::{
    control_plane::ControlPlane,
    serve::{Sockets, serve_within},
};
use postern_base::digest::Digest;
use postern_compile::snapshot::{FilterCode, ResourceType};
use postern_deliver::xds::Limits;
use postern_fixtures::assembled;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Channel};

/// Far longer than anything here takes: reaching it is a failure, not a measurement.
const LIMIT: Duration = Duration::from_secs(60);

/// Awaits a future, and fails the test if it takes too long.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("waited {LIMIT:?} in vain for {what}"))
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(crate) struct Server {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(limits: Limits) -> Self {
        let plane = Arc::new(ControlPlane::new(FilterCode::new(vec![1], None)));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = Sockets::bind(any, any).await.unwrap();
        let address = sockets.xds_address().unwrap();
        let serving = serve_within(Arc::clone(&plane), sockets, limits);
        let task = tokio::spawn(async move { serving.await.unwrap() });
        Self { plane, address, task }
    }

    /// Puts one resource of every type in force, each of this many bytes, and returns the revision.
    pub(crate) async fn publish(&self, version: u8, size: usize) -> Digest {
        let content = vec![version; size];
        let snapshot = assembled(&ResourceType::ALL.map(|kind| (kind, "r/a", content.as_slice())));
        let revision = snapshot.revision().clone();
        self.plane.commands().publish(snapshot).await.unwrap();
        revision
    }

    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        soon("the connection", endpoint.connect()).await.unwrap()
    }

    /// Opens an aggregated stream, state of the world, for a node.
    pub(crate) async fn stream(&self, node: &str) -> Client {
        Client::open(self.channel().await, node).await.unwrap()
    }
}

/// A client of one aggregated stream, state of the world.
pub(crate) struct Client {
    node: String,
    pub(crate) requests: mpsc::Sender<DiscoveryRequest>,
    pub(crate) responses: Streaming<DiscoveryResponse>,
    _channel: Channel,
}

impl Client {
    pub(crate) async fn open(channel: Channel, node: &str) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(2_000);
        let mut service = AggregatedDiscoveryServiceClient::new(channel.clone()).max_decoding_message_size(1 << 30);
        let opening = service.stream_aggregated_resources(ReceiverStream::new(receiver));
        let responses = soon("the stream", opening).await?.into_inner();
        Ok(Self { node: node.to_owned(), requests, responses, _channel: channel })
    }

    /// Asks for all clusters.
    pub(crate) async fn subscribe(&self) {
        self.requests.send(first(&self.node, ResourceType::Cluster)).await.unwrap();
    }

    /// The next response, or the status with which the stream ended.
    pub(crate) async fn next(&mut self) -> Result<DiscoveryResponse, Status> {
        match soon("a response", self.responses.message()).await? {
            Some(response) => Ok(response),
            None => Err(Status::ok("")),
        }
    }

    pub(crate) async fn answer(&self, response: &DiscoveryResponse, error: Option<&str>) {
        self.requests.send(answer_to(response, error)).await.unwrap();
    }
}

/// An ACK or a NACK of a response.
pub(crate) fn answer_to(response: &DiscoveryResponse, error: Option<&str>) -> DiscoveryRequest {
    let error = error.map(|message| rpc::Status { message: message.to_owned(), ..Default::default() });
    DiscoveryRequest {
        type_url: response.type_url.clone(),
        version_info: if error.is_some() { String::new() } else { response.version_info.clone() },
        response_nonce: response.nonce.clone(),
        error_detail: error,
        ..Default::default()
    }
}

pub(crate) fn first(node: &str, kind: ResourceType) -> DiscoveryRequest {
    let node = Node { id: node.to_owned(), ..Default::default() };
    DiscoveryRequest { node: Some(node), type_url: kind.type_url().to_owned(), ..Default::default() }
}

pub(crate) fn first_incremental(node: &str, kind: ResourceType, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(Node { id: node.to_owned(), ..Default::default() }),
        type_url: kind.type_url().to_owned(),
        resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    }
}

/// The first response of an incremental stream.
pub(crate) async fn first_of(mut responses: Streaming<DeltaDiscoveryResponse>) -> DeltaDiscoveryResponse {
    soon("a response", responses.message()).await.unwrap().unwrap()
}
