//! A node gets nothing that its Envoy would ignore: routes that rely on it are refused there, and served on other
//! nodes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, route::Action};
use postern_base::node::NodeIdentity;
use postern_compile::{
    keys::KeySets,
    snapshot::{FilterCode, ResourceType, Selection, Snapshot},
};
use postern_engine::Plan;
use postern_model::{File, read};
use postern_release::publication::Publication;
use postern_tools::simulate::{Request, simulate};
use prost::Message;

const RESOURCES: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: moved, match: { path: { prefix: /moved } }, service: s }
    - { name: hosted, match: { path: { prefix: /hosted } }, service: s }
    - { name: plain, service: s }
---
apiVersion: postern/v1
kind: Service
metadata: { name: s }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: moved }
spec:
  targetRef: { kind: HTTPRoute, name: moved }
  request: [{ policy: rewrite, params: { prefix: { from: /moved, to: /new } } }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: hosted }
spec:
  targetRef: { kind: HTTPRoute, name: hosted }
  request: [{ policy: rewrite, params: { host: new.internal } }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: plain }
spec:
  targetRef: { kind: HTTPRoute, name: plain }
  request: [{ policy: headers, params: { set: { x-a: '1' } } }]
";

fn node(envoy: Option<&str>) -> NodeIdentity {
    NodeIdentity { id: "n".to_owned(), envoy: envoy.map(str::to_owned), ..NodeIdentity::default() }
}

/// Resources that are admitted while an old node is connected, which is not the resources' fault.
fn published() -> Publication {
    let bundle = read(&[File { name: "f".to_owned(), bytes: RESOURCES.into() }]).unwrap();
    let code = FilterCode::new(b"code".to_vec(), None);
    Publication::admit(bundle, KeySets::default(), &code, &[node(Some("1.36.4"))], None).unwrap()
}

/// The status that a route is answered with by the filter; `None` if the request goes upstream.
fn status(snapshot: &Snapshot, route: &str) -> Option<u16> {
    let plan = Arc::new(Plan::load(snapshot.plan().bytes()).unwrap());
    let path = format!("/{route}/x");
    simulate(&plan, route, &Request { path, ..Request::default() })?.status()
}

fn check(envoy: Option<&str>, expect: [Option<u16>; 3]) {
    let snapshot = published().snapshot_for(&node(envoy));
    assert_eq!(["moved", "hosted", "plain"].map(|route| status(&snapshot, route)), expect, "{envoy:?}");
}

#[test]
fn a_chain_that_an_envoy_would_leave_undone_is_refused_there() {
    check(Some("1.36.4"), [Some(500), Some(500), None]);
}

/// Whether routes have fields that Envoy 1.36 does not know.
fn rewrites(envoy: &str) -> bool {
    let snapshot = published().snapshot_for(&node(Some(envoy)));
    let set = snapshot.select(ResourceType::RouteConfiguration, &Selection::Everything);
    let table = RouteConfiguration::decode(set.resources[0].body.value.as_slice()).unwrap();
    let routes = table.virtual_hosts.iter().flat_map(|host| &host.routes);
    routes.into_iter().any(|route| match &route.action {
        Some(Action::Route(action)) => !action.path_rewrite.is_empty() || action.host_rewrite_specifier.is_some(),
        _ => false,
    })
}

#[test]
fn an_envoy_is_not_sent_fields_that_it_does_not_know() {
    assert_eq!((rewrites("1.36.4"), rewrites("1.37.0")), (false, true));
}

#[test]
fn newer_envoys_and_those_that_name_no_version_get_everything() {
    for envoy in [None, Some("1.37.0"), Some("1.40.0"), Some("2.0.0")] {
        check(envoy, [None, None, None]);
    }
}

#[test]
fn an_envoy_that_is_too_old_refuses_everything() {
    for envoy in ["1.35.3", "1.20.0"] {
        check(Some(envoy), [Some(500), Some(500), Some(500)]);
    }
}

#[test]
fn nodes_of_one_version_share_a_snapshot_and_others_do_not_get_it() {
    let published = published();
    let old = published.snapshot_for(&node(Some("1.36.4")));
    assert!(Arc::ptr_eq(&old, &published.snapshot_for(&node(Some("1.36.0")))));
    let new = published.snapshot_for(&node(Some("1.40.0")));
    assert!(Arc::ptr_eq(&new, &published.snapshot_for(&node(None))));
    assert_ne!(old.revision(), new.revision());
    let versions =
        [&old, &new].map(|snapshot| snapshot.select(ResourceType::ExtensionConfig, &Selection::Everything).version);
    assert_ne!(versions[0], versions[1]);
}
