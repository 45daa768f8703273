//! A guarded host is guarded in every spelling, beside an open catch-all; and it is served on any port.

use postern_tests::http2::H2;

use crate::edge::{Edge, h1};

/// Spellings of one host. The upstream sees each as it came, except for the trailing dot.
pub const SAME: [&str; 9] = [
    "admin.example.com",
    "admin.example.com:80",
    "admin.example.com:443",
    "admin.example.com:",
    "ADMIN.Example.com",
    "admin.example.com.",
    "admin.example.com.:80",
    "Admin.example.com.:8443",
    "admin.example.com:65536",
];

/// Values that are not exactly one host.
pub const NONE: [&str; 17] = [
    "",
    "x@admin.example.com",
    "x:y@admin.example.com",
    "admin.example.com@x",
    "admin.example.com:80@x",
    "admin.example.com,other",
    "other,admin.example.com",
    "admin.example.com..",
    ".admin.example.com",
    "admin..example.com",
    "admin.example.com:abc",
    "admin.example.com:80:80",
    "admin%2eexample.com",
    "admin.example.com/",
    "admin.example.com#",
    "[admin.example.com]",
    "admin.example.com ,x",
];

const GUARDED: [&str; 2] = ["name: admin, hosts: [admin.example.com]", "name: wild, hosts: ['*.corp.example.com']"];

fn guarded(edge: &Edge, answer: (u16, Option<String>), route: &str, what: &str) {
    assert_eq!(answer, (200, Some(route.to_owned())), "{what}: {:?}", edge.envoy.log().last());
}

#[test]
fn every_spelling_of_a_host_takes_its_route() {
    let edge = Edge::start(&GUARDED, &["name: open"]);
    for host in SAME {
        guarded(&edge, edge.raw(h1(b"/", &[&format!("host: {host}")])), "admin", host);
        let wild = host.to_lowercase().replace("admin.", "a.b.corp.");
        guarded(&edge, edge.raw(h1(b"/", &[&format!("host: {wild}")])), "wild", &wild);
        // Envoy takes no URL whose port is no port.
        if !host.ends_with(':') && !host.ends_with("65536") {
            guarded(&edge, edge.raw(h1(format!("http://{host}/").as_bytes(), &["host: other"])), "admin", host);
        }
        let answer = edge.raw(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert_eq!(answer.0, 401, "{host} without a key");
    }
    guarded(&edge, edge.raw(h1(b"/", &["host: other.example.com:81"])), "open", "another host");
    guarded(&edge, edge.raw(h1(b"/", &["host: [::1]:80"])), "open", "an address");
    // In absolute form Envoy drops user information, and takes the host behind it.
    guarded(&edge, edge.raw(h1(b"http://x@admin.example.com/", &["host: other"])), "admin", "absolute form");
}

#[test]
fn what_is_not_one_host_is_refused_whatever_else_is_served() {
    for open in
        [&["name: open"][..], &["name: open, hosts: [other.example.com]"], &["name: open, hosts: ['*.example.com']"]]
    {
        let edge = Edge::start(&GUARDED, open);
        let reached = || edge.envoy.stat("cluster.backend.upstream_rq_total").unwrap().unwrap_or_default();
        let before = reached();
        for host in NONE {
            assert_eq!(edge.raw(h1(b"/", &[&format!("host: {host}")])), (400, None), "{host} beside {open:?}");
        }
        for hosts in [["admin.example.com", "other"], ["other", "admin.example.com"], ["admin.example.com"; 2]] {
            let headers = hosts.map(|host| format!("host: {host}"));
            let headers: Vec<_> = headers.iter().map(String::as_str).collect();
            assert_eq!(edge.raw(h1(b"/", &headers)), (400, None), "{hosts:?} beside {open:?}");
        }
        assert_eq!(edge.raw(h1(b"/", &[])), (400, None), "no host");
        assert_eq!(reached(), before);
    }
}

#[test]
fn the_same_holds_for_http2() {
    let edge = Edge::start(&GUARDED, &["name: open"]);
    let request = |more: &[(&str, &str)]| {
        let base = [(":method", "GET"), (":path", "/"), (":scheme", "http")];
        H2::connect(edge.address).unwrap().request(&[&base[..], more].concat()).unwrap()
    };
    for host in SAME {
        assert_eq!(request(&[(":authority", host)]).status(), Some(401), "{host}");
        assert_eq!(request(&[("host", host)]).status(), Some(401), "{host} in `host`");
    }
    assert_eq!(request(&[(":authority", "admin.example.com:80"), ("host", "other")]).status(), Some(401));
    let before = edge.envoy.stat("cluster.backend.upstream_rq_total").unwrap().unwrap_or_default();
    for host in NONE {
        let outcome = request(&[(":authority", host)]);
        assert!(matches!(outcome.status(), None | Some(400)), "{host}: {outcome:?}");
        let outcome = request(&[("host", host)]);
        assert!(matches!(outcome.status(), None | Some(400)), "{host} in `host`: {outcome:?}");
    }
    for twice in [":authority", "host"] {
        let outcome = request(&[(twice, "admin.example.com"), (twice, "other")]);
        assert!(matches!(outcome.status(), None | Some(400)), "{twice}: {outcome:?}");
    }
    assert_eq!(edge.envoy.stat("cluster.backend.upstream_rq_total").unwrap().unwrap_or_default(), before);
    // The one that counts for the route is the one that the upstream sees.
    let outcome = request(&[(":authority", "other"), ("host", "admin.example.com")]);
    let postern_tests::http2::StreamEnd::Answered { status: 200, body } = outcome else { panic!("{outcome:?}") };
    assert!(body.contains(r#"["host","other"]"#), "{body}");
}

#[test]
fn a_host_is_served_on_any_port_and_shown_as_it_came() {
    let edge = Edge::start(&[], &["name: api, hosts: [api.example.com]"]);
    let host = format!("api.example.com:{}", edge.address.port());
    let answer = edge.send(&postern_tests::Request::get("/").host(&host));
    assert_eq!((answer.status, answer.echoed("host")), (200, vec![host]));
    assert_eq!(edge.raw(h1(b"/", &["host: other.example.com"])).0, 404);
}

#[test]
fn expressions_see_the_host_that_the_router_sees() {
    let policy = "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: { name: by-host }\nspec:\n  targetRef: { kind: \
                  HTTPRoute, name: open }\n  request: [{ policy: respond, params: { status: 418 }, when: \"request.host == \
                  'admin.example.com'\" }]\n";
    let edge = Edge::start_with("{}", &[], &["name: open"], policy);
    for host in SAME {
        assert_eq!(edge.raw(h1(b"/", &[&format!("host: {host}")])).0, 418, "{host}");
    }
    assert_eq!(edge.raw(h1(b"/", &["host: other"])).0, 200);
}
