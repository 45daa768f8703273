//! Requests in raw bytes, over HTTP/1.1 and HTTP/2, and services that report exactly what they got: no library in
//! between corrects, refuses or reorders anything.

mod echo;
mod http1;
mod http2;

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::Value;

pub use echo::Echo;

/// The protocol that a request goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, known beforehand.
    Http2,
}

/// A request, part by part; each part goes out as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRequest {
    /// The protocol by which it is sent.
    pub protocol: Protocol,
    /// The method.
    pub method: Vec<u8>,
    /// The request target, or `:path`.
    pub target: Vec<u8>,
    /// The `Host` headers; over HTTP/2 the first is `:authority`.
    pub hosts: Vec<Vec<u8>>,
    /// `:scheme`; ignored over HTTP/1.1.
    pub scheme: Vec<u8>,
    /// All other headers.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
}

impl RawRequest {
    /// A GET over HTTP/1.1.
    pub fn get(host: &str, target: &str) -> Self {
        Self {
            protocol: Protocol::Http1,
            method: b"GET".to_vec(),
            target: target.as_bytes().to_vec(),
            hosts: vec![host.as_bytes().to_vec()],
            scheme: b"http".to_vec(),
            headers: Vec::new(),
            body: None,
        }
    }

    /// Sends it on a connection of its own.
    pub fn send(&self, address: SocketAddr) -> Result<RawAnswer> {
        match self.protocol {
            Protocol::Http1 => http1::exchange(address, &http1::encode(self)),
            Protocol::Http2 => http2::exchange(address, self),
        }
    }

    /// The request as text, for messages. HTTP/2 is shown as a list of headers.
    pub fn shown(&self) -> String {
        match self.protocol {
            Protocol::Http1 => http1::encode(self).escape_ascii().to_string(),
            Protocol::Http2 => {
                let fields = http2::fields(self);
                let shown =
                    fields.iter().map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
                format!("HTTP/2 [{}]", shown.collect::<Vec<_>>().join(" | "))
            }
        }
    }
}

/// Sends bytes on a connection of their own, and reads one answer of HTTP/1.1.
pub fn send_bytes(address: SocketAddr, bytes: &[u8]) -> Result<RawAnswer> {
    http1::exchange(address, bytes)
}

/// The answer to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawAnswer {
    /// The status; `None` if the stream or connection was cut without one.
    pub status: Option<u16>,
    /// The header `location`; never known over HTTP/2.
    pub location: Option<String>,
    /// The body, with what is not UTF-8 replaced.
    pub body: String,
}

impl RawAnswer {
    /// The request as the service got it; `None` if no service got it.
    pub fn echo(&self) -> Option<Value> {
        let echo: Value = serde_json::from_str(&self.body).ok()?;
        echo.get("service").is_some().then_some(echo)
    }

    /// All values of a header as the service got it, joined by `,`.
    pub fn echoed(&self, name: &str) -> Option<String> {
        let echo = self.echo()?;
        let pairs = echo.get("headers")?.as_array()?.clone();
        let values: Vec<_> = pairs
            .iter()
            .filter(|pair| pair.get(0).and_then(Value::as_str).is_some_and(|found| found.eq_ignore_ascii_case(name)))
            .filter_map(|pair| pair.get(1)?.as_str())
            .collect();
        (!values.is_empty()).then(|| values.join(","))
    }
}
