//! A service that answers health checks of gRPC (`grpc.health.v1.Health`) as it is told.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};
use axum::{Router, extract::Request as AxumRequest, response::Response as AxumResponse};
use tokio::{net::TcpListener, runtime, sync::oneshot};
use tonic::{
    Request, Response, Status,
    server::{Grpc, UnaryService},
    service::Routes,
    transport::{Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// A running service. Dropping it ends it.
#[derive(Debug)]
pub struct GrpcHealth {
    address: SocketAddr,
    serves: Arc<AtomicBool>,
    _stop: oneshot::Sender<()>,
}

impl GrpcHealth {
    /// Starts one on a free port, which says that it serves.
    pub fn start() -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .context("the service cannot listen on a port of this machine")?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serves = Arc::new(AtomicBool::new(true));
        let check = Check(Arc::clone(&serves));
        thread::spawn(move || {
            let router = Router::new().route(
                "/grpc.health.v1.Health/Check",
                axum::routing::post(move |request| answer(check.clone(), request)),
            );
            runtime.block_on(async {
                let server = Server::builder().add_routes(Routes::from(router));
                tokio::select! {
                    _ = server.serve_with_incoming(TcpIncoming::from(listener)) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, serves, _stop: stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what it says from now on.
    pub fn set_serving(&self, serves: bool) {
        self.serves.store(serves, Ordering::SeqCst);
    }
}

async fn answer(check: Check, request: AxumRequest) -> Result<AxumResponse, Infallible> {
    let response = Grpc::new(ProstCodec::default()).unary(check, request).await;
    Ok(response.map(axum::body::Body::new))
}

#[derive(Debug, Clone)]
struct Check(Arc<AtomicBool>);

impl UnaryService<HealthRequest> for Check {
    type Response = HealthResponse;
    type Future = Ready<Result<Response<HealthResponse>, Status>>;

    fn call(&mut self, _: Request<HealthRequest>) -> Self::Future {
        let status = if self.0.load(Ordering::SeqCst) { SERVING } else { NOT_SERVING };
        ready(Ok(Response::new(HealthResponse { status })))
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}
