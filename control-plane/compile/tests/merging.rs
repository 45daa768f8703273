//! How kinds that are attached to calls merge: by the rules of the matching document, as its example of time-outs does
//! (docs/rules.md, "Matching").

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use postern_base::node::NodeIdentity;
use postern_compile::attach::{Effective, Scope, destinations, for_route, for_service, tracing};
use postern_model::{Bundle, File, Outbound, read};
use serde_json::{Value, json};

fn document(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "postern/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

fn bundle(documents: &[String]) -> Bundle {
    let file = |(index, text): (usize, &String)| File { name: index.to_string(), bytes: text.clone().into_bytes() };
    let files: Vec<_> = documents.iter().enumerate().map(file).collect();
    read(&files).unwrap_or_else(|errors| panic!("{errors}"))
}

fn node(service: &str) -> NodeIdentity {
    NodeIdentity { service: service.to_owned(), ..NodeIdentity::default() }
}

/// A mesh-wide resource, one of the mesh for `backend`, and one of the service `web`, each with one entry, as in the
/// example of time-outs.
fn three_levels(kind: &str, base: Value, backend: Value, web: Value) -> Bundle {
    let one = |name: &str, target: Value, to: Value, conf: Value| {
        let mut entry = conf;
        entry["targetRef"] = to;
        document(kind, name, &json!({"targetRef": target, "to": [entry]}))
    };
    let (mesh, to_backend) = (json!({"kind": "Mesh"}), json!({"kind": "Service", "name": "backend"}));
    bundle(&[
        one("00-base", mesh.clone(), mesh.clone(), base),
        one("01-backend", mesh, to_backend.clone(), backend),
        one("web", json!({"kind": "Service", "name": "web"}), to_backend, web),
    ])
}

/// The merged fields, and the resource that each of these comes from.
fn come_to<T: Outbound>(effective: &Effective<'_, T>, origins: &[&str]) -> (Value, Vec<String>) {
    let by = |field: &&str| effective.parts[effective.fields.provider(field).unwrap().by].0.name.clone();
    (serde_json::to_value(&effective.conf).unwrap(), origins.iter().map(by).collect())
}

#[test]
fn circuit_breakers_merge_as_time_outs_do() {
    let bundle = three_levels(
        "CircuitBreaker",
        json!({"connectionLimits": {"maxConnections": 10, "maxRequests": 20}}),
        json!({"connectionLimits": {"maxConnections": 11}, "outlierDetection": {"interval": "1s", "detectors": {
            "totalFailures": {"consecutive": 3}, "gatewayFailures": {"consecutive": 4}}}}),
        json!({"outlierDetection": {"disabled": true, "detectors": {"totalFailures": {"consecutive": 5},
            "successRate": {"standardDeviationFactor": 1.9}}}}),
    );
    let node = node("web");
    let scope = Scope::of(&bundle, &node);
    let backend = for_service(&scope.circuit_breakers, "backend");
    let fields = ["connectionLimits.maxConnections", "connectionLimits.maxRequests", "outlierDetection.interval"];
    let (conf, origins) = come_to(&backend, &fields);
    let detectors = json!({"totalFailures": {"consecutive": 5}, "gatewayFailures": {"consecutive": 4},
        "successRate": {"standardDeviationFactor": 1.9}});
    assert_eq!(
        conf,
        json!({
            "connectionLimits": {"maxConnections": 11, "maxRequests": 20},
            "outlierDetection": {"disabled": true, "interval": "1s", "detectors": detectors},
        })
    );
    assert_eq!(origins, ["01-backend", "00-base", "01-backend"]);
    let payments = come_to(&for_service(&scope.circuit_breakers, "payments"), &[]).0;
    assert_eq!(payments, json!({"connectionLimits": {"maxConnections": 10, "maxRequests": 20}}));
}

#[test]
fn retries_merge_as_time_outs_do_and_lists_are_taken_whole() {
    let bundle = three_levels(
        "Retry",
        json!({"numRetries": 2, "retryOn": ["5xx", "reset"], "backOff": {"baseInterval": "10ms"}}),
        json!({"retriableStatusCodes": [409, 503], "backOff": {"maxInterval": "1s"}}),
        json!({"retryOn": ["connectFailure"], "hostSelection": {"omitPreviousHosts": true}}),
    );
    let node = node("web");
    let scope = Scope::of(&bundle, &node);
    let backend = for_service(&scope.retries, "backend");
    let (conf, origins) = come_to(&backend, &["retryOn", "backOff.baseInterval", "backOff.maxInterval"]);
    assert_eq!(
        conf,
        json!({
            "numRetries": 2, "retryOn": ["connectFailure"], "retriableStatusCodes": [409, 503],
            "backOff": {"baseInterval": "10ms", "maxInterval": "1s"}, "hostSelection": {"omitPreviousHosts": true},
        })
    );
    assert_eq!(origins, ["web", "00-base", "01-backend"]);
}

#[test]
fn health_checks_merge_as_time_outs_do_and_the_first_probe_stays() {
    let bundle = three_levels(
        "HealthCheck",
        json!({"tcp": {}, "interval": "5s"}),
        json!({"http": {"path": "/up"}, "timeout": "1s"}),
        json!({"interval": "1s"}),
    );
    let node = node("web");
    let scope = Scope::of(&bundle, &node);
    let backend = for_service(&scope.health_checks, "backend");
    let (conf, origins) = come_to(&backend, &["http", "interval", "timeout"]);
    assert_eq!(conf, json!({"http": {"path": "/up"}, "interval": "1s", "timeout": "1s"}));
    assert_eq!(origins, ["01-backend", "web", "01-backend"]);
    let payments = for_service(&scope.health_checks, "payments");
    assert_eq!(come_to(&payments, &[]).0, json!({"tcp": {}, "interval": "5s"}));
}

#[test]
fn tracings_merge_by_level() {
    let tracing_of = |name: &str, target: Value, mut spec: Value| {
        spec["targetRef"] = target;
        document("Tracing", name, &spec)
    };
    let (mesh, web) = (json!({"kind": "Mesh"}), json!({"kind": "Service", "name": "web"}));
    let grpc = json!({"grpc": {"address": "10.0.0.1", "port": 4317}});
    let http = json!({"http": {"address": "10.0.0.2", "port": 4318}});
    let tag = |name: &str| json!([{"name": name, "literal": "x"}]);
    let bundle = bundle(&[
        tracing_of("base", mesh, json!({"collector": grpc, "sampling": {"random": 1, "client": 5}, "tags": tag("a")})),
        tracing_of("web", web, json!({"collector": http, "sampling": {"random": 50}, "tags": tag("b")})),
    ]);
    let conf = |service: &str| {
        let node = node(service);
        serde_json::to_value(&tracing(&Scope::of(&bundle, &node)).conf).unwrap()
    };
    let sampling = json!({"random": 50.0, "client": 5.0});
    assert_eq!(conf("web"), json!({"collector": http, "sampling": sampling, "tags": tag("b")}));
    assert_eq!(conf("api")["collector"], grpc);
}

#[test]
fn an_entry_for_a_route_holds_for_that_route_alone() {
    let route =
        |name: &str| json!({"name": name, "service": "backend", "match": {"path": {"prefix": format!("/{name}")}}});
    let request = |time: &str| json!({"http": {"requestTimeout": time}});
    let entry = |target: Value, mut conf: Value| {
        conf["targetRef"] = target;
        conf
    };
    let bundle = bundle(&[
        document("Service", "backend", &json!({"endpoints": [{"address": "127.0.0.1", "port": 80}]})),
        document(
            "Gateway",
            "edge",
            &json!({"listeners": [{"name": "http", "port": 80}], "routes": [route("slow"), route("other")]}),
        ),
        document(
            "Timeout",
            "t",
            &json!({"targetRef": {"kind": "Mesh"}, "to": [
                entry(json!({"kind": "HTTPRoute", "name": "slow"}), request("9s")),
                entry(json!({"kind": "Mesh"}), request("1s")),
            ]}),
        ),
    ]);
    let node = node("web");
    let scope = Scope::of(&bundle, &node);
    let routes = &bundle.gateways[0].spec.routes;
    let conf = |index: usize| serde_json::to_value(&for_route(&scope.timeouts, &routes[index]).conf).unwrap();
    assert_eq!((conf(0), conf(1)), (request("9s"), request("1s")));
    assert_eq!(destinations(&scope, &routes[0])[0].timeout.parts.len(), 2);
    // Its clusters' time-outs are those of the service, on any route.
    assert_eq!(come_to(&for_service(&scope.timeouts, "backend"), &[]).0, request("1s"));
}
