//! Requests that no library would send. Every one gets a decision, and none traps the VM.

use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, site::free_port};

use crate::world::{KEY, World, assert_no_vm_failure, users, users_with};

#[test]
fn decides_headers_that_are_not_utf8_empty_or_repeated() {
    let world = World::start();
    let check = |request: Request, expect: u16| {
        let answer = world.send(&request);
        assert_eq!(answer.status, expect, "{request:?}: {}", answer.body);
    };
    check(users_with(b"\xff\xfe\x80"), 401);
    check(users_with(KEY).header("x-other", b"caf\xe9"), 200);
    check(users_with(""), 401);
    check(users_with("   "), 401);
    check(users_with(KEY).header("x-api-key", "second"), 401);
    check(users_with(KEY).header("x-api-key", KEY), 401);
    check(users_with(KEY).header("X-API-Key", ""), 401);
    check(users().header("X-API-KEY", KEY), 200);
    check(users_with("k".repeat(30_000)), 401);
    world.assert_no_vm_failure();
}

#[test]
fn decides_paths_that_are_not_utf8() {
    let world = World::start();
    // Envoy may refuse such a path by itself (400); what it lets pass is decided.
    for path in
        [&b"/users/\xff\xfe"[..], b"/users/%ff%fe", b"/users/..%2f..%2f", b"/users/%00", b"/users/\xc3\xa9?q=\xff"]
    {
        let denied = world.send(&Request::get(path)).status;
        assert!([400, 401].contains(&denied), "{denied} for {}", path.escape_ascii());
        let allowed = world.send(&Request::get(path).header("x-api-key", KEY)).status;
        assert!([200, 400].contains(&allowed), "{allowed} for {}", path.escape_ascii());
    }
    // A path that normalises to another route is that route's.
    assert_eq!(world.send(&Request::get("/welcome/../users/7")).status, 401);
    assert_eq!(world.send(&Request::get("//users//7")).status, 401);
    world.assert_no_vm_failure();
}

#[test]
fn decides_a_request_with_a_thousand_headers() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    let port = free_port().unwrap();
    // The bootstrap stops at 100 headers; this one lets more through to the filter.
    let more = "max_headers_count: 2000";
    let listener = format!("port_value: {port}");
    let backend = format!("port_value: {}", upstream.address().port());
    let replace = [
        ("port_value: 10001", backend.as_str()),
        ("port_value: 10000", listener.as_str()),
        ("max_headers_count: 100", more),
    ];
    let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
    let mut client = Client::new(([127, 0, 0, 1], port).into());
    let many = |request: Request| (0..1000).fold(request, |request, n| request.header(format!("x-h-{n}"), "value"));
    assert_eq!(client.send(&many(users())).unwrap().status, 401);
    let answer = client.send(&many(users_with(KEY))).unwrap();
    // The upstream's own limit is lower than ours: whatever it says, the filter let the request through to it.
    assert!(answer.header("x-content-type-options") == Some("nosniff"), "{} {}", answer.status, answer.body);
    assert_no_vm_failure(&envoy);
}
