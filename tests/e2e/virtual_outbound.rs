//! Host names for services on outbound listeners, on real Envoys: who is reached by which name, and what guards it.

use std::{fs, io::Read, net::TcpListener, thread};

use postern_tests::{Client, Envoy, Received, Request, Upstream, site::free_port, wait};
use serde_json::{Value, json};

use super::{
    edge::h1,
    hosts::{NONE, SAME},
    matching::{Deployment, client, resource, service},
};

/// The digest of the key that [`h1`] sends.
const KEY_DIGEST: &str = "c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c";

fn mesh() -> Value {
    json!({"kind": "Mesh"})
}

fn of(service: &str) -> Value {
    json!({"kind": "Service", "name": service})
}

fn tagged(name: &str, port: u16, version: &str) -> Value {
    let endpoint = json!({"address": "127.0.0.1", "port": port, "tags": {"version": version}});
    resource("Service", name, json!({"endpoints": [endpoint]}))
}

/// Host names for the nodes of service `web`.
fn names(host: &str, port: u16) -> Value {
    let to = json!([{"targetRef": mesh(), "host": host, "port": port}]);
    resource("VirtualOutbound", "names", json!({"targetRef": of("web"), "to": to}))
}

fn send(port: u16, host: &str) -> Received {
    client(port).send(&Request::get("/").host(host)).unwrap()
}

fn wait_for(port: u16, host: &str, status: u16) {
    let answers = || Ok(client(port).send(&Request::get("/").host(host))?.status == status);
    wait::until_true(&format!("{status} for {host}"), answers).unwrap();
}

/// How many requests an Envoy has sent to a service.
fn sent(envoy: &Envoy, service: &str) -> u64 {
    envoy.stat(&format!("cluster.{service}.upstream_rq_total")).unwrap().unwrap_or_default()
}

#[test]
fn a_host_name_reaches_its_service_and_follows_its_tags() {
    let (upstream, port) = (Upstream::start(0).unwrap(), free_port().unwrap());
    let services =
        |version: &str| ["users", "orders"].map(|name| tagged(name, upstream.address().port(), version)).to_vec();
    let deployment = Deployment::start(&[names("{tags.version}.{service}.mesh", port)]);
    deployment.write("services.yaml", &services("v1"));
    let web = deployment.node("web-1", "web", "{}");
    let other = deployment.node("other-1", "other", "{}");
    wait_for(port, "v1.users.mesh", 200);
    let before = (sent(&web, "users"), sent(&web, "orders"));
    for _ in 0..3 {
        assert_eq!(send(port, "v1.orders.mesh").status, 200);
    }
    assert_eq!(send(port, "V1.Users.mesh.:1234").status, 200);
    assert_eq!((sent(&web, "users") - before.0, sent(&web, "orders") - before.1), (1, 3));
    for unknown in ["mesh", "users.mesh", "v2.users.mesh", "x.v1.users.mesh", "127.0.0.1", "localhost"] {
        assert_eq!(send(port, unknown).status, 404, "{unknown}");
    }
    for none in NONE {
        assert_eq!(
            Client::new(([127, 0, 0, 1], port).into()).send_raw(&h1(b"/", &[&format!("host: {none}")])).unwrap().status,
            400,
            "{none}"
        );
    }
    assert_eq!((sent(&web, "users") - before.0, sent(&web, "orders") - before.1), (1, 3));
    // Nobody gave the other node names.
    let listeners = |envoy: &Envoy| envoy.stat("listener_manager.total_listeners_active").unwrap();
    assert_eq!((listeners(&web), listeners(&other)), (Some(1), Some(0)));

    deployment.write("services.yaml", &services("v2"));
    wait_for(port, "v2.users.mesh", 200);
    wait_for(port, "v1.users.mesh", 404);
    assert_eq!((send(port, "v2.orders.mesh").status, send(port, "v1.orders.mesh").status), (200, 404));
}

#[test]
fn no_spelling_of_a_host_gets_around_its_policy() {
    let (upstream, port) = (Upstream::start(0).unwrap(), free_port().unwrap());
    let key = json!([{"policy": "apiKeyAuth", "params": {"header": "x-api-key"}}]);
    let refusal = json!([{"policy": "respond", "params": {"status": 418}}]);
    let denied = json!([{"targetRef": mesh(), "action": "DENY"}]);
    let deployment = Deployment::start(&[
        service("admin", upstream.address().port()),
        service("closed", upstream.address().port()),
        service("open", upstream.address().port()),
        names("{service}.example.com", port),
        resource("Consumer", "app", json!({"apiKeys": [{"sha256": KEY_DIGEST}]})),
        resource(
            "RoutePolicy",
            "key",
            json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:admin"}, "request": key}),
        ),
        resource(
            "RoutePolicy",
            "to",
            json!({"targetRef": of("web"), "to": [{"targetRef": of("closed"), "request": refusal}]}),
        ),
        // It is for incoming requests.
        resource("TrafficPermission", "nobody", json!({"targetRef": mesh(), "from": denied})),
    ]);
    let web = deployment.node("web-1", "web", "{}");
    wait_for(port, "open.example.com", 200);
    let status = |bytes: &[u8]| client(port).send_raw(bytes).unwrap().status;
    for host in SAME {
        assert_eq!(status(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()), 401, "{host} without a key");
        assert_eq!(status(&h1(b"/", &[&format!("host: {host}")])), 200, "{host} with a key");
        let closed = host.to_lowercase().replace("admin.", "closed.");
        assert_eq!(status(&h1(b"/", &[&format!("host: {closed}")])), 418, "{closed}");
    }
    // As applications ask a proxy.
    assert_eq!(status(b"GET http://admin.example.com/ HTTP/1.1\r\nhost: other\r\n\r\n"), 401);
    let (admin, closed) = (sent(&web, "admin"), sent(&web, "closed"));
    assert_eq!((admin, closed), (u64::try_from(SAME.len()).unwrap(), 0));
    // What is refused for its host or path has no route, so that the mesh's permission comes first, as on a Gateway.
    for none in NONE {
        let status = status(&h1(b"/", &[&format!("host: {none}")]));
        assert!(matches!(status, 400 | 403), "{none}: {status}");
    }
    for path in ["/a;b", "/a%2fb"] {
        let status = status(&h1(path.as_bytes(), &["host: open.example.com"]));
        assert!(matches!(status, 400 | 403), "{path}: {status}");
    }
    assert_eq!((sent(&web, "admin"), sent(&web, "closed")), (admin, closed));
}

#[test]
fn what_is_attached_to_calls_holds_on_outbound_routes() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for connection in silent.incoming().take(64) {
            let Ok(mut connection) = connection else { return };
            let _ = connection.read(&mut [0; 1024]);
            kept.push(connection);
        }
    });
    let (upstream, port) = (Upstream::start(0).unwrap(), free_port().unwrap());
    let logs = tempfile::tempdir().unwrap();
    let (to, from) = (logs.path().join("to"), logs.path().join("from"));
    let one = |target: Value, conf: Value| {
        let mut entry = conf;
        entry["targetRef"] = target;
        json!({"targetRef": of("web"), "to": [entry]})
    };
    let backends = |name: &str| json!([{"name": name}]);
    let deployment = Deployment::start(&[
        service("silent", silent_port),
        service("users", upstream.address().port()),
        service("orders", upstream.address().port()),
        names("{service}", port),
        resource("Timeout", "t", one(of("silent"), json!({"http": {"requestTimeout": "100ms"}}))),
        resource(
            "Retry",
            "r",
            one(
                of("users"),
                json!({"numRetries": 2, "retryOn": ["5xx"], "backOff": {"baseInterval": "1ms", "maxInterval": "2ms"}}),
            ),
        ),
        resource("CircuitBreaker", "c", one(of("orders"), json!({"connectionLimits": {"maxConnections": 7}}))),
        resource(
            "Settings",
            "s",
            json!({"logBackends": [{"name": "to", "file": {"path": to}}, {"name": "from", "file": {"path": from}}]}),
        ),
        resource(
            "AccessLog",
            "l",
            json!({
                "targetRef": mesh(),
                "to": [{"targetRef": of("orders"), "backends": backends("to")}],
                "from": [{"targetRef": mesh(), "backends": backends("from")}],
            }),
        ),
    ]);
    let web = deployment.node("web-1", "web", "{}");
    wait_for(port, "orders", 200);
    assert_eq!(send(port, "silent").status, 504, "the time-out");
    let attempts = |host: &str| {
        let before = sent(&web, host);
        let request = Request::get("/").host(host).header("x-upstream", r#"{"status": 500}"#);
        assert_eq!(client(port).send(&request).unwrap().status, 500);
        sent(&web, host) - before
    };
    assert_eq!((attempts("users"), attempts("orders")), (3, 1));
    let dump = Client::new(web.admin()).get("/config_dump?resource=dynamic_active_clusters").unwrap().body;
    assert!(dump.contains("\"max_connections\": 7"));
    client(port).send(&Request::get("/last").host("orders")).unwrap();
    let logged = || fs::read_to_string(&to).unwrap_or_default();
    wait::until_true("the log of calls", || Ok(logged().contains("/last"))).unwrap();
    let routes: Vec<_> =
        logged().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["route"].clone()).collect();
    assert!(routes.iter().all(|route| route == "outbound:orders"), "{routes:?}");
    assert_eq!(fs::read_to_string(&from).unwrap_or_default(), "", "no request came from elsewhere");
}

#[test]
fn a_refused_collision_changes_nothing() {
    let (upstream, port, edge) = (Upstream::start(0).unwrap(), free_port().unwrap(), free_port().unwrap());
    let gateway = json!({
        "targetRef": of("web"), "listeners": [{"name": "http", "port": edge}],
        "routes": [{"name": "all", "service": "users", "public": {"reason": "a test"}}],
    });
    let deployment = Deployment::start(&[
        service("users", upstream.address().port()),
        service("orders", upstream.address().port()),
        resource("Gateway", "edge", gateway),
        names("{service}.mesh", port),
    ]);
    let web = deployment.node("web-1", "web", "{}");
    wait_for(port, "users.mesh", 200);
    wait_for(edge, "any", 200);
    let raw = json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "own",
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
    });
    let more = |to: Value| resource("VirtualOutbound", "zz", json!({"targetRef": of("web"), "to": [to]}));
    let taken =
        |address: String, by: &str| format!("VirtualOutbound `{{}}`: spec.to: `{address}` is already used by {by}");
    for (change, expect) in [
        (
            more(json!({"targetRef": of("users"), "host": "ORDERS.mesh"})),
            "which is that of Service `orders`".to_owned(),
        ),
        (more(json!({"targetRef": of("users"), "port": edge})), taken(format!("127.0.0.1:{edge}"), "Gateway `edge`")),
        (
            resource("EnvoyResource", "own", json!({"resource": raw})),
            taken(format!("127.0.0.1:{port}"), "EnvoyResource `own`"),
        ),
        (
            more(json!({"targetRef": of("users"), "host": "{tags.version}.mesh"})),
            "Service `users` has no tag `version`".to_owned(),
        ),
    ] {
        let tail = expect.split_once("spec.to: ").map_or(expect.clone(), |(_, tail)| tail.to_owned());
        deployment.write("change.yaml", &[change]);
        let says = |status: &Value| status["refusedChange"].to_string().contains(&tail);
        deployment.wait_for_status(&tail, says);
        for host in ["users.mesh", "orders.mesh"] {
            assert_eq!(send(port, host).status, 200, "{host} {tail}");
        }
        assert_eq!(send(edge, "any").status, 200);
    }
    assert_eq!(web.stat("listener_manager.total_listeners_active").unwrap(), Some(2));
    // What was refused is put right.
    deployment.write("change.yaml", &[more(json!({"targetRef": of("users"), "host": "people.mesh"}))]);
    wait_for(port, "people.mesh", 200);
    wait_for(port, "users.mesh", 404);
}

#[test]
fn an_invalid_policy_closes_its_outbound_route_alone() {
    let (upstream, port) = (Upstream::start(0).unwrap(), free_port().unwrap());
    let wrong =
        json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:users"}, "request": [{"policy": "apiKeyAuht"}]});
    let deployment = Deployment::start(&[
        service("users", upstream.address().port()),
        service("orders", upstream.address().port()),
        names("{service}.mesh", port),
        resource("RoutePolicy", "p", wrong),
    ]);
    let web = deployment.node("web-1", "web", "{}");
    wait_for(port, "orders.mesh", 200);
    assert_eq!(send(port, "users.mesh").status, 500);
    assert_eq!(sent(&web, "users"), 0);
}

#[test]
fn an_invalid_virtual_outbound_is_left_out_and_closes_nothing_else() {
    let (upstream, port, edge) = (Upstream::start(0).unwrap(), free_port().unwrap(), free_port().unwrap());
    let gateway = json!({
        "listeners": [{"name": "http", "port": edge}],
        "routes": [{"name": "all", "service": "users", "public": {"reason": "a test"}}],
    });
    let key = json!([{"policy": "apiKeyAuth", "params": {"header": "x-api-key"}}]);
    let own = json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:users"}, "request": key});
    let deployment = Deployment::start(&[
        service("users", upstream.address().port()),
        resource("Gateway", "edge", gateway),
        names("{nobody}.mesh", port),
        resource("RoutePolicy", "own", own),
    ]);
    let _web = deployment.node("web-1", "web", "{}");
    wait_for(edge, "any", 200);
    deployment.wait_for_status("the report", |status| status["invalid"].to_string().contains("unknown placeholder"));
    assert!(client(port).get("/").is_err(), "nothing listens there");
    // Put right, it is served with its guard.
    deployment.write("all.yaml", &[
        service("users", upstream.address().port()),
        names("{service}.mesh", port),
        resource("RoutePolicy", "own", json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:users"}, "request": [{"policy": "respond", "params": {"status": 418}}]})),
    ]);
    wait_for(port, "users.mesh", 418);
}
