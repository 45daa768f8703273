//! The gRPC face of xDS: the aggregated service and one for each type, in both variants of the protocol.
//!
//! All of them are one handler. The generated one is not used, because it would encode and keep every response for each
//! stream; here all streams share the bytes of a response, and have only a nonce each ([`frame`]). A stream is a
//! response body that is polled ([`stream`]): it needs neither a task nor a channel, and is not polled while its client
//! does not read.

mod connection;
mod decode;
mod frame;
mod peer;
mod rate;
mod record;
mod stream;
mod traffic;
mod watchdog;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use postern_base::{accept::accept, bounded, open_files};
use postern_compile::snapshot::ResourceType;
use postern_release::{fleet::LiveFleet, publication::Publications};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::MissedTickBehavior,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Status, service::Routes, transport::Server};

pub use self::traffic::{PerType, Traffic};
pub(crate) use self::{
    connection::{Connection, ConnectionHandle, Lines},
    rate::Rate,
    stream::within_limits,
};
use self::{stream::StreamBody, watchdog::Watchdog};
use super::{
    limits::{Limits, RECEIVE_WINDOW, STREAMS_PER_CONNECTION, SWEEP_INTERVAL},
    offer::OffersInUse,
    wire::{ClientMessage, Scope},
};

/// Every service: its name, its types, and its methods for state of the world and for incremental.
const SERVICES: [(&str, Scope, Option<&str>, &str); 8] = [
    (
        "envoy.service.discovery.v3.AggregatedDiscoveryService",
        Scope::Aggregated,
        Some("StreamAggregatedResources"),
        "DeltaAggregatedResources",
    ),
    (
        "envoy.service.listener.v3.ListenerDiscoveryService",
        Scope::Single(ResourceType::Listener),
        Some("StreamListeners"),
        "DeltaListeners",
    ),
    (
        "envoy.service.route.v3.RouteDiscoveryService",
        Scope::Single(ResourceType::RouteConfiguration),
        Some("StreamRoutes"),
        "DeltaRoutes",
    ),
    // VHDS exists in the incremental variant only.
    (
        "envoy.service.route.v3.VirtualHostDiscoveryService",
        Scope::Single(ResourceType::VirtualHost),
        None,
        "DeltaVirtualHosts",
    ),
    (
        "envoy.service.cluster.v3.ClusterDiscoveryService",
        Scope::Single(ResourceType::Cluster),
        Some("StreamClusters"),
        "DeltaClusters",
    ),
    (
        "envoy.service.endpoint.v3.EndpointDiscoveryService",
        Scope::Single(ResourceType::Endpoints),
        Some("StreamEndpoints"),
        "DeltaEndpoints",
    ),
    (
        "envoy.service.secret.v3.SecretDiscoveryService",
        Scope::Single(ResourceType::Secret),
        Some("StreamSecrets"),
        "DeltaSecrets",
    ),
    (
        "envoy.service.extension.v3.ExtensionConfigDiscoveryService",
        Scope::Single(ResourceType::ExtensionConfig),
        Some("StreamExtensionConfigs"),
        "DeltaExtensionConfigs",
    ),
];

/// The xDS server: the state that its streams share.
#[derive(Debug, Clone)]
pub struct XdsServer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    publications: Publications,
    fleet: Arc<LiveFleet>,
    traffic: Arc<Traffic>,
    limits: Limits,
    open_streams: AtomicUsize,
    watchdog: Watchdog,
    lines: Lines,
    offers: OffersInUse,
}

impl XdsServer {
    /// A server that serves what is published to the nodes of a fleet.
    pub fn new(publications: Publications, fleet: Arc<LiveFleet>, traffic: Arc<Traffic>, limits: Limits) -> Self {
        let (watchdog, lines) = (Watchdog::default(), Lines::new(open_files::share(limits.streams)));
        let open_streams = AtomicUsize::new(0);
        let offers = OffersInUse::default();
        let shared = Shared { publications, fleet, traffic, limits, open_streams, watchdog, lines, offers };
        Self { shared: Arc::new(shared) }
    }

    /// The HTTP/2 server, with its limits.
    pub fn builder(&self) -> Server {
        let limits = &self.shared.limits;
        Server::builder()
            .http2_keepalive_interval(Some(limits.keepalive_interval))
            .http2_keepalive_timeout(Some(limits.keepalive_timeout))
            .initial_stream_window_size(RECEIVE_WINDOW)
            .initial_connection_window_size(RECEIVE_WINDOW)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
    }

    /// The routes of all discovery services.
    pub fn routes(&self) -> Routes {
        let mut router = Routes::default().into_axum_router();
        for (service, scope, world, incremental) in SERVICES {
            let (for_world, for_changes) = (self.clone(), self.clone());
            if let Some(method) = world {
                let open = move |request| async move { for_world.open::<DiscoveryRequest>(scope, request) };
                router = router.route(&format!("/{service}/{method}"), post(open));
            }
            let open = move |request| async move { for_changes.open::<DeltaDiscoveryRequest>(scope, request) };
            router = router.route(&format!("/{service}/{incremental}"), post(open));
        }
        router.into()
    }

    /// The connections of clients. An error of accepting a connection is retried, and does not end the stream.
    pub fn incoming(&self, listener: TcpListener) -> impl Stream<Item = io::Result<Connection<TcpStream>>> + use<> {
        let shared = Arc::clone(&self.shared);
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                let accepted = accept(&listener, || shared.lines.make_room());
                tokio::select! {
                    (tcp, peer) = accepted => {
                        let connection = Connection::tcp(tcp, peer.ip(), &shared.lines);
                        if sender.send(Ok(connection)).await.is_err() {
                            return;
                        }
                    }
                    () = sender.closed() => return,
                }
            }
        });
        ReceiverStream::new(receiver)
    }

    /// Cuts off clients that do not read, and forgets nodes that are long gone. Never returns.
    pub async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let limits = &self.shared.limits;
            self.shared.watchdog.cut_off(limits.stall_timeout);
            self.shared.lines.cut_unused(limits.idle_timeout);
            let publication = self.shared.publications.latest();
            let is_known = |node: &_| publication.as_ref().is_some_and(|publication| publication.selects(node));
            self.shared.fleet.forget(limits.keep_nodes, SystemTime::now(), is_known);
        }
    }

    /// Opens a stream, or refuses it if its headers are wrong or there are too many streams.
    fn open<M: ClientMessage>(&self, scope: Scope, request: Request) -> Response {
        if let Err(refusal) = check_headers(request.headers()) {
            return *refusal;
        }
        let most = self.shared.limits.streams;
        if self.shared.open_streams.fetch_add(1, Ordering::Relaxed) >= most {
            self.shared.open_streams.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(most, "a stream is refused: there are too many");
            let message = format!("this server has {most} xDS streams open, and serves no more");
            return Status::resource_exhausted(message).into_http();
        }
        let line = request.extensions().get::<Arc<ConnectionHandle>>().cloned();
        let called = request.uri().authority().map_or("", |authority| authority.as_str()).to_owned();
        let body = StreamBody::<M>::new(Arc::clone(&self.shared), scope, &called, request.into_body(), line);
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
        response
    }
}

/// The content type of gRPC, which may be followed by a format or parameters.
const GRPC: &str = "application/grpc";

/// Refuses requests that are not gRPC, and those with compressed messages: ours are too small to benefit, and a few
/// compressed bytes can expand to many.
fn check_headers(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let format = text(CONTENT_TYPE).and_then(|kind| kind.strip_prefix(GRPC));
    if !format.is_some_and(|format| format.is_empty() || format.starts_with(['+', ';'])) {
        let message = format!("the content type must be `{GRPC}`");
        return Err(Box::new((StatusCode::UNSUPPORTED_MEDIA_TYPE, message).into_response()));
    }
    let encoding = headers.get("grpc-encoding").map_or("identity", |encoding| encoding.to_str().unwrap_or_default());
    if encoding == "identity" {
        return Ok(());
    }
    let message = format!("requests that are compressed (`{}`) are not read", bounded::shown(encoding));
    let mut response: Response = Status::unimplemented(message).into_http();
    response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    Err(Box::new(response))
}
