//! An Envoy whose routes are given as chains, on listeners that we generate or on its own, and callers that speak HTTP/1.1
//! and HTTP/2 to it.

use std::{fs, net::SocketAddr};

use postern_tests::{Client, ControlPlane, Envoy, Received, Request, site::free_port, wait};
use tempfile::TempDir;
use tokio::{net::TcpStream, runtime};

/// Who makes the listeners and routes of an Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Postern, from a `Gateway`.
    Whole,
    /// The Envoy's own configuration, as in `envoy-config/overlay.yaml`.
    Overlay,
}

pub const MODES: [Mode; 2] = [Mode::Whole, Mode::Overlay];

/// The protocol of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

pub const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// A control plane and an Envoy: route `x` is the prefix `/x`.
pub struct Chains {
    pub envoy: Envoy,
    pub control_plane: ControlPlane,
    pub gateway: SocketAddr,
    directory: TempDir,
}

impl Chains {
    /// Starts it with routes of a `Gateway` to an upstream, and further documents.
    pub fn start(upstream: SocketAddr, routes: &[&str], resources: &str) -> Self {
        Self::start_as(Mode::Whole, upstream, routes, resources)
    }

    /// Like [`Self::start`], with routes of either kind.
    pub fn start_as(mode: Mode, upstream: SocketAddr, routes: &[&str], resources: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let routes = [routes, &["probe"]].concat();
        if mode == Mode::Whole {
            fs::write(directory.path().join("gateway.yaml"), gateway(port, upstream, &routes)).unwrap();
        }
        fs::write(directory.path().join("policies.yaml"), resources).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let envoy = match mode {
            Mode::Whole => Envoy::whole(control_plane.xds()).unwrap(),
            Mode::Overlay => overlay(port, upstream, &routes, control_plane.xds()),
        };
        let gateway = SocketAddr::from(([127, 0, 0, 1], port));
        let mut client = Client::new(gateway);
        wait::until_true("the routes to serve", || Ok(client.get("/probe").is_ok_and(|answer| answer.status == 200)))
            .unwrap();
        Self { envoy, control_plane, gateway, directory }
    }

    /// Replaces the policies, at once and whole.
    pub fn write(&self, resources: &str) {
        postern_tests::site::write_whole(self.directory.path(), "policies.yaml", resources).unwrap();
    }

    pub fn send(&self, request: &Request) -> Received {
        self.send_by(Protocol::Http1, request)
    }

    pub fn send_by(&self, protocol: Protocol, request: &Request) -> Received {
        protocol.send(self.gateway, request)
    }
}

impl Protocol {
    /// Sends a request on a connection of its own, without TLS.
    pub fn send(self, address: SocketAddr, request: &Request) -> Received {
        match self {
            Self::Http1 => Client::new(address).send(request).unwrap(),
            Self::Http2 => {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(exchange(address, request))
            }
        }
    }
}

fn gateway(port: u16, upstream: SocketAddr, routes: &[&str]) -> String {
    let mut text = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: edge }}\nspec:\n  listeners: [{{ name: http, port: \
         {port} }}]\n  routes:\n"
    );
    for route in routes {
        text += &format!("    - {{ name: {route}, match: {{ path: {{ prefix: /{route} }} }}, service: echo }}\n");
    }
    text += &format!(
        "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: echo }}\nspec: {{ endpoints: [{{ address: \
         127.0.0.1, port: {} }}] }}\n",
        upstream.port()
    );
    text
}

/// The last route of `envoy-config/overlay.yaml`.
const LAST_ROUTE: &str = "                        - name: welcome\n                          match: { path: /welcome }\n                          route: { cluster: backend }\n";

/// An Envoy with these routes, followed by further lines, in its own configuration.
pub fn overlay_with(port: u16, upstream: SocketAddr, lines: &str, xds: SocketAddr) -> Envoy {
    let (backend, listener) = (format!("port_value: {}", upstream.port()), format!("port_value: {port}"));
    let routes = [LAST_ROUTE, lines].concat();
    let replace = [
        ("port_value: 10001", backend.as_str()),
        ("port_value: 10000", listener.as_str()),
        (LAST_ROUTE, routes.as_str()),
    ];
    Envoy::start("overlay.yaml", xds, &replace).unwrap()
}

fn overlay(port: u16, upstream: SocketAddr, routes: &[&str], xds: SocketAddr) -> Envoy {
    let line = |route: &&str| {
        format!(
            "                        - {{ name: {route}, match: {{ path_separated_prefix: /{route} }}, route: {{ cluster: backend }} }}\n"
        )
    };
    overlay_with(port, upstream, &routes.iter().map(line).collect::<String>(), xds)
}

async fn exchange(gateway: SocketAddr, request: &Request) -> Received {
    let stream = TcpStream::connect(gateway).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let mut client = client.ready().await.unwrap();
    let uri = [format!("http://{gateway}").as_bytes(), request.path()].concat();
    let head = axum::http::Request::builder().method(request.method()).uri(uri);
    let head =
        request.headers().iter().fold(head, |head, (name, value)| head.header(name.as_slice(), value.as_slice()));
    let body = request.content();
    let (response, mut stream) = client.send_request(head.body(()).unwrap(), body.is_empty()).unwrap();
    if !body.is_empty() {
        // An answer may come before the whole body is taken.
        drop(stream.send_data(body.to_vec().into(), true));
    }
    let (head, mut content) = response.await.unwrap().into_parts();
    let mut body = Vec::new();
    while let Some(part) = content.data().await {
        let part = part.unwrap();
        content.flow_control().release_capacity(part.len()).unwrap();
        body.extend_from_slice(&part);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect();
    Received { status: head.status.as_u16(), headers, body: text(&body) }
}

/// A RoutePolicy for one route.
pub fn policy(route: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p-{route} }}\nspec:\n  targetRef: {{ kind: HTTPRoute, \
         name: {route} }}\n{spec}\n"
    )
}
