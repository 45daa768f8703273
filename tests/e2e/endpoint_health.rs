//! Endpoints that calls leave out because they fail, and requests that are traced by chance, on a real Envoy.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use postern_tests::{Collector, Envoy, GrpcHealth, Request, Upstream, site::free_port, wait};
use serde_json::{Value, json};

use super::matching::{Deployment, client, resource, service};

fn to(service: &str) -> Value {
    json!({"kind": "Service", "name": service})
}

fn stat(envoy: &Envoy, name: &str) -> u64 {
    envoy.stat(name).unwrap().unwrap_or_default()
}

/// A gateway on `port` with one route, to Service `users`.
fn gateway(port: u16) -> Value {
    let spec = json!({"listeners": [{"name": "http", "port": port}], "routes": [{"name": "all", "service": "users"}]});
    resource("Gateway", "edge", spec)
}

/// A server that answers everything with 500.
fn failing() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            thread::spawn(move || {
                while connection.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                    let answer = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
                    if connection.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn an_endpoint_that_succeeds_far_less_than_the_others_is_ejected() {
    let (one, two, port) = (Upstream::start(0).unwrap(), Upstream::start(0).unwrap(), free_port().unwrap());
    let ports = [one.address().port(), two.address().port(), failing()];
    let endpoints = ports.map(|port| json!({"address": "127.0.0.1", "port": port}));
    let detector = json!({"minimumHosts": 3, "requestVolume": 2, "standardDeviationFactor": 1});
    let ejection = json!({
        "interval": "500ms", "baseEjectionTime": "1h", "maxEjectionPercent": 50, "detectors": {"successRate": detector},
    });
    let deployment = Deployment::start(&[
        resource("Service", "users", json!({"endpoints": endpoints})),
        gateway(port),
        resource(
            "CircuitBreaker",
            "c",
            json!({"targetRef": to("edge"), "to": [{"targetRef": to("users"), "outlierDetection": ejection}]}),
        ),
    ]);
    let envoy = deployment.node("edge-1", "edge", "{}");
    wait::until_true("the gateway to serve", || Ok(client(port).get("/")?.status == 200)).unwrap();
    wait::until_true("an ejection", || {
        for _ in 0..30 {
            client(port).get("/")?;
        }
        Ok(stat(&envoy, "cluster.users.outlier_detection.ejections_active") == 1)
    })
    .unwrap();
    assert_eq!(stat(&envoy, "cluster.users.outlier_detection.ejections_enforced_success_rate"), 1);
    assert_eq!(stat(&envoy, "cluster.users.outlier_detection.ejections_enforced_total"), 1);
    // It is the one that fails: nothing fails any more.
    for _ in 0..30 {
        assert_eq!(client(port).get("/").unwrap().status, 200);
    }
}

#[test]
fn an_endpoint_that_says_by_grpc_that_it_does_not_serve_is_unhealthy() {
    let (health, other, port) = (GrpcHealth::start().unwrap(), GrpcHealth::start().unwrap(), free_port().unwrap());
    let endpoints = [&health, &other].map(|server| json!({"address": "127.0.0.1", "port": server.address().port()}));
    let check = json!({
        "targetRef": to("users"), "grpc": {}, "interval": "100ms", "timeout": "5s", "unhealthyThreshold": 1,
        "healthyThreshold": 1,
    });
    let deployment = Deployment::start(&[
        resource("Service", "users", json!({"protocol": "grpc", "endpoints": endpoints})),
        gateway(port),
        resource("HealthCheck", "h", json!({"targetRef": to("edge"), "to": [check]})),
    ]);
    let envoy = deployment.node("edge-1", "edge", "{}");
    let healthy = |expect: u64| {
        let is = || Ok(stat(&envoy, "cluster.users.membership_healthy") == expect);
        wait::until_true(&format!("{expect} healthy endpoints"), is).unwrap();
    };
    healthy(2);
    wait::until_true("the checks", || Ok(stat(&envoy, "cluster.users.health_check.success") > 1)).unwrap();
    // Nobody calls the service, and it is checked at its interval nevertheless.
    health.set_serving(false);
    healthy(1);
    health.set_serving(true);
    healthy(2);
}

#[test]
fn a_part_of_the_requests_is_traced() {
    const REQUESTS: u64 = 600;
    let (upstream, collector, port) = (Upstream::start(0).unwrap(), Collector::start(0).unwrap(), free_port().unwrap());
    let address = json!({"address": "127.0.0.1", "port": collector.address().port()});
    let tags = json!([{"name": "mark", "header": {"name": "x-mark", "default": "none"}}]);
    let traced =
        json!({"targetRef": to("edge"), "collector": {"http": address}, "tags": tags, "sampling": {"random": 50}});
    let deployment = Deployment::start(&[
        service("users", upstream.address().port()),
        gateway(port),
        resource("Tracing", "t", traced),
    ]);
    let envoy = deployment.node("edge-1", "edge", "{}");
    wait::until_true("the gateway to serve", || Ok(client(port).get("/")?.status == 200)).unwrap();
    let counted =
        || ["random_sampling", "not_traceable"].map(|name| stat(&envoy, &format!("http.edge.tracing.{name}")));
    let [sampled_before, left_out_before] = counted();
    let request = Request::get("/").header("x-mark", "counted-request");
    for _ in 0..REQUESTS {
        assert_eq!(client(port).send(&request).unwrap().status, 200);
    }
    let all = sampled_before + left_out_before + REQUESTS;
    wait::until_true("all to be counted", || Ok(counted().iter().sum::<u64>() == all)).unwrap();
    let sampled = counted()[0] - sampled_before;
    // Fewer than a third, or more than two thirds, of 600 fair draws: less than once in 10^15 runs.
    assert!((200..=400).contains(&sampled), "{sampled} of {REQUESTS} were traced");
    let spans = || {
        let posts = collector.posts();
        posts.iter().map(|post| post.body.matches("counted-request").count() as u64).sum::<u64>()
    };
    // What is counted as sampled is what the collector gets.
    wait::until_true("the spans", || Ok(spans() == sampled)).unwrap();
}
