//! An Envoy with routes of its own that have no names: policies find them by `match`. The ways around a guarded path or
//! host, in several normalizations of Envoy, by HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;

use postern_tests::{
    Client, ControlPlane, Envoy, Upstream,
    http2::{H2, StreamEnd},
    nameless::{AS_IT_CAME, NORMALIZATION, ROUTES},
    site::free_port,
    wait,
};
use tempfile::TempDir;

use crate::{hosts, world::assert_no_vm_failure};

/// How Envoy treats paths and hosts.
const SETTINGS: [&str; 4] = [
    AS_IT_CAME,
    "                normalize_path: true\n                merge_slashes: true\n                path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD\n                strip_trailing_host_dot: true\n",
    "                normalize_path: true\n                merge_slashes: false\n                path_with_escaped_slashes_action: KEEP_UNCHANGED\n",
    "                normalize_path: false\n                merge_slashes: true\n                path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD\n",
];

const POLICIES: &str = "apiVersion: postern/v1
kind: Consumer
metadata: { name: mobile }
spec: { apiKeys: [{ key: demo-key }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: admin }
spec:
  targetRef: { kind: HTTPRoute, name: /admin }
  match: { path: { prefix: /admin } }
  request:
    - { policy: apiKeyAuth, params: { header: x-api-key } }
    - { policy: headers, params: { set: { x-admin: '1' } } }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: host }
spec:
  targetRef: { kind: HTTPRoute, name: admin-host }
  match: { hosts: [admin.example.com] }
  request: [{ policy: apiKeyAuth, params: { header: x-api-key } }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: docs }
spec:
  targetRef: { kind: HTTPRoute, name: docs }
  match: { path: { template: '/admin/{section}/docs' }, methods: [GET] }
  public: { reason: documentation }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: keys }
spec:
  targetRef: { kind: HTTPRoute, name: keys }
  match: { path: { regex: '/users/[0-9]+/keys' } }
  request: [{ policy: respond, params: { status: 410 } }]
";

struct Overlay {
    envoy: Envoy,
    address: SocketAddr,
    _control_plane: ControlPlane,
    _upstream: Upstream,
    _directory: TempDir,
}

impl Overlay {
    fn start(normalization: &str, more: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("policies.yaml"), POLICIES).unwrap();
        let upstream = Upstream::start(0).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let port = free_port().unwrap();
        let ports = [format!("port_value: {}", upstream.address().port()), format!("port_value: {port}")];
        let replace = [
            ("port_value: 10001", ports[0].as_str()),
            ("port_value: 10000", ports[1].as_str()),
            (NORMALIZATION, normalization),
        ];
        let replace = [&replace[..], &ROUTES, more].concat();
        let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let overlay =
            Self { envoy, address, _control_plane: control_plane, _upstream: upstream, _directory: directory };
        wait::until_true("the guard", || {
            Ok(Client::new(address).get("/admin").is_ok_and(|answer| answer.status == 401))
        })
        .unwrap();
        overlay
    }

    /// The status by HTTP/1.1, and the path that the upstream saw.
    fn h1(&self, method: &str, target: &str, headers: &str) -> (u16, String) {
        let bytes = format!("{method} {target} HTTP/1.1\r\n{headers}\r\n");
        let answer = Client::new(self.address).send_raw(bytes.as_bytes()).unwrap();
        let echo: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        (answer.status, echo["path"].as_str().unwrap_or_default().to_owned())
    }

    fn h2(&self, path: &str, authority: &str) -> StreamEnd {
        let headers = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", authority)];
        H2::connect(self.address).unwrap().request(&headers).unwrap()
    }

    fn reached(&self) -> u64 {
        self.envoy.stat("cluster.backend.upstream_rq_total").unwrap().unwrap_or_default()
    }
}

/// Paths that some upstream takes for one below `/admin`, or one Envoy does.
const AROUND: [&str; 37] = [
    "/admin",
    "/admin/",
    "/admin/x",
    "/admin?x=/docs",
    "/x/../admin",
    "/x/%2e%2e/admin",
    "/x/%2E%2e/admin",
    "/x/..%2fadmin",
    "/x/..%2Fadmin",
    "/x/..%252fadmin",
    "/x%2f..%2fadmin",
    "/x/..%5cadmin",
    "/x\\..\\admin",
    "/%61dmin",
    "/%61%64%6d%69%6E/x",
    "//admin",
    "///admin/x",
    "/x//..//admin",
    "/x//../../admin",
    "/./admin",
    "/%2e/admin",
    "/admin;x",
    "/admin;x/y",
    "/admin%3bx",
    "/x/..;/admin",
    "/x/..;a=b/admin/y",
    "/.;/admin",
    "/%2fadmin",
    "/admin%2f",
    "/admin%2fx/docs/../y",
    "/admin/x/docs/..",
    "/admin/x/docs/../y",
    // Parsers of URLs take `x` for a host.
    "//x/admin",
    "///x/admin",
    "/\\x/admin",
    // `$` in a pattern matches before a newline, too.
    "/admin%0a",
    "/admin%0d%0a",
];

/// Whether no upstream takes a path for a guarded one: an Envoy has made it of another, such as `/x//..//admin`.
fn is_harmless(seen: &str) -> bool {
    let merged = seen.split('/').filter(|segment| !segment.is_empty()).collect::<Vec<_>>().join("/");
    !["%", "\\", ";", "/."].iter().any(|odd| seen.contains(odd))
        && !merged.starts_with("admin")
        && !seen.starts_with("//")
}

#[test]
fn nobody_gets_around_a_guarded_path() {
    for setting in SETTINGS {
        let overlay = Overlay::start(setting, &[]);
        let (before, mut passed) = (overlay.reached(), 0);
        for path in AROUND {
            let (status, seen) = overlay.h1("GET", path, "host: a\r\n");
            let fits = matches!(status, 400 | 401) || status == 200 && is_harmless(&seen);
            assert!(fits, "{path}: {status} {seen} with\n{setting}");
            passed += u64::from(status == 200);
            let outcome = overlay.h2(path, "a");
            let fits = matches!(outcome.status(), None | Some(400 | 401)) || status == 200;
            assert!(fits, "{path}: {outcome:?} with\n{setting}");
            passed += u64::from(outcome.status() == Some(200));
        }
        for target in ["\\admin", "admin", "*", "http://a", "//", "/users/7/keys"] {
            let (status, seen) = overlay.h1("GET", target, "host: a\r\n");
            assert!(status != 200 || !seen.contains("admin"), "{target}: {status} {seen} with\n{setting}");
        }
        assert_eq!(overlay.h1("GET", "http://a/admin", "host: b\r\n").0, 401, "{setting}");
        for keys in ["/users/7/keys", "/users/7/keys/"] {
            assert_eq!(overlay.h1("GET", keys, "host: a\r\n").0, 410, "{keys} with\n{setting}");
        }
        let reached = overlay.reached() - before;
        assert!(reached <= passed + 2, "{reached} requests reached the upstream with\n{setting}");
        assert_no_vm_failure(&overlay.envoy);
    }
}

#[test]
fn nobody_gets_around_a_guarded_host() {
    for setting in SETTINGS {
        let overlay = Overlay::start(setting, &[]);
        let before = overlay.reached();
        for host in hosts::SAME {
            assert_eq!(overlay.h1("GET", "/", &format!("host: {host}\r\n")).0, 401, "{host} with\n{setting}");
            assert_eq!(overlay.h2("/", host).status(), Some(401), "{host} with\n{setting}");
        }
        for host in hosts::NONE {
            // An Envoy that takes away one of two dots leaves the guarded host.
            let status = overlay.h1("GET", "/", &format!("host: {host}\r\n")).0;
            assert!(matches!(status, 400 | 401), "{host}: {status} with\n{setting}");
            let outcome = overlay.h2("/", host);
            assert!(matches!(outcome.status(), None | Some(400 | 401)), "{host}: {outcome:?} with\n{setting}");
        }
        assert_eq!(overlay.h1("GET", "/", "host: a\r\nhost: admin.example.com\r\n").0, 400);
        assert_eq!(overlay.h1("GET", "/", "host: admin.example.com\r\nhost: a\r\n").0, 400);
        assert_eq!(overlay.h1("GET", "http://admin.example.com/", "host: a\r\n").0, 401);
        assert_eq!(overlay.h1("GET", "http://ADMIN.example.com:80/", "host: a\r\n").0, 401);
        assert_eq!(overlay.reached(), before);
        assert_no_vm_failure(&overlay.envoy);
    }
}

#[test]
fn everything_else_takes_its_own_match_or_none() {
    for setting in SETTINGS {
        let overlay = Overlay::start(setting, &[]);
        let check = |method: &str, path: &str, status: u16| {
            assert_eq!(overlay.h1(method, path, "host: a\r\n").0, status, "{method} {path} with\n{setting}");
        };
        check("GET", "/", 200);
        check("GET", "/administrators", 200);
        check("GET", "/x/admin", 200);
        check("GET", "/x?/../admin", 200);
        check("GET", "/x?y=%2fadmin;z", 200);
        check("GET", "/admin/x/docs", 200);
        check("GET", "/admin/x/docs/", 200);
        check("POST", "/admin/x/docs", 401);
        check("GET", "/admin/x/y/docs", 401);
        check("GET", "/users/7/keys", 410);
        check("GET", "/users/x/keys", 200);
        let key = "host: a\r\nx-api-key: demo-key\r\n";
        assert_eq!(overlay.h1("GET", "/admin/x", key), (200, "/admin/x".to_owned()), "{setting}");
        let logged = |line: &serde_json::Value| {
            line["status"] == 200
                && line["decision"].as_str().is_some_and(|decision| decision.contains(" route=/admin "))
        };
        wait::until_true("the name in the log", || Ok(overlay.envoy.access_log().iter().any(logged))).unwrap();
        assert_no_vm_failure(&overlay.envoy);
    }
}

/// A filter of the Envoy's own that sets the path to what the header `x-path-{place}` says.
fn lua(place: &str) -> String {
    format!(
        "                  - name: lua-{place}
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
                      default_source_code:
                        inline_string: |
                          function envoy_on_request(handle)
                            local path = handle:headers():get(\"x-path-{place}\")
                            if path ~= nil then handle:headers():replace(\":path\", path) end
                          end
"
    )
}

#[test]
fn refuses_a_request_that_is_another_after_its_chain_ran() {
    const BEFORE: &str = "                http_filters:\n";
    const AFTER: &str = "                  # Filters of your own may stand here.\n";
    let (before, after) = (format!("{BEFORE}{}", lua("before")), format!("{}{AFTER}", lua("after")));
    let overlay = Overlay::start(SETTINGS[0], &[(BEFORE, &before), (AFTER, &after)]);
    let check = |path: &str, header: &str, status: u16| {
        let headers = format!("host: a\r\n{header}\r\n");
        assert_eq!(overlay.h1("GET", path, &headers).0, status, "{path} {header}");
    };
    check("/x", "x-path-before: /admin/x", 401);
    check("/x", "x-path-before: /y", 200);
    check("/x", "x-path-after: /admin/x", 500);
    check("/x", "x-path-after: /y/../admin/x", 400);
    check("/x", "x-path-after: /y", 200);
    check("/admin/x/docs", "x-path-after: /admin/x", 500);
    check("/admin/x", "x-path-after: /x", 401);
    check("/admin/x", "x-api-key: demo-key\r\nx-path-after: /x", 500);
    check("/admin/x", "x-api-key: demo-key\r\nx-path-after: /admin/y", 200);
    assert_no_vm_failure(&overlay.envoy);
}
