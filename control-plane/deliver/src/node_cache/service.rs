//! The gRPC face of a node cache: the aggregated service in both variants.

use std::{io, sync::Arc, time::Duration};

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
};
use postern_base::open_files;
use tokio::{
    sync::mpsc,
    time::{self, MissedTickBehavior},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, service::Routes, transport::Server};

use super::{
    protocol::{Changes, Protocol, World},
    shared::{Options, Shared},
    shelf::Shelf,
    socket::Socket,
    stream::Stream,
    upstream::Upstream,
};
use crate::xds::{
    limits::{RECEIVE_WINDOW, STREAMS_PER_CONNECTION, SWEEP_INTERVAL},
    service::{ConnectionHandle, Lines},
};

/// The responses of a stream.
type Responses<R> = ReceiverStream<Result<R, Status>>;

/// The number of responses that wait to be read by a client.
const WAITING: usize = 4;

/// What is said to clients of services for single types.
const AGGREGATED_ONLY: &str =
    "a node cache serves the aggregated stream (ADS) only: let every config source be `ads: {}`";

/// A node cache. Clones share it.
#[derive(Debug, Clone)]
pub struct NodeCache {
    shared: Arc<Shared>,
}

impl NodeCache {
    /// A cache that relays to a control plane, and keeps what nodes accept.
    pub fn new(shelf: Shelf, upstream: Upstream, options: Options) -> Self {
        Self { shared: Arc::new(Shared::new(shelf, upstream, options)) }
    }

    /// Serves clients on a socket until the server fails.
    pub async fn serve(&self, socket: Socket) -> io::Result<()> {
        let lines = Arc::new(Lines::new(open_files::share(self.shared.options.streams)));
        let service = AggregatedDiscoveryServiceServer::new(self.clone());
        let others = || async { Status::unimplemented(AGGREGATED_ONLY).into_http::<axum::body::Body>() };
        let routes = Routes::new(service).into_axum_router().fallback(others);
        let server = Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .initial_stream_window_size(RECEIVE_WINDOW)
            .initial_connection_window_size(RECEIVE_WINDOW)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .add_routes(Routes::from(routes));
        tokio::select! {
            ended = server.serve_with_incoming(socket.incoming(Arc::clone(&lines))) => ended.map_err(io::Error::other),
            () = sweep(&lines, self.shared.options.idle_timeout) => Ok(()),
            () = Arc::clone(&self.shared.upstream).look() => Ok(()),
            () = Arc::clone(&self.shared.shelf).follow() => Ok(()),
        }
    }

    /// Writes what has changed to files before the process ends.
    pub fn finish(&self) {
        self.shared.shelf.write();
    }

    fn open<P: Protocol>(
        &self,
        request: Request<Streaming<P::Request>>,
    ) -> Result<Response<Responses<P::Response>>, Status> {
        let most = self.shared.options.streams;
        let permit = self.shared.permit().ok_or_else(|| {
            tracing::warn!(most, "a stream is refused: there are too many");
            Status::resource_exhausted(format!("this node cache has {most} xDS streams open, and serves no more"))
        })?;
        let used = request.extensions().get::<Arc<ConnectionHandle>>().map(ConnectionHandle::used);
        let (sender, receiver) = mpsc::channel(WAITING);
        let stream = Stream::<P>::new(Arc::clone(&self.shared), request.into_inner(), sender);
        tokio::spawn(async move {
            stream.run().await;
            drop((permit, used));
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for NodeCache {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        self.open::<World>(request)
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        self.open::<Changes>(request)
    }
}

/// Closes connections without a stream. Never returns.
async fn sweep(lines: &Lines, limit: Duration) {
    let mut ticks = time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        lines.cut_unused(limit);
    }
}
