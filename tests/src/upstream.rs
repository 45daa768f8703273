//! The upstream: answers every request with what it got, as JSON.

use std::{net::SocketAddr, thread};

use anyhow::{Context, Result};
use axum::{Json, Router, extract::Request};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime, sync::oneshot};

/// A running upstream. Dropping it ends it.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Upstream {
    /// Starts one; port 0 picks a free one.
    pub fn start(port: u16) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", port)))
            .with_context(|| format!("the upstream cannot listen on port {port}"))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = axum::serve(listener, Router::new().fallback(echo)) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, _stop: stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn echo(request: Request) -> Json<Value> {
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    Json(json!({ "method": request.method().as_str(), "path": request.uri().to_string(), "headers": headers }))
}
