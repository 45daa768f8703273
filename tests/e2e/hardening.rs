//! Our listeners and bootstraps are hardened for an edge. What Envoy's guide recommends is on by default, a field
//! loosens each of it, and what is slow or large for a good reason still works.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use postern_tests::{
    Client, Request,
    http2::{H2, block, repeating},
    wait,
};

use crate::{
    edge::{Edge, h1},
    world::KEY,
};

const ADMIN: [&str; 1] = ["name: admin, match: { path: { prefix: /admin } }"];
const OPEN: [&str; 1] = ["name: open"];

fn start(http: &str) -> Edge {
    Edge::start_with(http, &ADMIN, &OPEN, "")
}

/// Longer than the time-outs of one second that these tests set.
const LATER: Duration = Duration::from_millis(2_500);

#[test]
fn escaped_slashes_do_not_lead_to_another_route() {
    let paths =
        ["/x/..%2fadmin", "/x/..%2Fadmin", "/x%2f..%2fadmin", "/x/..%5cadmin", "/x/%2e%2e%2fadmin", "/%2fadmin"];
    let without_key = |edge: &Edge, path: &str| {
        let answer = edge.send(&Request::get(path));
        (answer.status, answer.header("x-route").unwrap_or_default().to_owned())
    };
    let edge = start("{}");
    for path in paths {
        assert_eq!(without_key(&edge, path), (400, String::new()), "{path}");
    }
    assert_eq!(without_key(&edge, "/x?next=%2fadmin"), (200, "open".to_owned()), "a query may have them");
    let last = |edge: &Edge| edge.send(&Request::get(paths[0])).status;
    edge.change("http: {}", "http: { escapedSlashes: redirect }", |edge| last(edge) == 307);
    for path in paths {
        let answer = edge.send(&Request::get(path));
        assert_eq!(
            (answer.status, answer.header("location").is_some_and(|to| to.ends_with("/admin"))),
            (307, true),
            "{path}"
        );
    }
    edge.change("escapedSlashes: redirect", "escapedSlashes: unescape", |edge| last(edge) == 401);
    for path in paths {
        assert_eq!(without_key(&edge, path), (401, String::new()), "{path}");
    }
    edge.change("escapedSlashes: unescape", "escapedSlashes: keep", |edge| last(edge) == 200);
    assert_eq!(without_key(&edge, paths[0]), (200, "open".to_owned()));
}

/// Servlet containers drop `;` and what follows it, after decoding escapes.
#[test]
fn parameters_of_a_path_do_not_lead_to_another_route() {
    let paths =
        ["/admin;x", "/admin;", "/admin%3bx", "/x/..;/admin", "/x/%2e%2e;/admin", "/x/.%2E%3B/admin", "/;/admin"];
    let edge = start("{}");
    for path in paths {
        let answer = edge.send(&Request::get(path));
        assert!([400, 401].contains(&answer.status), "{path}: {answer:?}");
        let headers = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "a")];
        let status = H2::connect(edge.address).unwrap().request(&headers).unwrap().status();
        assert_eq!(status, Some(answer.status), "{path}");
    }
    assert_eq!(edge.send(&Request::get("/x?a;b")).status, 200, "a query may have them");
    let kept = |edge: &Edge| edge.send(&Request::get("/y;x")).status == 200;
    edge.change("http: {}", "http: { pathParameters: keep }", kept);
    let answer = edge.send(&Request::get("/y;x"));
    assert!(answer.body.contains("/y;x"), "{answer:?}");
}

#[test]
fn headers_with_underscores_do_not_pass_for_others() {
    let edge = start("{}");
    let request = Request::get("/x").header("x-user-id", "alice").header("x_user_id", "root");
    assert_eq!(edge.send(&request).status, 400);
    let through_http2 = |edge: &Edge| {
        let headers =
            [(":method", "GET"), (":path", "/x"), (":scheme", "http"), (":authority", "a"), ("x_user_id", "root")];
        H2::connect(edge.address).unwrap().request(&headers).unwrap().status()
    };
    assert_ne!(through_http2(&edge), Some(200));
    edge.change("http: {}", "http: { headersWithUnderscores: drop }", |edge| edge.send(&request).status == 200);
    assert_eq!(edge.send(&request).echoed("x_user_id"), Vec::<String>::new());
    let passes = |edge: &Edge| edge.send(&request).echoed("x_user_id") == ["root"];
    edge.change("headersWithUnderscores: drop", "headersWithUnderscores: allow", passes);
}

#[test]
fn headers_are_bounded_in_number_and_size() {
    // The backend of the other tests takes no more than 100 headers itself.
    let edge = Edge::start_on(Some(slow_backend().port()), &[], "{}", &ADMIN, &OPEN, "");
    let many =
        |count: usize| (0..count).fold(Request::get("/x"), |request, index| request.header(format!("x-{index}"), "1"));
    let large = |size: usize| Request::get("/x").header("x-large", "a".repeat(size));
    assert_eq!(edge.send(&many(80)).status, 200);
    assert_refused(&edge, &many(101));
    assert_eq!(edge.send(&large(50 << 10)).status, 200);
    assert_refused(&edge, &large(61 << 10));
    edge.change("http: {}", "http: { maxHeaders: 200, maxHeaderSize: 96KiB }", |edge| {
        edge.send(&many(150)).status == 200
    });
    // A worker may still have the listener from before.
    wait::until_true("the new limits", || Ok(Client::new(edge.address).send(&large(80 << 10))?.status == 200)).unwrap();
    assert_refused(&edge, &many(201));
    assert_refused(&edge, &large(97 << 10));
}

/// Envoy answers before it has read everything and closes: a caller that is still sending may not get to see the 431.
#[track_caller]
fn assert_refused(edge: &Edge, request: &Request) {
    if let Ok(answer) = Client::new(edge.address).send(request) {
        assert_eq!(answer.status, 431);
    }
}

fn active(edge: &Edge) -> u64 {
    edge.envoy.stat("http.edge.downstream_rq_active").unwrap().unwrap_or_default()
}

/// A header that the other side keeps, repeated at one byte each: a stream of 60 KB for a few bytes.
#[test]
fn repeated_headers_of_many_streams_are_not_held_without_a_bound() {
    let edge = start("{}");
    let fields = [(":method", "POST"), (":path", "/x"), (":scheme", "http"), (":authority", "a")];
    let first = repeating(&fields, ("x-kept", &"a".repeat(3_500)), 13);
    // The kept header is the 62nd from then on.
    let later = [block(&fields), vec![0x80 | 62; 14]].concat();
    let mut client = H2::connect(edge.address).unwrap();
    client.settle().unwrap();
    client.start_block(&first, false).unwrap();
    for _ in 1..100 {
        client.start_block(&later, false).unwrap();
    }
    client.settle().unwrap();
    wait::until_true("Envoy to hold as many as it may", || Ok(active(&edge) == 100)).unwrap();
    // Whether it refuses what is past the limit or closes the connection: no more are held.
    let more = (0..200).try_for_each(|_| client.start_block(&later, false).map(|_| ()));
    let _ = more.and_then(|()| client.settle());
    let held = active(&edge);
    assert!(held <= 100, "{held} requests are held");
    assert_eq!(edge.send(&Request::get("/x")).status, 200);
}

#[test]
fn http2_is_bounded_and_a_field_says_otherwise() {
    let edge = start("{ maxConcurrentStreams: 3, streamWindow: 128KiB, connectionWindow: 2MiB }");
    let settings = H2::connect(edge.address).unwrap().settings().unwrap();
    assert_eq!((settings.get(&3), settings.get(&4)), (Some(&3), Some(&(128 << 10))), "{settings:?}");
    let edge = start("{}");
    let settings = H2::connect(edge.address).unwrap().settings().unwrap();
    assert_eq!((settings.get(&3), settings.get(&4)), (Some(&100), Some(&(64 << 10))), "{settings:?}");
}

/// Reads everything until the connection is closed, or reset because something was left unread.
fn until_closed(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(wait::LIMIT)).unwrap();
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(size @ 1..) => text.extend(&part[..size]),
            Ok(0) => break,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                break;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn open_with(edge: &Edge, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(edge.address).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn who_is_slow_to_ask_is_let_go() {
    let edge = start("{ headersTimeout: 1s, streamIdleTimeout: 1s, idleTimeout: 1s }");
    let unfinished = until_closed(open_with(&edge, b"GET /x HTTP/1.1\r\nhost: a\r\n"));
    assert!(unfinished.starts_with("HTTP/1.1 408"), "{unfinished}");
    let without_body = until_closed(open_with(&edge, b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"));
    assert!(without_body.starts_with("HTTP/1.1 408"), "{without_body}");
    assert_eq!(until_closed(TcpStream::connect(edge.address).unwrap()), "");
    let edge = start("{ requestTimeout: 1s }");
    let stream = open_with(&edge, b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n");
    let mut writer = stream.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        while writer.write_all(b"a").is_ok() {
            thread::sleep(Duration::from_millis(50))
        }
    });
    let cut = until_closed(stream);
    assert!(cut.starts_with("HTTP/1.1 408"), "{cut}");
    trickle.join().unwrap();
}

#[test]
fn the_defaults_of_time_are_in_the_listener() {
    let edge = start("{}");
    let dump = Client::new(edge.envoy.admin()).get("/config_dump?resource=dynamic_listeners").unwrap().body;
    for expect in [
        r#""request_headers_timeout": "10s""#,
        r#""stream_idle_timeout": "300s""#,
        r#""idle_timeout": "3600s""#,
        r#""per_connection_buffer_limit_bytes": 1048576"#,
    ] {
        assert!(dump.contains(expect), "no {expect} in {dump}");
    }
}

/// A backend that answers a request only later, in pieces, and takes one request a connection.
fn slow_backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let (mut line, mut slow) = (String::new(), false);
                while reader.read_line(&mut line).is_ok_and(|size| size > 2) {
                    slow |= line.contains("/poll") || line.contains("/stream");
                    line.clear();
                }
                let stream = reader.get_mut();
                if slow {
                    thread::sleep(LATER);
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n");
                for piece in ["one", "two", "six"] {
                    let _ = stream.write_all(format!("3\r\n{piece}\r\n").as_bytes());
                    if slow {
                        thread::sleep(Duration::from_millis(700));
                    }
                }
                let _ = stream.write_all(b"0\r\n\r\n");
            });
        }
    });
    address
}

#[test]
fn long_polls_and_streams_outlive_the_time_for_headers() {
    let backend = slow_backend();
    let edge = Edge::start_on(Some(backend.port()), &[], "{ headersTimeout: 1s }", &ADMIN, &OPEN, "");
    for path in ["/poll", "/stream", "/admin/poll"] {
        let answer = edge.send(&Request::get(path).header("x-api-key", KEY));
        assert_eq!((answer.status, answer.body.as_str()), (200, "onetwosix"), "{path}");
    }
}

#[test]
fn large_and_slow_uploads_still_work() {
    let edge = start("{ headersTimeout: 1s }");
    let body = vec![b'a'; 6 << 20];
    for request in [Request::new("POST", "/x").body(body.clone()), Request::new("POST", "/x").chunked(body)] {
        let answer = edge.send(&request);
        assert_eq!((answer.status, answer.body.len() > 6 << 20), (200, true));
    }
    let mut stream =
        open_with(&edge, b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\nconnection: close\r\n\r\nabc");
    thread::sleep(LATER);
    stream.write_all(b"def").unwrap();
    let answer = until_closed(stream);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("abcdef"), "{answer}");
    // Over HTTP/2 the windows are small, and a body of any size passes through them.
    let mut client = H2::connect(edge.address).unwrap();
    let headers = [(":method", "POST"), (":path", "/x"), (":scheme", "http"), (":authority", "a")];
    let stream = client.start(&headers).unwrap();
    client.upload(stream, &vec![b'b'; 3 << 20]).unwrap();
    assert_eq!(client.outcome(stream).unwrap().status(), Some(200));
}

#[test]
fn connections_are_bounded_and_the_administrator_is_not() {
    let edge = Edge::start_on(
        None,
        &[("max_active_downstream_connections: 50000", "max_active_downstream_connections: 5")],
        "{}",
        &ADMIN,
        &OPEN,
        "",
    );
    let _held: Vec<_> = (0..20).map(|_| TcpStream::connect(edge.address).unwrap()).collect();
    wait::until_true("connections to be refused", || {
        Ok(edge.envoy.stats("downstream_global_cx_overflow")?.iter().any(|(_, value)| *value > 0))
    })
    .unwrap();
}

#[test]
fn load_is_shed_before_the_heap_is_full() {
    let edge = Edge::start(&ADMIN, &OPEN);
    for action in ["reset_high_memory_stream", "shrink_heap", "stop_accepting_requests", "stop_accepting_connections"] {
        let name = format!("overload.envoy.overload_actions.{action}");
        let stats = edge.envoy.stats(&name).unwrap();
        assert!(!stats.is_empty() && stats.iter().all(|(_, value)| *value == 0), "{action}: {stats:?}");
    }
    drop(edge);
    // A node whose heap is above the threshold refuses requests, and counts it.
    let low = [("threshold: { value: 0.95 }", "threshold: { value: 0.0001 }")];
    let edge = Edge::start_on(None, &low, "{}", &ADMIN, &OPEN, "");
    wait::until_true("load to be shed", || Ok(edge.send(&Request::get("/x")).status == 503)).unwrap();
    assert_eq!(edge.envoy.stat("overload.envoy.overload_actions.stop_accepting_requests.active").unwrap(), Some(1));
}

#[test]
fn what_is_guarded_stays_guarded() {
    let edge = start("{}");
    assert_eq!(edge.send(&Request::get("/admin/x")).status, 401);
    assert_eq!(edge.raw(h1(b"/admin/x", &["host: a"])), (200, Some("admin".to_owned())));
}
