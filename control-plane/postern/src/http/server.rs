//! Accepts HTTP connections, and closes those whose clients break the limits.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use hyper::{body::Incoming as Received, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use postern_base::accept::accept;
use tokio::{io::AsyncWriteExt as _, net::TcpListener, net::TcpStream, time};
use tower_service::Service as _;

use super::{
    body::{Incoming, Outgoing},
    connections::{ConnectionState, Connections, Slot},
    stall::Stalling,
};
use crate::admin::{Client, Problem};

/// The size of a connection's buffer, for a head or a part of a body.
const BUFFER: usize = 64 * 1024;
/// The answer to a client when all connections are busy.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 111\r\n\r\n\
    {\"title\":\"too many connections\",\"status\":503,\"detail\":\"every place for a connection is in use: try again soon\"}";

/// The HTTP server.
pub(super) struct Server {
    pub(super) router: Router,
    pub(super) connections: Arc<Connections>,
    pub(super) timeout: Duration,
}

impl Server {
    /// Serves a socket. Never returns.
    pub(super) async fn run(self, listener: TcpListener) -> Infallible {
        loop {
            let (tcp, peer) = accept(&listener, || self.connections.make_room()).await;
            match self.connections.admit(peer.ip()) {
                Some(slot) => drop(tokio::spawn(converse(tcp, slot, self.router.clone(), self.timeout))),
                None => drop(tokio::spawn(refuse(tcp, self.timeout))),
            }
        }
    }
}

async fn refuse(mut tcp: TcpStream, timeout: Duration) {
    // A client that does not read the answer is not waited for.
    let _ = time::timeout(timeout, tcp.write_all(FULL)).await;
}

/// Serves one connection to its end.
async fn converse(tcp: TcpStream, slot: Slot, router: Router, timeout: Duration) {
    let line = slot.line();
    let answer = service_fn(|request| answer(request, router.clone(), Arc::clone(line), timeout));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(timeout).max_buf_size(BUFFER);
    let connection = builder.serve_connection(TokioIo::new(Stalling::new(tcp, timeout)), answer);
    tokio::select! {
        // The client is gone or too slow, so that nobody can be told.
        ended = connection => if let Err(error) = ended { tracing::debug!(%error, "an HTTP connection ended") },
        () = line.is_cut() => tracing::debug!("an HTTP connection without a request gave way to another"),
    }
}

async fn answer(
    request: hyper::Request<Received>,
    mut router: Router,
    line: Arc<ConnectionState>,
    timeout: Duration,
) -> Result<Response<Outgoing>, Infallible> {
    let late = Arc::new(AtomicBool::new(false));
    let body = |body| Body::new(Incoming::new(body, timeout, Arc::clone(&line), Arc::clone(&late)));
    let mut request = request.map(body);
    request.extensions_mut().insert(Client(line.client()));
    let mut answer = router.call(request).await.into_response();
    if late.load(Ordering::Relaxed) {
        let detail = format!("the body did not come in time: {timeout:?} may pass between two parts of it");
        answer = Problem::new(StatusCode::REQUEST_TIMEOUT, "too slow", detail).into_response();
    }
    Ok(answer.map(|body| Outgoing::new(body, line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_long_its_refusal_is() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
