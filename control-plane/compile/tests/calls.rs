//! What Envoys are served for resources that are attached to calls: a change of one of these alone changes what reads it,
//! for the nodes that it concerns, although a snapshot reuses what did not change.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::{
    cluster::v3::Cluster,
    route::v3::{RetryPolicy, RouteConfiguration, route::Action},
};
use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::{
    attach::Scope,
    keys::KeySets,
    lower::Strictness,
    pipeline::{CompileError, compile_scope},
    snapshot::{FilterCode, Kept, ResourceType, Snapshot},
};
use postern_model::{Diagnostic, File, read};
use prost::Message;

const SITE: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: plain, match: { path: { prefix: /plain } }, service: one }
    - { name: own, match: { path: { prefix: /own } }, service: one, retries: { on: [reset], attempts: 4 } }
    - { name: both, services: [{ service: one }, { service: two }] }
---
apiVersion: postern/v1
kind: Service
metadata: { name: one }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
---
apiVersion: postern/v1
kind: Service
metadata: { name: two }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }], healthCheck: { tcp: {} } }
";

/// A resource for the nodes of the service `web`.
fn attached(kind: &str, rest: &str) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: {kind}\nmetadata: {{ name: p }}\nspec: {{ targetRef: {{ kind: Service, name: web }}, {rest} }}\n"
    )
}

fn compiled(
    kept: &Kept,
    service: &str,
    text: &str,
    strictness: Strictness,
) -> Result<(Snapshot, Vec<Diagnostic>), CompileError> {
    let bundle = read(&[File { name: "f".to_owned(), bytes: text.as_bytes().to_vec() }]).unwrap();
    let node = NodeIdentity { service: service.to_owned(), ..NodeIdentity::default() };
    let code = FilterCode::new(b"\0asm".to_vec(), None);
    let revision = Digest::of(text.as_bytes());
    compile_scope(&Scope::of(&bundle, &node), revision, &KeySets::default(), &code, kept, strictness)
}

fn snapshot(kept: &Kept, service: &str, resources: &str) -> Snapshot {
    compiled(kept, service, &format!("{SITE}{resources}"), Strictness::Strict).unwrap().0
}

/// The version of each resource that differs between two snapshots or is in one alone, by type and name.
fn changes(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let versions = |snapshot: &Snapshot| {
        let mut found = BTreeMap::new();
        for kind in ResourceType::ALL {
            for resource in &snapshot.whole(kind).resources {
                found.insert(format!("{kind:?} {}", resource.name), resource.version.clone());
            }
        }
        found
    };
    let (before, mut after) = (versions(before), versions(after));
    let mut found: Vec<_> =
        before.into_iter().filter(|(name, version)| after.remove(name).as_ref() != Some(version)).collect();
    found.extend(after);
    found.sort();
    found.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_change_changes_what_reads_it_at_the_nodes_that_it_concerns() {
    let to_one = |conf: &str| format!("to: [{{ targetRef: {{ kind: Service, name: one }}, {conf} }}]");
    let to_all = |conf: &str| format!("to: [{{ targetRef: {{ kind: Mesh }}, {conf} }}]");
    let cluster = ["Cluster one", "Endpoints one"].as_slice();
    let both = ["Cluster one", "Cluster two", "Endpoints one", "Endpoints two"].as_slice();
    let routes = ["RouteConfiguration edge"].as_slice();
    let limits = |most: u32| to_one(&format!("connectionLimits: {{ maxRequests: {most} }}"));
    let port = |port: u32| format!("collector: {{ http: {{ address: 127.0.0.1, port: {port} }} }}");
    for (kind, first, second, expect) in [
        ("Timeout", to_one("connectTimeout: 1s"), to_one("connectTimeout: 2s"), cluster),
        ("CircuitBreaker", limits(1), limits(2), cluster),
        (
            "CircuitBreaker",
            to_all("connectionLimits: { maxRetries: 1 }"),
            to_all("outlierDetection: { detectors: { totalFailures: {} } }"),
            both,
        ),
        // The other service checks its own way.
        ("HealthCheck", to_all("tcp: {}"), to_all("http: { path: /up }"), cluster),
        ("Timeout", to_all("http: { requestTimeout: 1s }"), to_all("http: { requestTimeout: 2s }"), routes),
        ("Retry", to_all("numRetries: 1"), to_all("numRetries: 2"), routes),
        ("Tracing", port(1), port(2), ["Cluster tracing/collector", "Listener edge/http"].as_slice()),
        ("Tracing", port(1), format!("{}, sampling: {{ random: 1 }}", port(1)), ["Listener edge/http"].as_slice()),
    ] {
        let (kept, none) = (Kept::default(), "");
        let (bare, first, second) = (none.to_owned(), attached(kind, &first), attached(kind, &second));
        let of = |service: &str| [&bare, &first, &second].map(|resources| snapshot(&kept, service, resources));
        let [bare, one, two] = of("web");
        assert_eq!(changes(&bare, &one).iter().filter(|name| expect.contains(&name.as_str())).count(), expect.len());
        assert_eq!(changes(&one, &two), expect, "{second}");
        let [bare, one, two] = of("api");
        assert_eq!([changes(&bare, &one), changes(&one, &two)], [Vec::<String>::new(), Vec::new()], "{second}");
    }
}

/// The retry policy of each route, by its name without the mark.
fn retries(snapshot: &Snapshot) -> BTreeMap<String, Option<RetryPolicy>> {
    let routes = snapshot.whole(ResourceType::RouteConfiguration);
    let routes = RouteConfiguration::decode(routes.resources[0].body.value.as_slice()).unwrap();
    let found = routes.virtual_hosts.into_iter().flat_map(|host| host.routes).filter_map(|route| match route.action {
        Some(Action::Route(action)) => Some((route.name.split('#').next()?.to_owned(), action.retry_policy)),
        _ => None,
    });
    found.collect()
}

#[test]
fn retries_say_what_envoy_is_to_do() {
    let policies = |conf: &str| {
        let text = attached("Retry", &format!("to: [{{ targetRef: {{ kind: Mesh }}, {conf} }}]"));
        retries(&snapshot(&Kept::default(), "web", &text))
    };
    let usual = policies("perTryTimeout: 1s");
    let policy = usual["plain"].clone().unwrap();
    assert_eq!(policy.retry_on, "gateway-error,connect-failure,refused-stream");
    assert_eq!(policy.num_retries.unwrap().value, 1);
    assert_eq!(usual["both"], usual["plain"]);
    let own = usual["own"].clone().unwrap();
    assert_eq!((own.retry_on.as_str(), own.num_retries.unwrap().value, own.per_try_timeout), ("reset", 4, None));

    let statuses = policies("retriableStatusCodes: [418]")["plain"].clone().unwrap();
    assert_eq!((statuses.retry_on.as_str(), statuses.retriable_status_codes), ("retriable-status-codes", vec![418]));
    let both = policies("retriableStatusCodes: [418], retryOn: [reset]")["plain"].clone().unwrap();
    assert_eq!(both.retry_on, "reset,retriable-status-codes");
    assert_eq!(policies("numRetries: 0, retryOn: [reset]")["plain"], None);
}

#[test]
fn only_named_detectors_eject() {
    let conf = "to: [{ targetRef: { kind: Mesh }, outlierDetection: { DISABLED detectors: { localOriginFailures: {}, \
                successRate: { standardDeviationFactor: 1.9 } } } }]";
    let cluster = |disabled: &str| {
        let text = attached("CircuitBreaker", &conf.replace("DISABLED", disabled));
        let snapshot = snapshot(&Kept::default(), "web", &text);
        let found = snapshot.whole(ResourceType::Cluster).get("one").unwrap().body.value.clone();
        Cluster::decode(found.as_slice()).unwrap().outlier_detection
    };
    let outliers = cluster("").unwrap();
    let enforcing = [
        outliers.enforcing_consecutive_5xx,
        outliers.enforcing_consecutive_gateway_failure,
        outliers.enforcing_consecutive_local_origin_failure,
        outliers.enforcing_success_rate,
        outliers.enforcing_local_origin_success_rate,
        outliers.enforcing_failure_percentage,
    ];
    assert_eq!(enforcing.map(|share| share.unwrap().value), [0, 0, 100, 100, 0, 0]);
    assert!(outliers.split_external_local_origin_errors);
    assert_eq!(outliers.success_rate_stdev_factor.unwrap().value, 1900);
    assert_eq!(cluster("disabled: true,"), None);
}

#[test]
fn what_services_of_a_route_disagree_on_is_refused_or_served_as_the_first_has_it() {
    let text = format!(
        "{SITE}{}",
        attached("Timeout", "to: [{ targetRef: { kind: Service, name: two }, http: { requestTimeout: 1s } }]")
    );
    let refused = compiled(&Kept::default(), "web", &text, Strictness::Strict).unwrap_err().to_string();
    assert!(refused.contains("there would be none for `one` and `1s` for `two`"), "{refused}");
    let (snapshot, problems) = compiled(&Kept::default(), "web", &text, Strictness::Permissive).unwrap();
    assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [refused]);
    assert_eq!(
        changes(&compiled(&Kept::default(), "web", SITE, Strictness::Strict).unwrap().0, &snapshot),
        Vec::<String>::new()
    );
}
