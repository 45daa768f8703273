//! A collector: keeps what is posted to it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result};
use axum::{Router, body::to_bytes, extract::Request, http::StatusCode, response::IntoResponse};
use tokio::{net::TcpListener, runtime, sync::oneshot};
use tonic::{
    service::Routes,
    transport::{Server, server::TcpIncoming},
};

const MOST_BODY: usize = 1 << 20;

/// One posted request.
#[derive(Debug, Clone)]
pub struct Post {
    /// The value of `host`.
    pub host: String,
    /// The path.
    pub path: String,
    /// The value of `content-type`.
    pub content_type: String,
    /// The body, with what is not UTF-8 replaced.
    pub body: String,
    /// The body as it came.
    pub bytes: Vec<u8>,
}

type Posts = Arc<Mutex<Vec<Post>>>;

/// A running collector. Dropping it ends it.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    posts: Posts,
    _stop: oneshot::Sender<()>,
}

impl Collector {
    /// Starts one; port 0 picks a free one.
    pub fn start(port: u16) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", port)))
            .with_context(|| format!("the collector cannot listen on port {port}"))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let posts = Posts::default();
        let sink = Arc::clone(&posts);
        thread::spawn(move || {
            let router = Router::new().fallback(move |request| keep(Arc::clone(&sink), request));
            runtime.block_on(async {
                tokio::select! {
                    _ = axum::serve(listener, router) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, posts, _stop: stop })
    }

    /// Starts one for gRPC on a free port. It keeps every message of any service, and answers every call with `OK`.
    pub fn start_grpc() -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .context("the collector cannot listen on a port of this machine")?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let posts = Posts::default();
        let sink = Arc::clone(&posts);
        thread::spawn(move || {
            let router = Router::new().fallback(move |request| keep_call(Arc::clone(&sink), request));
            runtime.block_on(async {
                let server = Server::builder().add_routes(Routes::from(router));
                tokio::select! {
                    _ = server.serve_with_incoming(TcpIncoming::from(listener)) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, posts, _stop: stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All that was posted so far.
    pub fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Keeps a call of gRPC. The answer has only headers, with the status `OK`.
async fn keep_call(posts: Posts, request: Request) -> impl IntoResponse {
    keep(posts, request).await;
    [("content-type", "application/grpc"), ("grpc-status", "0")]
}

async fn keep(posts: Posts, request: Request) -> StatusCode {
    let (request, body) = request.into_parts();
    let header = |name| {
        let value = request.headers.get(name);
        value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
    };
    let (host, content_type) = (header("host"), header("content-type"));
    let bytes = to_bytes(body, MOST_BODY).await.unwrap_or_default().to_vec();
    let body = String::from_utf8_lossy(&bytes).into_owned();
    let post = Post { host, path: request.uri.to_string(), content_type, body, bytes };
    posts.lock().unwrap_or_else(PoisonError::into_inner).push(post);
    StatusCode::NO_CONTENT
}
