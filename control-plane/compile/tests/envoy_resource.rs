//! Resources in Envoy's format that users write, from files to a snapshot.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use postern_compile::{
    pipeline::compile,
    snapshot::{FilterCode, Resource, ResourceType, Selection, Snapshot},
};
use postern_model::File;
use prost::Message;

const SERVICE: &str = "
apiVersion: postern/v1
kind: Service
metadata: { name: users }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
---
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes: [{ name: all, service: users }]
";

fn raw(name: &str, type_url: &str, fields: &str) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: EnvoyResource\nmetadata: {{ name: {name} }}\nspec:\n  resource:\n    \
         \"@type\": type.googleapis.com/{type_url}\n    {fields}\n"
    )
}

fn cluster(fields: &str) -> String {
    raw("cluster", "envoy.config.cluster.v3.Cluster", fields)
}

fn compiled(text: &str) -> Result<Snapshot, String> {
    let files = [File { name: "f".to_owned(), bytes: text.into() }];
    compile(&files, &FilterCode::new(b"code".to_vec(), None)).map_err(|error| error.to_string())
}

fn get(snapshot: &Snapshot, kind: ResourceType, name: &str) -> std::sync::Arc<Resource> {
    snapshot.select(kind, &Selection::Named([name.to_owned()].into())).resources.remove(0)
}

#[test]
fn serves_a_resource_untouched_beside_the_generated_ones() {
    let snapshot =
        compiled(&format!("{SERVICE}{}", cluster("name: x\n    connect_timeout: 3s\n    type: STATIC"))).unwrap();
    let all = snapshot.select(ResourceType::Cluster, &Selection::Everything);
    let names: Vec<_> = all.resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["users", "x"]);
    let x = Cluster::decode(all.resources[1].body.value.as_slice()).unwrap();
    assert_eq!((x.name.as_str(), x.connect_timeout.unwrap().seconds), ("x", 3));
    assert_eq!(all.resources[1].body.type_url, ResourceType::Cluster.type_url());
}

#[test]
fn refuses_names_that_are_generated_already_with_both_places() {
    let check = |raw: &str, expect: &str| {
        assert_eq!(compiled(&format!("{SERVICE}{raw}")).unwrap_err(), expect);
    };
    let place = |column| format!("f:20:{column}: EnvoyResource `cluster`: spec.resource");
    check(
        &cluster("name: users"),
        &format!("{}.name: Cluster `users` is already generated for Service `users` (f:4)", place(11)),
    );
    check(
        &raw("cluster", "envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name: users"),
        &format!(
            "{}.cluster_name: ClusterLoadAssignment `users` is already generated for Service `users` (f:4)",
            place(19)
        ),
    );
    check(
        &raw("cluster", "envoy.config.listener.v3.Listener", "name: edge/http"),
        &format!("{}.name: Listener `edge/http` is already generated for Gateway `edge` (f:9)", place(11)),
    );
    check(
        &raw("cluster", "envoy.config.route.v3.RouteConfiguration", "name: edge"),
        &format!("{}.name: RouteConfiguration `edge` is already generated for Gateway `edge` (f:9)", place(11)),
    );
    check(
        &raw("cluster", "envoy.config.core.v3.TypedExtensionConfig", "name: postern"),
        &format!("{}.name: TypedExtensionConfig `postern` is already generated", place(11)),
    );
}

#[test]
fn sends_endpoints_again_after_a_cluster_that_changed() {
    let endpoints = raw("endpoints", "envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name: e");
    let version = |cluster_fields: &str, kind, name: &str| {
        let snapshot = compiled(&format!("{}{endpoints}", cluster(cluster_fields))).unwrap();
        get(&snapshot, kind, name).version.clone()
    };
    for fields in ["name: e", "name: c\n    eds_cluster_config: { service_name: e }"] {
        let changed = format!("{fields}\n    connect_timeout: 1s");
        let before = version(fields, ResourceType::Endpoints, "e");
        assert_eq!(before, version(fields, ResourceType::Endpoints, "e"));
        assert_ne!(before, version(&changed, ResourceType::Endpoints, "e"));
    }
}

#[test]
fn has_the_same_version_however_its_maps_are_written() {
    let entries: Vec<String> = (0..40).map(|n| format!("k{n}: {{ v: {n} }}")).collect();
    let version = |entries: Vec<String>| {
        let metadata = format!("name: x\n    metadata: {{ filter_metadata: {{ {} }} }}", entries.join(", "));
        let snapshot = compiled(&cluster(&metadata)).unwrap();
        get(&snapshot, ResourceType::Cluster, "x").version.clone()
    };
    assert_eq!(version(entries.clone()), version(entries.into_iter().rev().collect()));
}

#[test]
fn a_changed_resource_is_a_new_revision() {
    let revision =
        |timeout| compiled(&cluster(&format!("name: x\n    connect_timeout: {timeout}"))).unwrap().revision().clone();
    assert_ne!(revision("1s"), revision("2s"));
    assert_eq!(revision("1s"), revision("1s"));
}

#[test]
fn refuses_to_omit_what_is_generated_or_not_there() {
    let omitting = |name: &str| {
        let target = "\nspec:\n  targetRef: { kind: Proxy, name: p }\n  omit: true\n";
        cluster(&format!("name: {name}")).replace("name: cluster", "name: none").replace("\nspec:\n", target)
    };
    let files = |text: String| [File { name: "f".to_owned(), bytes: text.into_bytes() }];
    let review = |text: String| {
        let bundle = postern_model::read(&files(text)).unwrap();
        postern_compile::review::review(&bundle).map(drop).map_err(|errors| errors.to_string())
    };
    let nothing = |name: &str| {
        format!(
            "f:22:11: EnvoyResource `none`: spec.resource.name: there is nothing to omit: no less specific \
            EnvoyResource declares Cluster `{name}`"
        )
    };
    assert_eq!(review(format!("{SERVICE}{}", omitting("x"))), Err(nothing("x")));
    assert_eq!(review(format!("{SERVICE}{}", omitting("users"))), Err(nothing("users")));
    assert_eq!(review(format!("{SERVICE}{}{}", omitting("x"), cluster("name: x"))), Ok(()));
}
