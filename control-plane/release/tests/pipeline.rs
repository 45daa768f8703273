//! From files to a snapshot: what is interned, what is stable, and what Envoy gets.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use envoy_types::pb::{
    envoy::config::{
        cluster::v3::{
            Cluster,
            cluster::{ClusterDiscoveryType, DiscoveryType},
        },
        route::v3::RouteConfiguration,
    },
    google::protobuf::value::Kind,
};
use postern_base::node::NodeIdentity;
use postern_compile::{
    keys::KeySets,
    pipeline::compile,
    snapshot::{FilterCode, Resource, ResourceType, Selection, Snapshot},
};
use postern_model::File;
use postern_proto::plan::v1::Plan;
use postern_release::publication::Publication;
use prost::Message;
use std::sync::Arc;

fn file(name: &str, text: &str) -> File {
    File { name: name.into(), bytes: text.into() }
}

fn compiled(files: &[File]) -> Snapshot {
    compile(files, &FilterCode::new(b"code".to_vec(), None)).unwrap_or_else(|error| panic!("{error}"))
}

fn policy(name: &str, route: &str, value: &str) -> String {
    format!(
        "
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: {{ name: {name} }}
spec:
  targetRef: {{ kind: HTTPRoute, name: {route} }}
  request:
    - {{ policy: headers, params: {{ set: {{ X-Test: {value} }} }} }}
"
    )
}

const GATEWAY: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: api, hosts: [api.example.com], match: { path: { prefix: /v1 } }, service: s }
    - { name: any, match: { methods: [GET, POST] }, service: s }
    - { name: wild, hosts: ['*.example.com'], match: { path: { exact: /ping } }, service: s }
---
apiVersion: postern/v1
kind: Service
metadata: { name: s }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
";

#[test]
fn interns_equal_chains_and_strings() {
    let text: String = (0..100).map(|n| policy(&format!("p{n}"), &format!("r{n}"), ["a", "b"][n % 2])).collect();
    let plan = Plan::decode(compiled(&[file("p.yaml", &text)]).plan().bytes()).unwrap();
    assert_eq!((plan.routes.len(), plan.chains.len()), (100, 2));
    assert_eq!(plan.strings.len(), 100 + ["headers", "x-test", "a", "b", ""].len());
    assert!(plan.strings.contains(&"x-test".to_owned()), "header names are lower-cased");
}

#[test]
fn has_the_same_versions_on_every_run_and_in_every_order_of_files() {
    let files =
        [file("a.yaml", GATEWAY), file("b.yaml", &policy("p", "api", "a")), file("c.yaml", &policy("q", "any", "b"))];
    let versions = |files: &[File]| {
        let snapshot = compiled(files);
        let sets = ResourceType::ALL.map(|kind| snapshot.select(kind, &Selection::Everything).version);
        (snapshot.revision().clone(), sets)
    };
    let expect = versions(&files);
    let mut turned = files.to_vec();
    for _ in 0..10 {
        turned.rotate_left(1);
        assert_eq!(versions(&turned), expect);
    }
}

#[test]
fn sends_no_cluster_again_when_only_its_endpoints_move() {
    let version = |text: &str, kind| compiled(&[file("a.yaml", text)]).select(kind, &Selection::Everything).version;
    let moved = GATEWAY.replace("port: 9000", "port: 9001");
    assert_eq!(version(GATEWAY, ResourceType::Cluster), version(&moved, ResourceType::Cluster));
    assert_ne!(version(GATEWAY, ResourceType::Endpoints), version(&moved, ResourceType::Endpoints));
}

#[test]
fn gives_dns_names_to_envoy_and_addresses_to_eds() {
    let named = GATEWAY.replace("address: 127.0.0.1", "address: localhost");
    let snapshot = compiled(&[file("a.yaml", &named)]);
    assert!(snapshot.select(ResourceType::Endpoints, &Selection::Everything).resources.is_empty());
    let snapshot = compiled(&[file("a.yaml", GATEWAY)]);
    assert_eq!(snapshot.select(ResourceType::Endpoints, &Selection::Everything).resources.len(), 1);
}

#[test]
fn puts_every_route_into_each_virtual_host_that_can_reach_it() {
    let snapshot = compiled(&[file("a.yaml", GATEWAY)]);
    let set = snapshot.select(ResourceType::RouteConfiguration, &Selection::Everything);
    let configuration = RouteConfiguration::decode(set.resources[0].body.value.as_slice()).unwrap();
    let hosts: Vec<_> = configuration
        .virtual_hosts
        .iter()
        .map(|host| {
            // The name is followed by a mark.
            let name = |name: &str| name.split('#').next().unwrap_or_default().to_owned();
            let routes: Vec<_> = host.routes.iter().map(|route| name(&route.name)).collect();
            format!("{}: {}", host.domains.join(","), routes.join(" "))
        })
        .collect();
    // The first route of each refuses what is not one host.
    let expect = [
        "*: postern/no-host postern/path-parameters any any",
        "*.example.com: postern/no-host postern/path-parameters any any wild",
        "api.example.com: postern/no-host postern/path-parameters api any any wild",
    ];
    assert_eq!(hosts, expect);
}

#[test]
fn encodes_the_tags_of_endpoints_in_one_order() {
    let tags = "tags: { a: '1', b: '2', c: '3', d: '4', e: '5' }";
    for address in ["127.0.0.1", "localhost"] {
        let text = GATEWAY.replace("address: 127.0.0.1", &format!("{tags}, address: {address}"));
        let versions = || {
            let snapshot = compiled(&[file("a.yaml", &text)]);
            [ResourceType::Cluster, ResourceType::Endpoints]
                .map(|kind| snapshot.select(kind, &Selection::Everything).version)
        };
        let expect = versions();
        assert!((0..10).all(|_| versions() == expect));
    }
    let text = GATEWAY.replace("address: 127.0.0.1", &format!("{tags}, address: localhost"));
    let set = compiled(&[file("a.yaml", &text)]).select(ResourceType::Cluster, &Selection::Everything);
    let cluster = Cluster::decode(set.resources[0].body.value.as_slice()).unwrap();
    let endpoint = &cluster.load_assignment.unwrap().endpoints[0].lb_endpoints[0];
    let metadata = &endpoint.metadata.as_ref().unwrap().filter_metadata["envoy.lb"];
    assert_eq!(metadata.fields.len(), 5);
    assert_eq!(metadata.fields["c"].kind, Some(Kind::StringValue("3".to_owned())));
}

#[test]
fn makes_a_cluster_of_an_agent() {
    let agent = |address: &str| {
        let text = format!(
            "apiVersion: postern/v1\nkind: Agent\nmetadata: {{ name: opa }}\nspec: {{ address: '{address}' }}\n"
        );
        let set = compiled(&[file("a.yaml", &text)]).select(ResourceType::Cluster, &Selection::Everything);
        let cluster = Cluster::decode(set.resources[0].body.value.as_slice()).unwrap();
        let endpoint = cluster.load_assignment.unwrap().endpoints[0].lb_endpoints[0].host_identifier.clone();
        (cluster.name, cluster.cluster_discovery_type, format!("{endpoint:?}"))
    };
    let check = |address, discovery: DiscoveryType, part: &str| {
        let (name, found, endpoint) = agent(address);
        assert_eq!((name.as_str(), found), ("agent/opa", Some(ClusterDiscoveryType::Type(discovery.into()))));
        assert!(endpoint.contains(part), "{endpoint}");
    };
    check("127.0.0.1:9191", DiscoveryType::Static, "PortValue(9191)");
    check("opa.svc:9191", DiscoveryType::StrictDns, "opa.svc");
    check("unix:/run/opa.sock", DiscoveryType::Static, "/run/opa.sock");
}

#[test]
fn gives_the_same_names_of_two_meshes_different_revisions() {
    let other = GATEWAY.replace("metadata: { ", "metadata: { mesh: other, ");
    assert_ne!(compiled(&[file("a.yaml", GATEWAY)]).revision(), compiled(&[file("a.yaml", &other)]).revision());
}

/// The route configuration of a publication that succeeds another.
fn routes_of(publication: &Publication) -> Arc<Resource> {
    let set = publication
        .snapshot_for(&NodeIdentity::default())
        .select(ResourceType::RouteConfiguration, &Selection::Everything);
    Arc::clone(&set.resources[0])
}

fn published(more: &str, previous: Option<&Publication>) -> Publication {
    let bundle = postern_model::read(&[file("a.yaml", &format!("{GATEWAY}{more}"))]).unwrap();
    let code = FilterCode::new(b"code".to_vec(), None);
    Publication::admit(bundle, KeySets::default(), &code, &[], previous).unwrap()
}

#[test]
fn makes_routes_anew_only_if_a_change_concerns_them() {
    const REWRITE: &str = "
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: rewrite }
spec:
  targetRef: { kind: HTTPRoute, name: api }
  request: [{ policy: rewrite, params: { prefix: { from: /v1, to: / } } }]
";
    const TIMEOUT: &str = "
---
apiVersion: postern/v1
kind: Timeout
metadata: { name: slow }
spec:
  targetRef: { kind: Mesh }
  to: [{ targetRef: { kind: Mesh }, http: { requestTimeout: 3s } }]
";
    const FOR_SERVICE: &str = "
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: of-service }
spec:
  targetRef: { kind: Mesh }
  to: [{ targetRef: { kind: Service, name: s }, request: [{ policy: headers, params: { set: { x-a: b } } }] }]
";
    let first = published(&policy("p", "api", "one"), None);
    let second = published(&policy("p", "api", "two"), Some(&first));
    assert_ne!(first.revision(), second.revision());
    assert!(Arc::ptr_eq(&routes_of(&first), &routes_of(&second)), "a header that is set concerns no route");
    for change in [REWRITE, TIMEOUT, FOR_SERVICE] {
        let changed = published(change, Some(&first));
        let alone = published(change, None);
        assert_ne!(routes_of(&first).version, routes_of(&changed).version, "{change}");
        assert_eq!(routes_of(&alone).body, routes_of(&changed).body, "{change}");
    }
}

#[test]
fn gives_listeners_the_tags_of_sources_only_where_a_step_reads_them() {
    let reads = |step: &str| {
        let text = format!(
            "{GATEWAY}---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p }}\nspec:\n  \
             targetRef: {{ kind: HTTPRoute, name: api }}\n  request: [{step}]\n"
        );
        let listeners = compiled(&[file("a.yaml", &text)]).select(ResourceType::Listener, &Selection::Everything);
        let name: &[u8] = b"postern.peer_uri_sans";
        listeners.resources[0].body.value.windows(name.len()).any(|bytes| bytes == name)
    };
    assert!(reads("{ policy: headers, when: \"source.tags['zone'] == 'a'\" }"));
    assert!(reads("{ policy: rateLimit, params: { requests: 1, per: 1s, key: \"source.tags['zone']\" } }"));
    // The word alone does not count.
    assert!(!reads("{ policy: headers, params: { set: { x-tags: tags } } }"));
    assert!(!reads("{ policy: headers, when: request.path == '/tags' }"));
}

/// What an expression reads is known from its compiled form: neither the spelling nor the place of it matters.
#[test]
fn knows_expressions_that_read_the_tags_of_sources_by_what_they_mean() {
    let reads = |step: &serde_json::Value| {
        let policy = serde_json::json!({
            "apiVersion": "postern/v1", "kind": "RoutePolicy", "metadata": { "name": "p" },
            "spec": { "targetRef": { "kind": "HTTPRoute", "name": "api" }, "request": [step] },
        });
        let snapshot = compiled(&[file("a.yaml", &format!("{GATEWAY}---\n{policy}\n"))]);
        let listeners = snapshot.select(ResourceType::Listener, &Selection::Everything);
        let name: &[u8] = b"postern.peer_uri_sans";
        listeners.resources[0].body.value.windows(name.len()).any(|bytes| bytes == name)
    };
    let condition = |when: &str| reads(&serde_json::json!({ "policy": "headers", "when": when }));
    for mention in [
        "request.path == 'source.tags'",
        "request.path == \"source.tags['zone']\"",
        "{'tags': request.path}['tags'] == '/'",
        "{'source': {'tags': request.path}}['source'].tags == '/'",
        "'tags' in {'tags': request.path}",
        "'tags' in request.headers",
        "has(request.headers.tags)",
        "request.headers['source.tags'] == 'a'",
        "[{'tags': request.path}].exists(source, source.tags == '/')",
        "[request.path].exists(tags, tags == '/')",
        "source.principal == 'tags' // source.tags",
    ] {
        assert!(!condition(mention), "{mention}");
    }
    for reading in [
        "source.tags.zone == 'a'",
        "source.tags[\"zone\"] == 'a'",
        "source . tags\n  [ 'zone' ] == 'a'",
        "source./* no */tags.zone == 'a'".replace("/* no */", "\t").as_str(),
        ".source.tags.zone == 'a'",
        "has(source.tags.zone)",
        "!has(source.tags)",
        "'zone' in source.tags",
        "source.tags[request.path] == 'a'",
        "dyn(source.tags).zone == 'a'",
        "source.tags.exists(name, name == 'zone')",
        "['zone'].exists(name, source.tags[name] == 'a')",
        "[{'tags': 1}].exists(source, .source.tags.zone == 'a')",
        "request.path == '/' || (request.method == 'GET' ? 'zone' in source.tags : false)",
        "size({'tags': source.tags}) == 1",
    ] {
        assert!(condition(reading), "{reading}");
    }
    let tag = "source.tags.zone";
    for step in [
        serde_json::json!({ "policy": "rateLimit", "params": { "requests": 1, "per": "1s", "key": tag } }),
        serde_json::json!({ "policy": "validate", "params": { "rules": [{ "rule": format!("{tag} == 'a'"), "message": "m" }] } }),
        serde_json::json!({ "policy": "respond", "params": { "template": format!("in {{{{ {tag} }}}}") } }),
        serde_json::json!({ "policy": "auditLog", "params": { "fields": { "zone": tag } } }),
    ] {
        assert!(reads(&step), "{step}");
    }
    for step in [
        serde_json::json!({ "policy": "respond", "params": { "template": format!("in {tag}") } }),
        serde_json::json!({ "policy": "auditLog", "params": { "fields": { "tags": "request.path" } } }),
        serde_json::json!({ "policy": "validate", "params": { "rules": [{ "rule": "true", "message": tag }] } }),
    ] {
        assert!(!reads(&step), "{step}");
    }
}
