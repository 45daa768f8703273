//! The edge of an Envoy with listeners of its own, as `envoy-config/overlay.yaml` has it: a guarded host and a guarded path
//! beside a route for everything that is open. The same attacks as on generated listeners, by HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;

use postern_tests::{
    Client, ControlPlane, Envoy, Upstream,
    http2::{H2, StreamEnd},
    site::free_port,
    wait,
};
use tempfile::TempDir;

use crate::{
    chains::{overlay_with, policy},
    hosts::{NONE, SAME},
};

struct Overlay {
    envoy: Envoy,
    address: SocketAddr,
    _control_plane: ControlPlane,
    _upstream: Upstream,
    _directory: TempDir,
}

/// What is added after the routes of the file: an open route for everything, and a host with a guarded one.
const HOST: &str = "                    - name: admin
                      domains: [admin.example.com]
                      routes:
                        - match:
                            prefix: /
                            headers:
                              - name: \":authority\"
                                invert_match: true
                                string_match: { safe_regex: { regex: '[0-9A-Za-z_-]+(\\.[0-9A-Za-z_-]+)*(:[0-9]*)?' } }
                          direct_response: { status: 400 }
                        - { name: admin, match: { prefix: / }, route: { cluster: backend } }
";
const OPEN: &str = "                        - { name: open, match: { prefix: / }, route: { cluster: backend } }\n";

impl Overlay {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let guard = |route: &str| policy(route, "  request: [{ policy: apiKeyAuth, params: { header: x-api-key } }]");
        std::fs::write(directory.path().join("p.yaml"), [guard("users"), guard("admin")].concat()).unwrap();
        let upstream = Upstream::start(0).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let port = free_port().unwrap();
        let lines = [OPEN, HOST].concat();
        let envoy = overlay_with(port, upstream.address(), &lines, control_plane.xds());
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut client = Client::new(address);
        wait::until_true("the listener to serve", || {
            Ok(client.get("/welcome").is_ok_and(|answer| answer.status == 200))
        })
        .unwrap();
        Self { envoy, address, _control_plane: control_plane, _upstream: upstream, _directory: directory }
    }

    /// The status by HTTP/1.1, and the upstream's echo of what it got.
    fn h1(&self, target: &[u8], headers: &str) -> (u16, String) {
        let bytes = [b"GET ", target, b" HTTP/1.1\r\n", headers.as_bytes(), b"\r\n"].concat();
        let answer = Client::new(self.address).send_raw(&bytes).unwrap();
        (answer.status, answer.body)
    }

    fn h2(&self, path: &str, more: &[(&str, &str)]) -> StreamEnd {
        let base = [(":method", "GET"), (":path", path), (":scheme", "http")];
        H2::connect(self.address).unwrap().request(&[&base[..], more].concat()).unwrap()
    }

    fn reached(&self) -> u64 {
        self.envoy.stat("cluster.backend.upstream_rq_total").unwrap().unwrap_or_default()
    }
}

fn is_refused(outcome: &StreamEnd) -> bool {
    matches!(outcome.status(), None | Some(400))
}

#[test]
fn a_host_is_guarded_however_it_is_written() {
    let overlay = Overlay::start();
    let before = overlay.reached();
    for host in SAME {
        assert_eq!(overlay.h1(b"/", &format!("host: {host}\r\n")).0, 401, "{host}");
        assert_eq!(overlay.h2("/", &[(":authority", host)]).status(), Some(401), "{host}");
    }
    for host in NONE {
        assert_eq!(overlay.h1(b"/", &format!("host: {host}\r\n")).0, 400, "{host}");
        let outcome = overlay.h2("/", &[(":authority", host)]);
        assert!(is_refused(&outcome), "{host}: {outcome:?}");
    }
    assert_eq!(overlay.h1(b"/", "host: other\r\nhost: admin.example.com\r\n").0, 400);
    assert_eq!(overlay.reached(), before);
    assert_eq!(overlay.h1(b"/", "host: other\r\n").0, 200);
}

#[test]
fn a_path_is_guarded_however_it_is_written() {
    let overlay = Overlay::start();
    let before = overlay.reached();
    for (path, status) in [
        ("/users", 401),
        ("/users/7[", 401),
        ("/%75sers/7", 401),
        ("/x/../users/7", 401),
        ("/x/%2e%2e/users/7", 401),
        ("//users//7", 401),
        ("/x\\..\\users\\7", 401),
        ("/x/..%2fusers/7", 400),
        ("/x/..%5Cusers/7", 400),
        ("/users%2f7", 400),
        ("/users;x", 400),
        ("/users%3Bx/7", 400),
        ("/x/%2e%2e;/users", 400),
    ] {
        assert_eq!(overlay.h1(path.as_bytes(), "host: a\r\n").0, status, "{path}");
        assert_eq!(overlay.h2(path, &[(":authority", "a")]).status(), Some(status), "{path}");
    }
    assert_eq!(overlay.reached(), before);
    // Every byte, raw and escaped: what an upstream takes for a path below /users has not come without a key.
    for byte in 0..=255_u8 {
        for spelling in [vec![byte], format!("%{byte:02x}").into_bytes()] {
            if matches!(spelling[..], [b'\n' | b'\r' | b' ']) {
                continue;
            }
            for (before, after) in [("/users", ""), ("/users/", ""), ("/", "users/7"), ("/users", "/7")] {
                let path = [before.as_bytes(), &spelling, after.as_bytes()].concat();
                let (status, body) = overlay.h1(&path, "host: a\r\n");
                let echo = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
                let seen = echo["path"].as_str().unwrap_or_default().split('?').next().unwrap_or_default();
                let passes = seen == "/users" || seen.starts_with("/users/");
                let path = String::from_utf8_lossy(&path);
                assert!(!(status == 200 && passes), "{path} is {seen} upstream");
                assert!(matches!(status, 200 | 400 | 401), "{path}: {status}");
            }
        }
    }
}

#[test]
fn nobody_passes_for_another() {
    let overlay = Overlay::start();
    assert_eq!(overlay.h1(b"/x", "host: a\r\nx_user_id: root\r\n").0, 400);
    assert!(is_refused(&overlay.h2("/x", &[(":authority", "a"), ("x_user_id", "root")])));
    let many = "a: b\r\n".repeat(200);
    assert_eq!(overlay.h1(b"/x", &format!("host: a\r\n{many}")).0, 431);
    let mut client = H2::connect(overlay.address).unwrap();
    let settings = client.settings().unwrap();
    assert_eq!((settings.get(&3), settings.get(&4)), (Some(&100), Some(&65_536)), "{settings:?}");
}
