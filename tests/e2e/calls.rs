//! What is attached to calls, on real Envoys: circuit breakers, retries, health checks and traces. Each test looks at
//! a second node too, which the resource does not concern.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    thread,
};

use postern_tests::{Client, Collector, Envoy, Request, Upstream, site::free_port, wait};
use serde_json::{Value, json};

use super::matching::{Deployment, client, received, resource, service};

/// A port that nobody listens on, nor gets by asking for a free one.
const DEAD: u16 = 1;

/// A gateway of the nodes of a service, with a route to each Service under its name.
fn gateway(name: &str, port: u16, routes: Vec<Value>) -> Value {
    let spec = json!({
        "targetRef": {"kind": "Service", "name": name},
        "listeners": [{"name": "http", "port": port}],
        "routes": routes,
    });
    resource("Gateway", name, spec)
}

fn route(name: &str, service: &str) -> Value {
    json!({"name": name, "service": service, "match": {"path": {"prefix": format!("/{name}")}}})
}

/// A resource for the nodes of the service `edge`, with one entry.
fn attached(kind: &str, name: &str, to: Value, conf: Value) -> Value {
    let (mut entry, target) = (conf, json!({"kind": "Service", "name": "edge"}));
    entry["targetRef"] = to;
    resource(kind, name, json!({"targetRef": target, "to": [entry]}))
}

fn to(service: &str) -> Value {
    json!({"kind": "Service", "name": service})
}

fn stat(envoy: &Envoy, name: &str) -> u64 {
    envoy.stat(name).unwrap().unwrap_or_default()
}

/// The active cluster of this name, as Envoy has it.
fn cluster(envoy: &Envoy, name: &str) -> Value {
    let dump = Client::new(envoy.admin()).get("/config_dump?resource=dynamic_active_clusters").unwrap().body;
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let all = dump["configs"].as_array().unwrap();
    all.iter().map(|found| found["cluster"].clone()).find(|found| found["name"] == name).unwrap_or_default()
}

fn wait_until_serving(port: u16, path: &str) {
    wait::until_true("the gateway to serve", || Ok(client(port).get(path)?.status == 200)).unwrap();
}

/// Two nodes: the first of the service `edge`, the other of `other`, each with a gateway and a route `/ready`.
fn two_nodes(routes: Vec<Value>, resources: Vec<Value>) -> (Deployment, Upstream, [(Envoy, u16); 2]) {
    let upstream = Upstream::start(0).unwrap();
    let (edge, other) = (free_port().unwrap(), free_port().unwrap());
    let mut all = vec![
        service("ready", upstream.address().port()),
        gateway("edge", edge, [vec![route("ready", "ready")], routes].concat()),
        gateway("other", other, vec![route("other-ready", "ready")]),
    ];
    for name in ["a", "b", "c", "d", "e"] {
        all.push(service(name, upstream.address().port()));
    }
    all.extend(resources);
    let deployment = Deployment::start(&all);
    let nodes = [("edge", edge), ("other", other)]
        .map(|(name, port)| (deployment.node(&format!("{name}-1"), name, "{}"), port));
    wait_until_serving(edge, "/ready");
    wait_until_serving(other, "/other-ready");
    (deployment, upstream, nodes)
}

#[test]
fn a_circuit_breaker_refuses_what_is_too_much_and_ejects_what_fails() {
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    thread::spawn(move || {
        let _kept: Vec<_> = silent.incoming().take(64).collect();
    });
    let (deployment, _upstream, [(edge, edge_port), (other, _)]) =
        two_nodes(vec![route("silent", "silent"), route("a", "a"), route("b", "b")], vec![service("silent", port)]);
    assert_eq!(cluster(&edge, "a")["outlier_detection"], Value::Null);
    let before = received(&other);
    let limits = json!({"connectionLimits": {"maxConnections": 1, "maxPendingRequests": 1}});
    let detectors = |detectors: Value| json!({"outlierDetection": {"baseEjectionTime": "1h", "maxEjectionPercent": 100, "detectors": detectors}});
    deployment.write(
        "breakers.yaml",
        &[
            attached("CircuitBreaker", "all", json!({"kind": "Mesh"}), limits),
            attached("CircuitBreaker", "b-answers", to("a"), detectors(json!({"totalFailures": {"consecutive": 3}}))),
            attached("CircuitBreaker", "c-origin", to("b"), detectors(json!({"localOriginFailures": {}}))),
        ],
    );
    wait::until_true("the limits", || {
        Ok(cluster(&edge, "silent")["circuit_breakers"]["thresholds"][0]["max_connections"] == 1
            && cluster(&edge, "b")["outlier_detection"].is_object())
    })
    .unwrap();

    // More than each of the two workers' connection and the one that may wait.
    let _callers: Vec<_> = (0..8)
        .map(|_| {
            let mut caller = TcpStream::connect(("127.0.0.1", edge_port)).unwrap();
            caller.write_all(b"GET /silent HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            caller
        })
        .collect();
    wait::until_true("the limit to be passed", || Ok(stat(&edge, "cluster.silent.upstream_rq_pending_overflow") > 0))
        .unwrap();

    let failing = |path: &str| Request::get(path).header("x-upstream", r#"{"status": 503}"#);
    for _ in 0..3 {
        assert_eq!(client(edge_port).send(&failing("/a")).unwrap().status, 503);
        assert_eq!(client(edge_port).send(&failing("/b")).unwrap().status, 503);
    }
    wait::until_true("an ejection", || Ok(stat(&edge, "cluster.a.outlier_detection.ejections_active") == 1)).unwrap();
    assert_eq!(stat(&edge, "cluster.a.outlier_detection.ejections_enforced_consecutive_5xx"), 1);
    assert_eq!(stat(&edge, "cluster.a.membership_healthy"), 0);
    // Nobody asked for this detector.
    assert_eq!(stat(&edge, "cluster.b.outlier_detection.ejections_enforced_total"), 0);
    assert_eq!(received(&other), before);
}

#[test]
fn a_retry_repeats_what_fails_unless_the_route_says_something_itself() {
    let own = json!({"on": ["5xx"], "attempts": 1});
    let with = |mut route: Value, retries: &Value| {
        route["retries"] = retries.clone();
        route
    };
    let routes = vec![route("a", "a"), with(route("b", "b"), &own), route("c", "c"), route("d", "d")];
    let (deployment, _upstream, [(edge, port), (other, other_port)]) = two_nodes(routes, Vec::new());
    let before = received(&other);
    let attempts = |path: &str, status: u16| {
        let total = |envoy: &Envoy| stat(envoy, &format!("cluster.{}.upstream_rq_total", path.trim_start_matches('/')));
        let before = total(&edge);
        let request = Request::get(path).header("x-upstream", json!({"status": status}).to_string());
        assert_eq!(client(port).send(&request).unwrap().status, status);
        total(&edge) - before
    };
    assert_eq!(attempts("/a", 500), 1);
    let patient =
        json!({"numRetries": 2, "retryOn": ["5xx"], "backOff": {"baseInterval": "1ms", "maxInterval": "2ms"}});
    let never = resource(
        "Retry",
        "never",
        json!({"targetRef": {"kind": "HTTPRoute", "name": "c"}, "to": [{"targetRef": {"kind": "Mesh"}, "numRetries": 0}]}),
    );
    let statuses =
        json!({"retriableStatusCodes": [418], "hostSelection": {"omitPreviousHosts": true, "maxAttempts": 3}});
    deployment.write(
        "retries.yaml",
        &[attached("Retry", "all", json!({"kind": "Mesh"}), patient), never, attached("Retry", "d", to("d"), statuses)],
    );
    // Its own change alone reaches the nodes that it concerns.
    wait::until_true("a request to be repeated", || Ok(attempts("/a", 500) == 3)).unwrap();
    assert_eq!(attempts("/a", 418), 1);
    assert_eq!(attempts("/b", 500), 2, "the route's own retries hold");
    assert_eq!(attempts("/c", 500), 1, "the route's own Retry is more specific");
    assert_eq!((attempts("/d", 500), attempts("/d", 418)), (3, 3));
    assert_eq!(received(&other), before);

    let overriding = |retries: u32| {
        let to = json!([{"targetRef": {"kind": "Mesh"}, "numRetries": retries, "retryOn": ["5xx"]}]);
        let target = json!({"kind": "Service", "name": "edge"});
        resource("Retry", "firm", json!({"targetRef": target, "override": true, "to": to}))
    };
    deployment.write("override.yaml", &[overriding(3)]);
    wait::until_true("the override", || Ok(attempts("/b", 500) == 4)).unwrap();
    assert_eq!((attempts("/a", 500), attempts("/c", 500)), (4, 4));
    assert_eq!(client(other_port).get("/other-ready").unwrap().status, 200);
}

#[test]
fn a_health_check_takes_endpoints_out_unless_the_service_says_something_itself() {
    let endpoints = |port: u16| json!([{"address": "127.0.0.1", "port": port}, {"address": "127.0.0.1", "port": DEAD}]);
    let live = Upstream::start(0).unwrap();
    let own = json!({"http": {"path": "/healthz"}, "interval": "100ms"});
    let half = resource("Service", "half", json!({"endpoints": endpoints(live.address().port())}));
    let checked =
        resource("Service", "checked", json!({"endpoints": endpoints(live.address().port()), "healthCheck": own}));
    let (deployment, _upstream, [(edge, _), (other, _)]) = two_nodes(Vec::new(), vec![half, checked]);
    assert_eq!(stat(&edge, "cluster.half.membership_healthy"), 2);
    let before = received(&other);
    let quick =
        json!({"tcp": {}, "interval": "100ms", "timeout": "5s", "unhealthyThreshold": 1, "healthyThreshold": 1});
    deployment.write(
        "checks.yaml",
        &[
            attached("HealthCheck", "all", json!({"kind": "Mesh"}), quick.clone()),
            attached("HealthCheck", "half", to("half"), json!({"http": {"path": "/up"}})),
        ],
    );
    wait::until_true("the checks", || {
        Ok(stat(&edge, "cluster.half.membership_total") == 2 && stat(&edge, "cluster.half.membership_healthy") == 1)
    })
    .unwrap();
    let check = |name: &str| cluster(&edge, name)["health_checks"][0].clone();
    assert_eq!(check("half")["http_health_check"]["path"], "/up");
    assert_eq!(check("half")["interval"], "0.100s");
    assert!(check("a")["tcp_health_check"].is_object());
    assert_eq!(check("checked")["http_health_check"]["path"], "/healthz", "the service's own check holds");
    assert_eq!(received(&other), before);
    assert_eq!(cluster(&other, "half")["health_checks"], Value::Null);

    let mut firm = attached("HealthCheck", "firm", to("checked"), quick);
    firm["spec"]["override"] = json!(true);
    deployment.write("override.yaml", &[firm]);
    wait::until_true("the override", || Ok(check("checked")["tcp_health_check"].is_object())).unwrap();
}

/// The posts of a collector that have these texts, as protobuf has strings.
fn exports(collector: &Collector, path: &str, texts: &[&str]) -> usize {
    let posts = collector.posts();
    let posts = posts.iter().filter(|post| post.path.ends_with(path));
    posts.filter(|post| texts.iter().all(|text| post.body.contains(text))).count()
}

#[test]
fn spans_of_requests_reach_a_collector_by_http_and_by_grpc() {
    let (collector, by_grpc) = (Collector::start(0).unwrap(), Collector::start_grpc().unwrap());
    let (deployment, _upstream, [(edge, port), (other, other_port)]) = two_nodes(Vec::new(), Vec::new());
    let before = received(&other);
    let traced = |transport: &str, rest: Value| {
        let collector = if transport == "grpc" { &by_grpc } else { &collector };
        let address = json!({"address": "127.0.0.1", "port": collector.address().port()});
        let mut spec = json!({"targetRef": to("edge"), "collector": {transport: address}});
        for (field, value) in rest.as_object().unwrap() {
            spec[field] = value.clone();
        }
        resource("Tracing", "traces", spec)
    };
    let tags = json!([
        {"name": "team", "literal": "payments"},
        {"name": "tenant", "header": {"name": "x-tenant", "default": "nobody"}},
    ]);
    deployment.write("tracing.yaml", &[traced("http", json!({"tags": tags, "serviceName": "front"}))]);
    let request = Request::get("/ready").header("x-tenant", "acme");
    wait::until_true("a span by HTTP", || {
        client(port).send(&request)?;
        client(other_port).get("/other-ready")?;
        Ok(exports(&collector, "/v1/traces", &["front", "team", "payments", "tenant", "acme"]) > 0)
    })
    .unwrap();

    deployment.write("tracing.yaml", &[traced("grpc", json!({"tags": tags}))]);
    let service = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    wait::until_true("a span by gRPC", || {
        client(port).get("/ready")?;
        Ok(exports(&by_grpc, service, &["edge", "team", "tenant", "nobody"]) > 0)
    })
    .unwrap();
    assert_eq!(received(&other), before);
    let spans_of_other = |collector: &Collector| exports(collector, "", &["other-ready"]);
    assert_eq!((spans_of_other(&collector), spans_of_other(&by_grpc)), (0, 0), "the other node traces nothing");

    // Nothing is sampled any more: what comes after a last span is not traced.
    deployment.write("tracing.yaml", &[traced("grpc", json!({"sampling": {"overall": 0}}))]);
    wait::until_true("requests to go untraced", || {
        client(port).get("/ready")?;
        Ok(stat(&edge, "http.edge.tracing.not_traceable") > 0)
    })
    .unwrap();
}
