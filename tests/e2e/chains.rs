//! A gateway whose routes are given as chains, and callers that speak HTTP/1.1 and HTTP/2 to it.

use std::{fs, net::SocketAddr};

use postern_tests::{Answer, Client, ControlPlane, Envoy, Request, site::free_port, wait};
use tempfile::TempDir;
use tokio::{net::TcpStream, runtime};

/// A control plane and an Envoy with one gateway: route `x` is the prefix `/x`.
pub struct Chains {
    pub envoy: Envoy,
    pub control_plane: ControlPlane,
    pub gateway: SocketAddr,
    directory: TempDir,
}

impl Chains {
    /// Starts it with routes to an upstream, and further documents.
    pub fn start(upstream: SocketAddr, routes: &[&str], resources: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let mut text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: edge }}\nspec:\n  listeners: [{{ name: http, port: \
             {port} }}]\n  routes:\n"
        );
        for route in routes.iter().chain(&["probe"]) {
            text += &format!("    - {{ name: {route}, match: {{ path: {{ prefix: /{route} }} }}, service: echo }}\n");
        }
        text += &format!(
            "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: echo }}\nspec: {{ endpoints: [{{ address: \
             127.0.0.1, port: {} }}] }}\n",
            upstream.port()
        );
        fs::write(directory.path().join("gateway.yaml"), text).unwrap();
        fs::write(directory.path().join("policies.yaml"), resources).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let envoy = Envoy::whole(control_plane.xds()).unwrap();
        let gateway = SocketAddr::from(([127, 0, 0, 1], port));
        let mut client = Client::new(gateway);
        wait::until_true("the gateway to serve", || Ok(client.get("/probe")?.status == 200)).unwrap();
        Self { envoy, control_plane, gateway, directory }
    }

    /// Replaces the policies, at once and whole.
    pub fn write(&self, resources: &str) {
        postern_tests::site::write_whole(self.directory.path(), "policies.yaml", resources).unwrap();
    }

    pub fn send(&self, request: &Request) -> Answer {
        Client::new(self.gateway).send(request).unwrap()
    }

    /// The same by HTTP/2, without TLS.
    pub fn send_h2(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(exchange(self.gateway, method, path, headers, body))
    }
}

async fn exchange(gateway: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let stream = TcpStream::connect(gateway).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let mut client = client.ready().await.unwrap();
    let request = axum::http::Request::builder().method(method).uri(format!("http://{gateway}{path}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let (response, mut stream) = client.send_request(request.body(()).unwrap(), body.is_empty()).unwrap();
    if !body.is_empty() {
        stream.send_data(body.to_vec().into(), true).unwrap();
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
    Answer { status: head.status.as_u16(), headers, body: text(&body) }
}

/// A RoutePolicy for one route.
pub fn policy(route: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p-{route} }}\nspec:\n  targetRef: {{ kind: HTTPRoute, \
         name: {route} }}\n{spec}\n"
    )
}
