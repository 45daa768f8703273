//! A gateway that guards some routes and not others, for tests that try to get around the guard.

use std::net::SocketAddr;

use postern_tests::{Client, ControlPlane, Envoy, Received, Request, Upstream, site::free_port, wait};
use tempfile::TempDir;

use crate::world::KEY;

/// The digest of [`KEY`].
const KEY_DIGEST: &str = "c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c";

/// An Envoy with one gateway. `guarded` routes require a key. Every answer has the route's name in `x-route`.
pub struct Edge {
    pub envoy: Envoy,
    pub address: SocketAddr,
    _control_plane: ControlPlane,
    _upstream: Upstream,
    directory: TempDir,
}

impl Edge {
    /// Starts a gateway with these routes, of which some are guarded. A route is its YAML without the service.
    pub fn start(guarded: &[&str], open: &[&str]) -> Self {
        Self::start_with("{}", guarded, open, "")
    }

    /// Like [`Self::start`], with `http` of the gateway, and further documents.
    pub fn start_with(http: &str, guarded: &[&str], open: &[&str], more: &str) -> Self {
        Self::start_on(None, &[], http, guarded, open, more)
    }

    /// Like [`Self::start_with`], with the test's own backend on a port, and replacements in the bootstrap.
    pub fn start_on(
        backend: Option<u16>,
        bootstrap: &[(&str, &str)],
        http: &str,
        guarded: &[&str],
        open: &[&str],
        more: &str,
    ) -> Self {
        let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
        let port = free_port().unwrap();
        let text = resources(port, backend.unwrap_or(upstream.address().port()), http, guarded, open) + more;
        std::fs::write(directory.path().join("all.yaml"), text).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let envoy = Envoy::start("whole.yaml", control_plane.xds(), bootstrap).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait::until_true("the gateway to listen", || Ok(Client::new(address).get("/probe").is_ok())).unwrap();
        Self { envoy, address, _control_plane: control_plane, _upstream: upstream, directory }
    }

    pub fn send(&self, request: &Request) -> Received {
        Client::new(self.address).send(request).unwrap()
    }

    /// Sends bytes. Returns the status of the answer and the route that it came by.
    pub fn raw(&self, bytes: impl AsRef<[u8]>) -> (u16, Option<String>) {
        let answer = Client::new(self.address).send_raw(bytes.as_ref()).unwrap();
        (answer.status, answer.header("x-route").map(str::to_owned))
    }

    /// Changes `http` of the gateway, and waits until `holds` is true many times in a row: workers take a new listener
    /// one after the other, and each connection belongs to one of them.
    pub fn change(&self, from: &str, to: &str, mut holds: impl FnMut(&Self) -> bool) {
        let path = self.directory.path().join("all.yaml");
        let text = postern_tests::site::replaced(&std::fs::read_to_string(&path).unwrap(), from, to).unwrap();
        postern_tests::site::write_whole(self.directory.path(), "all.yaml", &text).unwrap();
        let mut held = 0;
        wait::until_true("the change", || {
            held = if holds(self) { held + 1 } else { 0 };
            Ok(held >= 12)
        })
        .unwrap();
    }
}

/// The name of a route, with which its YAML starts.
fn name(route: &str) -> &str {
    route.split_once("name: ").unwrap().1.split(',').next().unwrap()
}

pub fn resources(port: u16, upstream: u16, http: &str, guarded: &[&str], open: &[&str]) -> String {
    const GUARD: &str = "\n  request: [{ policy: apiKeyAuth, params: { header: x-api-key } }]";
    let mut text = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: edge }}\nspec:\n  listeners: [{{ name: http, port: {port} \
         }}]\n  http: {http}\n  routes:\n"
    );
    for route in guarded.iter().chain(open) {
        text += &format!("    - {{ {route}, service: backend }}\n");
    }
    text += &format!(
        "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: backend }}\nspec: {{ endpoints: [{{ address: \
         127.0.0.1, port: {upstream} }}] }}\n---\napiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: app }}\nspec: {{ \
         apiKeys: [{{ sha256: {KEY_DIGEST} }}] }}\n"
    );
    let all = guarded.iter().map(|route| (route, GUARD)).chain(open.iter().map(|route| (route, "")));
    for (route, request) in all {
        let name = name(route);
        text += &format!(
            "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: of-{name} }}\nspec:\n  targetRef: {{ kind: \
             HTTPRoute, name: {name} }}{request}\n  response: [{{ policy: headers, params: {{ set: {{ x-route: {name} }} }} \
             }}]\n"
        );
    }
    text
}

/// A request of HTTP/1.1 in bytes, with the key.
pub fn h1(target: &[u8], headers: &[&str]) -> Vec<u8> {
    let mut bytes = [b"GET ", target, b" HTTP/1.1\r\n"].concat();
    for header in headers {
        bytes.extend(format!("{header}\r\n").into_bytes());
    }
    bytes.extend(format!("x-api-key: {KEY}\r\n\r\n").into_bytes());
    bytes
}
