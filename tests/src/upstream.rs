//! The upstream: answers every request with what it got, as JSON.

use std::{net::SocketAddr, thread};

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    body::to_bytes,
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime, sync::oneshot};

/// The largest body that is echoed.
const MOST_BODY: usize = 8 << 20;

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

/// Answers with the status and headers of the request header `x-upstream`, `{"status": 200, "headers": {"name":
/// "value"}}`, if there is one.
async fn echo(request: Request) -> Response {
    let told = request.headers().get("x-upstream").and_then(|value| serde_json::from_slice(value.as_bytes()).ok());
    let told: Value = told.unwrap_or_default();
    let mut response = describe(request).await.into_response();
    if let Some(status) = told.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok()) {
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    }
    for (name, value) in told.get("headers").and_then(Value::as_object).into_iter().flatten() {
        let value = HeaderValue::from_str(value.as_str().unwrap_or_default());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

async fn describe(request: Request) -> Json<Value> {
    let (request, body) = request.into_parts();
    let body = to_bytes(body, MOST_BODY).await.unwrap_or_default();
    let headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    Json(json!({
        "method": request.method.as_str(),
        "path": request.uri.to_string(),
        "headers": headers,
        "body": String::from_utf8_lossy(&body),
    }))
}
