//! A server without any logic: it pushes the resources that it is given, as they are. The time in which an Envoy
//! accepts them is not our share.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
};
use postern_base::digest::Digest;
use postern_compile::snapshot::{ResourceSet, ResourceType, Selection, Snapshot};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::measure::{LIMIT, LOOK};

/// In the order in which Envoys want them.
const ORDER: [ResourceType; 6] = [
    ResourceType::Secret,
    ResourceType::Cluster,
    ResourceType::Endpoints,
    ResourceType::ExtensionConfig,
    ResourceType::Listener,
    ResourceType::RouteConfiguration,
];

/// A running stub.
pub(super) struct Stub {
    address: SocketAddr,
    snapshots: watch::Sender<Arc<Snapshot>>,
    accepted: Accepted,
}

/// The version of each type that was accepted last.
type Accepted = Arc<Mutex<HashMap<ResourceType, Digest>>>;

impl Stub {
    /// Serves a snapshot on a free port.
    pub(super) fn start(runtime: &Runtime, first: Arc<Snapshot>) -> Result<Self> {
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let (snapshots, latest) = watch::channel(first);
        let accepted = Accepted::default();
        let service = Service { latest, accepted: Arc::clone(&accepted) };
        let server = Server::builder().add_service(AggregatedDiscoveryServiceServer::new(service));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(Self { address, snapshots, accepted })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Pushes what is new in a snapshot. Returns how long it takes until the filter's configuration is accepted.
    pub(super) fn push(&self, snapshot: Arc<Snapshot>, filter: &str) -> Result<Duration> {
        let wanted = Selection::Named(BTreeSet::from([filter.to_owned()]));
        let version = snapshot.select(ResourceType::ExtensionConfig, &wanted).version;
        let begin = Instant::now();
        self.snapshots.send_replace(snapshot);
        while begin.elapsed() < LIMIT {
            if lock(&self.accepted).get(&ResourceType::ExtensionConfig) == Some(&version) {
                return Ok(begin.elapsed());
            }
            thread::sleep(LOOK);
        }
        bail!("no ACK of the stub's push within {LIMIT:?}")
    }
}

struct Service {
    latest: watch::Receiver<Arc<Snapshot>>,
    accepted: Accepted,
}

type Responses<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (sender, receiver) = mpsc::channel(64);
        let stream = Stream {
            responses: sender,
            wanted: HashMap::new(),
            sent: HashMap::new(),
            accepted: Arc::clone(&self.accepted),
        };
        tokio::spawn(stream.run(request.into_inner(), self.latest.clone()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("the stub speaks one variant"))
    }
}

/// One stream.
struct Stream {
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
    wanted: HashMap<ResourceType, Selection>,
    sent: HashMap<ResourceType, Digest>,
    accepted: Accepted,
}

impl Stream {
    /// Serves the stream until either side is gone.
    async fn run(mut self, mut requests: Streaming<DiscoveryRequest>, mut latest: watch::Receiver<Arc<Snapshot>>) {
        loop {
            let alive = tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => self.on_request(request, &latest).await,
                    Ok(None) | Err(_) => return,
                },
                changed = latest.changed() => match changed {
                    Ok(()) => self.send_news(&latest).await,
                    Err(_) => return,
                },
            };
            if !alive {
                return;
            }
        }
    }

    async fn on_request(&mut self, request: DiscoveryRequest, latest: &watch::Receiver<Arc<Snapshot>>) -> bool {
        let Some(kind) = ORDER.into_iter().find(|kind| kind.type_url() == request.type_url) else { return true };
        if let Some(version) = self.sent.get(&kind).filter(|version| version.as_str() == request.version_info) {
            lock(&self.accepted).insert(kind, version.clone());
        }
        let names: BTreeSet<_> = request.resource_names.into_iter().collect();
        let selection = if names.is_empty() { Selection::Everything } else { Selection::Named(names) };
        self.wanted.insert(kind, selection);
        self.send_news(latest).await
    }

    /// Sends every type of which the client has not what it wants; `false` if it is gone.
    async fn send_news(&mut self, latest: &watch::Receiver<Arc<Snapshot>>) -> bool {
        let snapshot = Arc::clone(&latest.borrow());
        for kind in ORDER {
            let Some(selection) = self.wanted.get(&kind) else { continue };
            let ResourceSet { version, resources } = snapshot.select(kind, selection);
            if self.sent.get(&kind) == Some(&version) {
                continue;
            }
            let response = DiscoveryResponse {
                version_info: version.to_string(),
                nonce: version.to_string(),
                type_url: kind.type_url().to_owned(),
                resources: resources.iter().map(|resource| resource.body.clone()).collect(),
                ..Default::default()
            };
            self.sent.insert(kind, version);
            if self.responses.send(Ok(response)).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Locks a value, also if it is poisoned: each statement leaves it consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
