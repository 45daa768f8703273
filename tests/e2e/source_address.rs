//! `source.address` is the address of the caller. A caller has one bucket on all of its connections, and cannot choose
//! its bucket by a header.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
};

use postern_tests::{Client, ControlPlane, Envoy, Request, Upstream, http2::H2, site::free_port, wait};
use serde_json::Value;

use crate::edge::Edge;

const LIMIT: &str = "[{ policy: rateLimit, params: { requests: 10, per: 1h, key: source.address } }]";
const FACTS: &str = "[{ policy: auditLog, params: { to: { log: true }, fields: { address: source.address, port: source.port, to: \
                     destination.address, at: destination.port, scheme: request.scheme, host: request.host, protocol: \
                     request.protocol, mtls: connection.mtls, tls: connection.tls_version, sni: \
                     connection.requested_server_name, principal: source.principal, cluster: xds.cluster_name, virtualHost: \
                     xds.virtual_host_name, name: xds.route_name, size: request.size, urlPath: request.url_path, query: \
                     request.query, id: request.id } } }]";

fn policy(route: &str, chain: &str) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: test }}\nspec:\n  targetRef: {{ kind: HTTPRoute, \
         name: {route} }}\n  request: {chain}\n"
    )
}

/// The statuses of a number of requests, each on a connection of its own, with these values of X-Forwarded-For.
fn statuses(address: SocketAddr, path: &str, requests: u32, forwarded: impl Fn(u32) -> String) -> Vec<u16> {
    let status = |index| {
        let mut request = Request::get(path);
        let forwarded = forwarded(index);
        if !forwarded.is_empty() {
            request = request.header("x-forwarded-for", forwarded);
        }
        Client::new(address).send(&request).unwrap().status
    };
    (0..requests).map(status).collect()
}

fn admitted(statuses: &[u16]) -> usize {
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

#[test]
fn two_hundred_guesses_on_two_hundred_connections_share_a_bucket() {
    let edge = Edge::start_with("{}", &[], &["name: open"], &policy("open", LIMIT));
    // The probe that found the gateway took one.
    assert_eq!(admitted(&statuses(edge.address, "/", 200, |_| String::new())), 9);
    // Nor does a header give a caller another one.
    assert_eq!(admitted(&statuses(edge.address, "/", 50, |index| format!("203.0.113.{index}"))), 0);
    let through_http2 = |index: u32| {
        let forwarded = format!("198.51.100.{index}");
        let headers = [
            (":method", "GET"),
            (":path", "/"),
            (":scheme", "http"),
            (":authority", "a"),
            ("x-forwarded-for", &forwarded),
        ];
        H2::connect(edge.address).unwrap().request(&headers).unwrap().status()
    };
    assert!((0..20).all(|index| through_http2(index) == Some(429)));
}

#[test]
fn a_trusted_proxy_says_who_calls_and_nobody_before_it() {
    let edge = Edge::start_with("{ trustedHops: 1 }", &[], &["name: open"], &policy("open", LIMIT));
    // What the proxy saw is the last entry; a caller can only write what stands before it.
    assert_eq!(admitted(&statuses(edge.address, "/", 40, |index| format!("192.0.2.{index}, 203.0.113.7"))), 10);
    assert_eq!(admitted(&statuses(edge.address, "/", 40, |index| format!("192.0.2.{index}, 203.0.113.8"))), 10);
}

#[test]
fn address_filters_and_gateways_count_the_same_proxies() {
    let filter = |hops: u32| {
        policy("open", &format!("[{{ policy: ipFilter, params: {{ allow: [203.0.113.7], trustedHops: {hops} }} }}]"))
    };
    let status =
        |edge: &Edge, forwarded: &str| edge.send(&Request::get("/").header("x-forwarded-for", forwarded)).status;
    // The gateway trusts nobody: the step alone counts.
    let edge = Edge::start_with("{}", &[], &["name: open"], &filter(1));
    assert_eq!((status(&edge, "203.0.113.7"), status(&edge, "203.0.113.7, 192.0.2.1")), (200, 403));
    drop(edge);
    // The gateway trusts one: the step takes its word.
    let edge = Edge::start_with("{ trustedHops: 1 }", &[], &["name: open"], &filter(0));
    assert_eq!((status(&edge, "203.0.113.7"), status(&edge, "203.0.113.7, 192.0.2.1")), (200, 403));
    drop(edge);
    // Both count: the same proxy would be counted twice, which is an error.
    let directory = tempfile::tempdir().unwrap();
    let text = crate::edge::resources(10_000, 10_001, "{ trustedHops: 1 }", &[], &["name: open"]) + &filter(1);
    std::fs::write(directory.path().join("all.yaml"), text).unwrap();
    let output = ControlPlane::command().unwrap().arg("validate").arg(directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let expect = "params.trustedHops: Gateway `edge` has `http.trustedHops`";
    assert!(!output.status.success() && said.contains(expect), "{said}");
}

/// The fields of the record of a path, once it is there.
fn record(envoy: &Envoy, path: &str) -> Value {
    let find = || {
        let lines = envoy.log();
        let records = lines.iter().filter_map(|line| {
            let at = line.find(r#"{"audit""#)?;
            let end = line.rfind('}')?;
            serde_json::from_str::<Value>(line.get(at..=end)?).ok()
        });
        Ok(records.into_iter().find(|record| record["path"] == path))
    };
    wait::until("the record", find).unwrap().0
}

/// A field of a record, at any depth.
fn field<'a>(record: &'a Value, name: &str) -> &'a Value {
    record.get("fields").and_then(|fields| fields.get(name)).unwrap_or(&record[name])
}

#[test]
fn attributes_are_what_their_documentation_says() {
    let edge = Edge::start_with("{}", &[], &["name: open"], &policy("open", FACTS));
    let stream = std::net::TcpStream::connect(edge.address).unwrap();
    let port = stream.local_addr().unwrap().port();
    let mut stream = stream;
    stream
        .write_all(
            b"POST /h1?a=b HTTP/1.1\r\nhost: A.example.com.:81\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc",
        )
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let found = record(&edge.envoy, "/h1");
    let expect = serde_json::json!({
        "address": "127.0.0.1", "port": port, "to": "127.0.0.1", "at": edge.address.port(), "scheme": "http",
        "host": "a.example.com", "protocol": "HTTP/1.1", "mtls": false, "tls": null, "principal": null,
        "cluster": "backend", "virtualHost": "*", "name": "open", "urlPath": "/h1", "size": 3, "query": "a=b",
    });
    for (name, value) in expect.as_object().unwrap() {
        assert_eq!(field(&found, name), value, "{name} of {found}");
    }

    // Over HTTP/2 a caller names the scheme itself: it is not believed.
    for (path, scheme) in [("/https", "https"), ("/ftp", "ftp")] {
        let headers = [(":method", "GET"), (":path", path), (":scheme", scheme), (":authority", "a")];
        assert_eq!(H2::connect(edge.address).unwrap().request(&headers).unwrap().status(), Some(200));
        let found = record(&edge.envoy, path);
        assert_eq!((field(&found, "scheme"), field(&found, "protocol")), (&"http".into(), &"HTTP/2".into()), "{found}");
    }
    // Nor is what one says in a header about the scheme and the peer.
    let claims = Request::get("/claims").header("x-forwarded-proto", "https").header("x-forwarded-for", "203.0.113.9");
    assert_eq!(edge.send(&claims).status, 200);
    let found = record(&edge.envoy, "/claims");
    assert_eq!((field(&found, "scheme"), field(&found, "address")), (&"http".into(), &"127.0.0.1".into()), "{found}");
}

#[test]
fn addresses_of_ipv6_have_neither_port_nor_brackets() {
    let edge = Edge::start_with("{}", &[], &["name: open"], &policy("open", FACTS));
    let port = free_port().unwrap();
    let address = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port));
    edge.change("listeners: [", &format!("listeners: [{{ name: six, address: '::1', port: {port} }}, "), |_| {
        Client::new(address).get("/wait").is_ok()
    });
    assert_eq!(Client::new(address).get("/six").unwrap().status, 200);
    let found = record(&edge.envoy, "/six");
    assert_eq!((field(&found, "address"), field(&found, "to")), (&"::1".into(), &"::1".into()), "{found}");
}

/// An Envoy with a configuration of its own, in which texts are replaced.
fn overlay(chain: &str, replace: &[(&str, &str)]) -> (Envoy, SocketAddr, ControlPlane, Upstream, tempfile::TempDir) {
    let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
    let text = policy("users", chain);
    std::fs::write(directory.path().join("all.yaml"), text.trim_start_matches("---\n")).unwrap();
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let ports = [format!("port_value: {}", upstream.address().port()), format!("port_value: {}", address.port())];
    let mut all = vec![("port_value: 10001", ports[0].as_str())];
    all.extend(replace);
    if !replace.iter().any(|(from, _)| from.contains("10000")) {
        all.push(("port_value: 10000", &ports[1]));
    }
    let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &all).unwrap();
    (envoy, address, control_plane, upstream, directory)
}

#[test]
fn the_overlay_that_we_show_believes_no_header_either() {
    let (_envoy, address, _control_plane, _upstream, _directory) = overlay(LIMIT, &[]);
    wait::until_true("the plan", || Ok(Client::new(address).get("/welcome")?.status == 200)).unwrap();
    assert_eq!(admitted(&statuses(address, "/users/7", 100, |index| format!("203.0.113.{index}"))), 10);
}

#[test]
fn a_unix_socket_has_no_address_and_whoever_asks_for_one_is_refused() {
    let sockets = tempfile::tempdir().unwrap();
    let path = sockets.path().join("envoy.sock");
    let pipe = format!("address: {{ pipe: {{ path: {} }} }}", path.display());
    let listener = "address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }";
    let (envoy, ..) = &overlay(LIMIT, &[(listener, &pipe)]);
    let send = || -> anyhow::Result<String> {
        let mut stream = UnixStream::connect(&path)?;
        stream.write_all(b"GET /users/7 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let (answer, _) = wait::until("an answer", || Ok(Some(send()?))).unwrap();
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}\n{:?}", envoy.log());
}
