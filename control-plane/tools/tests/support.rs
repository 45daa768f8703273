//! Nodes are served by what they tell of themselves: an Envoy that is not supported keeps no change from being admitted,
//! and only a bootstrap that does not raise the limit of regular expressions gets the deprecated field that does.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, route::Action, route_match::PathSpecifier};
use postern_base::node::NodeIdentity;
use postern_compile::{
    keys::KeySets,
    snapshot::{FilterCode, ResourceType, Selection, Snapshot},
};
use postern_model::{File, read};
use postern_release::publication::Publication;
use prost::Message;

const RESOURCES: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: moved, match: { path: { prefix: /moved } }, service: s }
    - { name: large, match: { path: { regex: '/[a-z]{80}/.*' } }, service: s }
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
metadata: { name: plain }
spec:
  targetRef: { kind: HTTPRoute, name: plain }
  request: [{ policy: headers, params: { set: { x-a: '1' } } }]
";

fn node(envoy: Option<&str>) -> NodeIdentity {
    NodeIdentity { id: "n".to_owned(), envoy: envoy.map(str::to_owned), ..NodeIdentity::default() }
}

fn with_large_regexes() -> NodeIdentity {
    NodeIdentity { large_regexes: true, ..node(Some("1.40.0")) }
}

/// Resources that are admitted while these nodes are connected.
fn published(nodes: &[NodeIdentity]) -> Publication {
    let bundle = read(&[File { name: "f".to_owned(), bytes: RESOURCES.into() }]).unwrap();
    let code = FilterCode::new(b"code".to_vec(), None);
    Publication::admit(bundle, KeySets::default(), &code, nodes, None).unwrap()
}

fn table(snapshot: &Snapshot) -> RouteConfiguration {
    let set = snapshot.select(ResourceType::RouteConfiguration, &Selection::Everything);
    RouteConfiguration::decode(set.resources[0].body.value.as_slice()).unwrap()
}

#[test]
fn every_supported_envoy_is_told_what_a_chain_rewrites() {
    for envoy in [None, Some("1.37.0"), Some("1.40.0"), Some("2.0.0")] {
        let hosts = table(&published(&[]).snapshot_for(&node(envoy))).virtual_hosts;
        let rewrites = hosts.iter().flat_map(|host| &host.routes).any(|route| match &route.action {
            Some(Action::Route(action)) => !action.path_rewrite.is_empty(),
            _ => false,
        });
        assert!(rewrites, "{envoy:?}");
    }
}

/// How many regular expressions of the route table have the deprecated field.
fn deprecated(node: &NodeIdentity) -> usize {
    let hosts = table(&published(&[]).snapshot_for(node)).virtual_hosts;
    let paths = hosts.iter().flat_map(|host| &host.routes).filter_map(|route| route.r#match.as_ref());
    let of = |path: &PathSpecifier| matches!(path, PathSpecifier::SafeRegex(regex) if regex.engine_type.is_some());
    paths.filter(|path| path.path_specifier.as_ref().is_some_and(of)).count()
}

#[test]
fn a_bootstrap_that_raises_the_limit_is_sent_no_deprecated_field() {
    assert_eq!((deprecated(&node(Some("1.40.0"))), deprecated(&with_large_regexes())), (1, 0));
}

#[test]
fn groups_of_connected_nodes_are_compiled_at_admission_and_those_of_unsupported_ones_never() {
    let published = published(&[with_large_regexes(), node(Some("1.36.4"))]);
    assert!(published.compiled_for(&with_large_regexes()).is_some());
    // None more for imagined nodes with another bootstrap: their plan is the same.
    assert_eq!(published.groups(), 1);
    let [one, other] = [node(Some("1.37.0")), node(None)].map(|node| published.snapshot_for(&node));
    assert!(Arc::ptr_eq(&one, &other), "versions that are supported share a snapshot");
    assert_ne!(one.revision(), published.snapshot_for(&with_large_regexes()).revision());
}
