//! Who reaches the admin API and polling on loopback. A page in a browser on the same machine tries by forms, by
//! scripts, and under a name of its own that resolves to 127.0.0.1 (DNS rebinding); any process tries by connections
//! that never become a request. The requests are the bytes that Chromium sends for each, headers included.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    process::Output,
    time::Duration,
};

use postern_tests::{Client, ControlPlane, Envoy, Received, Request, Site, Upstream, wait};
use serde_json::Value;
use tempfile::TempDir;

const POLL: &str = r#"{"node": {"id": "stranger"}}"#;

struct Shop {
    control_plane: ControlPlane,
    site: Site,
    _upstream: Upstream,
    _directory: TempDir,
}

impl Shop {
    fn open(start: impl FnOnce(&Site) -> ControlPlane) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        let control_plane = start(&site);
        Self { control_plane, site, _upstream: upstream, _directory: directory }
    }

    fn with(options: &[&str]) -> Self {
        let options: Vec<_> = options.iter().map(std::ffi::OsStr::new).collect();
        Self::open(|site| ControlPlane::start_with(site.directory(), &options).unwrap())
    }

    fn host(&self) -> String {
        self.control_plane.http().to_string()
    }

    fn send(&self, request: &Request) -> Received {
        Client::new(self.control_plane.http()).send(request).unwrap()
    }

    #[track_caller]
    fn check(&self, request: &Request, status: u16, detail: &str) {
        let answer = self.send(request);
        assert_eq!(answer.status, status, "{request:?}: {}", answer.body);
        if status >= 400 {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{request:?}");
            let problem: Value = serde_json::from_str(&answer.body).unwrap();
            assert!(problem["detail"].as_str().unwrap().contains(detail), "{request:?}: {problem}");
        }
    }

    fn command(&self, arguments: &[&str]) -> Output {
        let mut command = ControlPlane::command().unwrap();
        command.args(arguments).args(["--server", &self.host()]).output().unwrap()
    }
}

/// A form of another site, as Chromium sends it.
fn form(path: &str, host: &str) -> Request {
    Request::new("POST", path)
        .host(host)
        .header("origin", "http://evil.example")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document")
        .body("")
}

/// A `fetch(…, { mode: "no-cors" })` of another site.
fn fetch(path: &str, host: &str, site: &str) -> Request {
    Request::new("POST", path)
        .host(host)
        .header("origin", "http://localhost:3000")
        .header("content-type", "text/plain;charset=UTF-8")
        .header("sec-fetch-site", site)
        .header("sec-fetch-mode", "no-cors")
        .header("sec-fetch-dest", "empty")
        .body("{}")
}

#[test]
fn hole_14_a_page_of_another_site_changes_nothing_and_reads_nothing() {
    let shop = Shop::with(&[]);
    let host = shop.host();
    for path in ["/api/v1/rollout/abort", "/api/v1/apply", "/api/v1/rollback", "/v3/discovery:secrets", "/nowhere"] {
        let detail = if path.starts_with("/v3") { "polling is for Envoys" } else { "is another site" };
        shop.check(&form(path, &host), 403, detail);
        shop.check(&fetch(path, &host, "cross-site"), 403, detail);
        shop.check(&fetch(path, &host, "same-site"), 403, detail);
    }
    // Browsers that say nothing of themselves: what a form can send is not enough.
    let bare =
        |kind: &str| Request::new("POST", "/api/v1/rollout/abort").host(&host).header("content-type", kind).body("");
    for kind in ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"] {
        shop.check(&bare(kind), 415, "`Content-Type: application/json`");
    }
    shop.check(&Request::new("POST", "/api/v1/rollout/abort").host(&host).body(""), 415, "X-Postern-Client");
    // An image or an event source of another site.
    let get = |path: &str| Request::get(path).host(&host);
    shop.check(&get("/api/v1/events").header("sec-fetch-site", "cross-site"), 403, "another site");
    shop.check(&get("/api/v1/events").header("origin", "null"), 403, "another site");
    // What a browser asks before a request that is not simple: nobody says yes.
    let preflight = Request::new("OPTIONS", "/api/v1/resources/Consumer/app")
        .host(&host)
        .header("origin", "http://evil.example")
        .header("access-control-request-method", "DELETE")
        .header("sec-fetch-site", "cross-site");
    let answer = shop.send(&preflight);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None));
    // xDS speaks HTTP/2 alone, which no page can.
    let mut xds = TcpStream::connect(shop.control_plane.xds()).unwrap();
    let path = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets";
    write!(xds, "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    let mut said = Vec::new();
    let _ = xds.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP/1"), "{}", String::from_utf8_lossy(&said));
    // Programs and our own pages go on.
    assert_eq!(shop.send(&bare("application/json")).status, 409, "there is no rollout to abort");
    let own = get("/status").header("origin", format!("http://{host}")).header("sec-fetch-site", "same-origin");
    assert_eq!(shop.send(&own).status, 200);
    assert_eq!(shop.send(&get("/status").header("sec-fetch-site", "none")).status, 200);
    for arguments in [&["status"][..], &["nodes"], &["revisions"], &["get", "Gateway"]] {
        let output = shop.command(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn hole_14_a_name_that_leads_here_is_not_ours() {
    let shop = Shop::with(&[]);
    let port = shop.control_plane.http().port();
    let json = |request: Request| request.header("content-type", "application/json");
    for host in [&format!("evil.example:{port}"), "evil.example", "127.0.0.1.evil.example", "postern", "localhost:1"] {
        for path in ["/status", "/api/v1/resources", "/api/v1/events", "/metrics", "/healthz"] {
            shop.check(&Request::get(path).host(host), 403, "is not a name of this control plane");
        }
        shop.check(&json(Request::new("POST", "/api/v1/rollout/abort").host(host).body("")), 403, "--http-host");
    }
    let poll = |host: &str| json(Request::new("POST", "/v3/discovery:secrets").host(host).body(POLL));
    for host in [&format!("evil.example:{port}"), "evil.example", "postern.evil.example", "localhost:1"] {
        shop.check(&poll(host), 403, "--poll-cluster");
    }
    for host in ["postern", "localhost", &format!("127.0.0.1:{port}"), &format!("localhost:{port}")] {
        assert_eq!(shop.send(&poll(host)).status, 200, "{host}");
        // A page that was served under any of these names polls nothing either.
        shop.check(&poll(host).header("sec-fetch-mode", "cors"), 403, "polling is for Envoys");
        shop.check(&poll(host).header("origin", format!("http://{host}")), 403, "polling is for Envoys");
    }
    // A second host, another one in the request line, or none.
    shop.check(&Request::get("/status").host(&shop.host()).header("host", "evil.example"), 400, "exactly one `Host`");
    shop.check(&Request::get("http://evil.example/status").host(&shop.host()), 400, "exactly one `Host`");
    let mut raw = TcpStream::connect(shop.control_plane.http()).unwrap();
    raw.write_all(b"GET /status HTTP/1.0\r\n\r\n").unwrap();
    let mut said = String::new();
    raw.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.0 400"), "{said}");
}

#[test]
fn hole_14_declared_names_are_let_in() {
    let shop =
        Shop::with(&["--http-host", "postern.internal", "--http-host", "localhost:8080", "--poll-cluster", "xds"]);
    for host in ["postern.internal", "postern.internal:443", "localhost:8080", "localhost"] {
        assert_eq!(shop.send(&Request::get("/status").host(host)).status, 200, "{host}");
    }
    shop.check(&Request::get("/status").host("localhost:8081"), 403, "--http-host localhost:8081");
    let poll = |host: &str| {
        Request::new("POST", "/v3/discovery:clusters").host(host).header("content-type", "application/json").body(POLL)
    };
    for host in ["xds", "postern", "postern.internal"] {
        assert_eq!(shop.send(&poll(host)).status, 200, "{host}");
    }
    shop.check(&poll("xdss"), 403, "(`xds`, `postern`)");
}

/// Connections on which this much is sent, and no more.
fn half_open(address: SocketAddr, number: usize, said: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may have had to give way already.
        let _ = stream.write_all(said);
        stream
    };
    (0..number).map(open).collect()
}

#[test]
fn hole_14_half_requests_stop_neither_xds_nor_the_admin_api() {
    let shop = Shop::open(|site| ControlPlane::start_with_open_files(site.directory(), &[], 512).unwrap());
    let (http, xds) = (shop.control_plane.http(), shop.control_plane.xds());
    let head = b"GET /status HTTP/1.1\r\nhost: localhost\r\n";
    let body = b"POST /api/v1/apply HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let held = [
        half_open(http, 320, head),
        half_open(http, 320, body),
        half_open(http, 320, b""),
        half_open(xds, 320, b""),
        half_open(xds, 320, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ];
    for _ in 0..10 {
        assert_eq!(shop.send(&Request::get("/status")).status, 200);
    }
    let envoy = Envoy::whole(xds).unwrap();
    envoy.wait_until_serving(shop.site.listener(), &Request::get("/welcome")).unwrap();
    assert!(shop.command(&["status"]).status.success());
    drop(held);
}

#[test]
fn hole_14_what_does_not_come_in_time_is_ended() {
    let shop = Shop::with(&["--http-timeout", "1"]);
    let http = shop.control_plane.http();
    let read = |said: &[u8]| {
        let mut stream = TcpStream::connect(http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
        stream.write_all(said).unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    let body = b"POST /api/v1/apply HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let late = read(body);
    assert!(late.starts_with("HTTP/1.1 408") && late.contains("the body did not come in time"), "{late}");
    let poll = b"POST /v3/discovery:clusters HTTP/1.1\r\nhost: postern\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n";
    assert!(read(poll).starts_with("HTTP/1.1 408"));
    let half = read(b"GET /status HTTP/1.1\r\nhost: localhost\r\n");
    assert!(half.is_empty() || half.starts_with("HTTP/1.1 408"), "{half}");
    assert_eq!(read(b""), "");
    // A body that comes in small parts is whole in the end, or ended all the same.
    let mut slow = TcpStream::connect(http).unwrap();
    slow.write_all(body).unwrap();
    let drop_by_drop = || Ok(slow.try_clone()?.write_all(b" ").is_err());
    let trickle = b"POST /api/v1/apply HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9999999\r\n\r\n";
    let mut trickled = TcpStream::connect(http).unwrap();
    trickled.write_all(trickle).unwrap();
    wait::until_true("the end of a body that trickles in", || Ok(trickled.write_all(b" ").is_err())).unwrap();
    wait::until_true("the end of a body that is too long", drop_by_drop).unwrap();
    assert_eq!(shop.send(&Request::get("/status")).status, 200);
}

#[test]
fn hole_14_followers_of_one_client_leave_places_to_others() {
    let shop = Shop::with(&[]);
    let http = shop.control_plane.http();
    let follow = || {
        let mut stream = TcpStream::connect(http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        (String::from_utf8(start.into()).unwrap(), stream)
    };
    let following: Vec<_> = (0..32).map(|_| follow()).collect();
    assert!(following.iter().all(|(start, _)| start == "HTTP/1.1 200"));
    assert_eq!(follow().0, "HTTP/1.1 429");
    let once = Request::get("/api/v1/events?follow=false");
    shop.check(&once, 429, "follow events already from 127.0.0.1");
    assert_eq!(shop.send(&Request::get("/status")).status, 200);
    for (_, stream) in &following {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    wait::until_true("a place", || Ok(follow().0 == "HTTP/1.1 200")).unwrap();
}
