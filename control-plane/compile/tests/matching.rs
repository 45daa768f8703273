//! Which policy applies to whom: the worked examples of the matching document (docs/rules.md, "Matching"), each with
//! exactly its result, and properties of all resources.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

use std::collections::BTreeMap;

use postern_base::node::{DEFAULT_MESH, NodeIdentity};
use postern_compile::attach::{Attached, Logged, Rule, Scope, Source, access_logs, attach, for_service, shown_source};
use postern_model::{Action, Bundle, File, Resource, Timeout, read};
use proptest::prelude::*;
use serde_json::{Value, json};

fn document(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "postern/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

fn bundle(documents: &[String]) -> Bundle {
    let files: Vec<_> = documents
        .iter()
        .enumerate()
        .map(|(index, text)| File { name: format!("{index}.yaml"), bytes: text.clone().into_bytes() })
        .collect();
    read(&files).unwrap_or_else(|errors| panic!("{errors}"))
}

fn node(service: &str, tags: &[(&str, &str)]) -> NodeIdentity {
    NodeIdentity {
        id: format!("{service}-1"),
        service: service.to_owned(),
        mesh: DEFAULT_MESH.to_owned(),
        tags: tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..NodeIdentity::default()
    }
}

fn caller(service: &str, tags: &[(&str, &str)]) -> Source {
    let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Source { mesh: DEFAULT_MESH.to_owned(), service: Some(service.to_owned()), tags }
}

/// The chain of all routes without a chain of their own.
fn default_chain<'a>(scope: &Scope<'a>) -> Attached<'a> {
    let mut attachment = attach(scope);
    let place = attachment.default.expect("there is a chain");
    attachment.chains.remove(place)
}

/// The parameters of a step for a caller.
fn params(chain: &Attached<'_>, step: &str, caller: &Source) -> Option<Value> {
    let fits = |source: &Option<Source>| source.as_ref().is_none_or(|source| source.covers(caller));
    let found = chain.request.iter().find(|found| found.step.name == step && fits(&found.source));
    found.map(|found| found.step.params.clone())
}

#[test]
fn applying_outbound_policy() {
    let bundle = bundle(&[document(
        "Timeout",
        "t",
        &json!({
            "targetRef": {"kind": "Mesh"},
            "to": [
                {"targetRef": {"kind": "Mesh"}, "connectTimeout": "1s"},
                {"targetRef": {"kind": "Service", "name": "backend"}, "connectTimeout": "2s", "http": {"requestTimeout": "3s"}},
                {"targetRef": {"kind": "Mesh"}, "http": {"requestTimeout": "4s"}},
            ],
        }),
    )]);
    let node = node("web", &[]);
    let scope = Scope::of(&bundle, &node);
    let effective = for_service(&scope.timeouts, "backend");
    assert_eq!(
        serde_json::to_value(&effective.conf).unwrap(),
        json!({"connectTimeout": "1s", "http": {"requestTimeout": "3s"}})
    );
    let from = |field: &str| effective.fields.provider(field).map(|field| (field.by, field.over.clone()));
    assert_eq!(from("connectTimeout"), Some((0, vec![1])));
    assert_eq!(from("http.requestTimeout"), Some((1, vec![2])));
}

#[test]
fn applying_inbound_policy() {
    let limit = |params: Value| json!([{"policy": "rateLimit", "params": params}]);
    let bundle = bundle(&[document(
        "RoutePolicy",
        "p",
        &json!({
            "targetRef": {"kind": "Mesh"},
            "from": [
                {
                    "targetRef": {"kind": "ServiceSubset", "name": "backend", "tags": {"version": "v2"}},
                    "request": limit(json!({"requests": 1})),
                },
                {
                    "targetRef": {"kind": "Service", "name": "backend"},
                    "request": limit(json!({"requests": 2, "burst": 3})),
                },
                {"targetRef": {"kind": "Mesh"}, "request": limit(json!({"requests": 9, "burst": 4, "per": "1s"}))},
            ],
        }),
    )]);
    let node = node("web", &[]);
    let scope = Scope::of(&bundle, &node);
    let chain = default_chain(&scope);
    assert!(chain.errors.is_empty(), "{:?}", chain.errors);
    let check = |caller: &Source, expect: Value| assert_eq!(params(&chain, "rateLimit", caller), Some(expect));
    check(&caller("backend", &[("version", "v2")]), json!({"requests": 1, "burst": 3, "per": "1s"}));
    check(&caller("backend", &[("version", "v1")]), json!({"requests": 2, "burst": 3, "per": "1s"}));
    check(&caller("other", &[("version", "v2")]), json!({"requests": 9, "burst": 4, "per": "1s"}));
}

/// The document's own listing has `streamIdleTimeout` in the resource and `idleTimeout` in the merged result. Both are
/// tested, and neither field becomes the other.
fn upstream_timeouts(mesh_wide: &str) -> Bundle {
    let to = |kind: Value, conf: Value| {
        let mut entry = conf;
        entry["targetRef"] = kind;
        entry
    };
    let (mesh, backend) = (json!({"kind": "Mesh"}), json!({"kind": "Service", "name": "backend"}));
    bundle(&[
        document(
            "Timeout",
            "00-base-timeouts",
            &json!({"targetRef": mesh, "to": [
                to(mesh.clone(), json!({"connectTimeout": "10s", "http": {"requestTimeout": "5s", mesh_wide: "1h"}})),
            ]}),
        ),
        document(
            "Timeout",
            "01-consume-backend-timeouts",
            &json!({"targetRef": mesh, "to": [
                to(backend.clone(), json!({"connectTimeout": "20s", "http": {"idleTimeout": "0s"}})),
            ]}),
        ),
        document(
            "Timeout",
            "web-timeouts",
            &json!({"targetRef": {"kind": "Service", "name": "web"}, "to": [
                to(mesh.clone(), json!({"connectTimeout": "5s"})),
                to(backend, json!({"http": {"requestTimeout": "15s"}})),
            ]}),
        ),
    ])
}

fn timeouts(bundle: &Bundle, service: &str) -> (Value, BTreeMap<String, String>) {
    let node = node("web", &[]);
    let scope = Scope::of(bundle, &node);
    let effective = for_service(&scope.timeouts, service);
    let fields = effective.fields.iter().filter(|(path, _)| *path != "http" || effective.fields.iter().count() == 2);
    let origins = fields.map(|(path, field)| (path.to_owned(), effective.parts[field.by].0.name.clone())).collect();
    (serde_json::to_value(&effective.conf).unwrap(), origins)
}

#[test]
fn upstream_timeout_for_backend() {
    let (conf, origins) = timeouts(&upstream_timeouts("idleTimeout"), "backend");
    assert_eq!(conf, json!({"connectTimeout": "5s", "http": {"requestTimeout": "15s", "idleTimeout": "0s"}}));
    assert_eq!(origins["connectTimeout"], "web-timeouts");
    assert_eq!(origins["http.idleTimeout"], "01-consume-backend-timeouts");
    let node = node("web", &[]);
    let bundle = upstream_timeouts("idleTimeout");
    let scope = Scope::of(&bundle, &node);
    let effective = for_service(&scope.timeouts, "backend");
    let by = |field: &str| effective.parts[effective.fields.provider(field).unwrap().by].0.name.as_str();
    assert_eq!(by("http.requestTimeout"), "web-timeouts");
}

/// The entries for a service by priority: the resource and the target of each, as the document's listings have them.
fn entries(bundle: &Bundle, service: Option<&str>) -> Vec<String> {
    let node = node("web", &[]);
    let scope = Scope::of(bundle, &node);
    let entry = |timeout: &Resource<Timeout>, index: usize| {
        let entry = &timeout.spec.to[index];
        let target = entry.target_ref.service().unwrap_or("Mesh").to_owned();
        format!("{}: {target} {}", timeout.name, serde_json::to_value(&entry.conf).unwrap())
    };
    match service {
        Some(service) => {
            for_service(&scope.timeouts, service).parts.iter().map(|(part, index)| entry(part, *index)).collect()
        }
        None => {
            let all = scope.timeouts.iter();
            all.flat_map(|timeout| (0..timeout.spec.to.len()).map(|index| entry(timeout, index))).collect()
        }
    }
}

#[test]
fn upstream_timeout_lists_merged_and_selected_entries() {
    let bundle = upstream_timeouts("idleTimeout");
    let merged = [
        r#"web-timeouts: Mesh {"connectTimeout":"5s"}"#,
        r#"web-timeouts: backend {"http":{"requestTimeout":"15s"}}"#,
        r#"01-consume-backend-timeouts: backend {"connectTimeout":"20s","http":{"idleTimeout":"0s"}}"#,
        r#"00-base-timeouts: Mesh {"connectTimeout":"10s","http":{"idleTimeout":"1h","requestTimeout":"5s"}}"#,
    ];
    assert_eq!(entries(&bundle, None), merged);
    assert_eq!(entries(&bundle, Some("backend")), merged);
    assert_eq!(entries(&bundle, Some("payments")), [merged[0], merged[3]]);
}

#[test]
fn upstream_timeout_for_payments() {
    let (conf, _) = timeouts(&upstream_timeouts("idleTimeout"), "payments");
    assert_eq!(conf, json!({"connectTimeout": "5s", "http": {"requestTimeout": "5s", "idleTimeout": "1h"}}));
}

#[test]
fn upstream_timeout_with_the_field_of_the_first_listing() {
    let bundle = upstream_timeouts("streamIdleTimeout");
    let http = json!({"requestTimeout": "15s", "streamIdleTimeout": "1h", "idleTimeout": "0s"});
    assert_eq!(timeouts(&bundle, "backend").0, json!({"connectTimeout": "5s", "http": http}));
    let http = json!({"requestTimeout": "5s", "streamIdleTimeout": "1h"});
    assert_eq!(timeouts(&bundle, "payments").0, json!({"connectTimeout": "5s", "http": http}));
}

fn permissions() -> Bundle {
    let allow = |service: &str| json!({"targetRef": {"kind": "Service", "name": service}, "action": "ALLOW"});
    bundle(&[
        document(
            "TrafficPermission",
            "allow-only-infra",
            &json!({"targetRef": {"kind": "Mesh"}, "from": [
                allow("infra-monitoring"),
                allow("infra-logger"),
                {"targetRef": {"kind": "Mesh"}, "action": "DENY"},
            ]}),
        ),
        document(
            "TrafficPermission",
            "backend-permissions",
            &json!({"targetRef": {"kind": "Service", "name": "backend"}, "from": [
                {"targetRef": {"kind": "ServiceSubset", "name": "web", "tags": {"version": "v1"}}, "action": "DENY"},
                {"targetRef": {"kind": "Mesh"}, "action": "ALLOW"},
            ]}),
        ),
    ])
}

/// The action for a caller, and the resource that decides.
fn permission(target: &NodeIdentity, caller: &Source) -> (Action, String) {
    let bundle = permissions();
    let scope = Scope::of(&bundle, target);
    let chain = default_chain(&scope);
    let rule = chain.permissions.iter().find(|rule| rule.covers(Some(caller))).expect("a rule for everyone");
    (rule.action, rule.permission.name.clone())
}

#[test]
fn traffic_permission_lists_merged_and_selected_entries() {
    let bundle = permissions();
    let backend = node("backend", &[]);
    let scope = Scope::of(&bundle, &backend);
    let chain = default_chain(&scope);
    let shown =
        |rule: &Rule<'_>| format!("{}: {} {:?}", rule.permission.name, shown_source(rule.source.as_ref()), rule.action);
    let merged = [
        "backend-permissions: service web with version=v1 Deny",
        "backend-permissions: mesh default Allow",
        "allow-only-infra: service infra-monitoring Allow",
        "allow-only-infra: service infra-logger Allow",
        "allow-only-infra: anyone Deny",
    ];
    assert_eq!(chain.permissions.iter().map(shown).collect::<Vec<_>>(), merged);
    let check = |caller: &Source, expect: [usize; 3]| {
        let selected = chain.permissions.iter().filter(|rule| rule.covers(Some(caller))).map(shown);
        assert_eq!(selected.collect::<Vec<_>>(), expect.map(|index| merged[index]), "{caller}");
    };
    check(&caller("web", &[("version", "v1")]), [0, 1, 4]);
    check(&caller("infra-monitoring", &[]), [1, 2, 4]);
    check(&caller("infra-logger", &[]), [1, 3, 4]);
}

#[test]
fn traffic_permission_for_old_versions_of_web() {
    let found = permission(&node("backend", &[]), &caller("web", &[("version", "v1")]));
    assert_eq!(found, (Action::Deny, "backend-permissions".to_owned()));
}

#[test]
fn traffic_permission_for_infra_monitoring() {
    let found = permission(&node("backend", &[]), &caller("infra-monitoring", &[]));
    assert_eq!(found, (Action::Allow, "backend-permissions".to_owned()));
}

#[test]
fn traffic_permission_for_infra_logger() {
    let found = permission(&node("backend", &[]), &caller("infra-logger", &[]));
    assert_eq!(found, (Action::Allow, "backend-permissions".to_owned()));
}

#[test]
fn traffic_permission_elsewhere_in_the_mesh() {
    let elsewhere = node("payments", &[]);
    let found = |service: &str| permission(&elsewhere, &caller(service, &[("version", "v1")]));
    assert_eq!(found("infra-logger"), (Action::Allow, "allow-only-infra".to_owned()));
    assert_eq!(found("web"), (Action::Deny, "allow-only-infra".to_owned()));
}

/// Resources in Envoy's format: the most specific of a type and name is served, or none if it is omitted there.
#[test]
fn proxy_template_with_no_modifications() {
    let cluster = |rest: Value| {
        let mut cluster =
            json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "test-cluster"});
        cluster.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        cluster
    };
    let added = json!({"targetRef": {"kind": "Service", "name": "backend"},
        "resource": cluster(json!({"type": "STATIC", "connect_timeout": "5s"}))});
    let omitted =
        json!({"targetRef": {"kind": "Proxy", "name": "backend-1"}, "omit": true, "resource": cluster(json!({}))});
    let replaced = json!({"targetRef": {"kind": "Proxy", "name": "backend-3"},
        "resource": cluster(json!({"type": "STATIC", "connect_timeout": "7s"}))});
    let bundle = bundle(&[
        document("EnvoyResource", "pt-1", &added),
        document("EnvoyResource", "pt-2", &omitted),
        document("EnvoyResource", "pt-3", &replaced),
    ]);
    let served = |node: &NodeIdentity| {
        let scope = Scope::of(&bundle, node);
        scope.envoy_resources.iter().map(|raw| raw.name.clone()).collect::<Vec<_>>()
    };
    let named = |id: &str| NodeIdentity { id: id.to_owned(), ..node("backend", &[]) };
    assert_eq!(served(&named("backend-1")), Vec::<String>::new());
    assert_eq!(served(&named("backend-2")), ["pt-1"]);
    assert_eq!(served(&named("backend-3")), ["pt-3"]);
    assert_eq!(served(&node("other", &[])), Vec::<String>::new());
    let concerning: Vec<_> =
        Scope::of(&bundle, &named("backend-1")).concerning().map(|it| it.name.to_owned()).collect();
    assert_eq!(concerning, ["pt-2"]);
}

/// An empty list is a value: it replaces a less specific list.
#[test]
fn an_empty_list_replaces_a_less_specific_one() {
    let log = |backends: Value| json!([{"targetRef": {"kind": "Mesh"}, "backends": backends}]);
    let chain = |remove: Value| json!([{"policy": "headers", "params": {"remove": remove}}]);
    let (service, proxy) =
        (json!({"kind": "Service", "name": "backend"}), json!({"kind": "Proxy", "name": "backend-1"}));
    let bundle = bundle(&[
        document("AccessLog", "pt-1", &json!({"targetRef": service, "from": log(json!([{"name": "stdout"}]))})),
        document("AccessLog", "pt-2", &json!({"targetRef": proxy, "from": log(json!([]))})),
        document("RoutePolicy", "pt-1", &json!({"targetRef": service, "request": chain(json!(["x-a"]))})),
        document("RoutePolicy", "pt-2", &json!({"targetRef": proxy, "request": chain(json!(["x-b"]))})),
    ]);
    let special = node("backend", &[]);
    let scope = Scope::of(&bundle, &special);
    let chain = default_chain(&scope);
    assert_eq!(chain.request[0].step.params, json!({"remove": ["x-b"]}));
    let logs = access_logs(&scope).unwrap();
    assert_eq!(logs[0].backends, Vec::<String>::new());
    let plain = NodeIdentity { id: "backend-2".to_owned(), ..special };
    let scope = Scope::of(&bundle, &plain);
    assert_eq!(default_chain(&scope).request[0].step.params, json!({"remove": ["x-a"]}));
    assert_eq!(access_logs(&scope).unwrap()[0].backends, ["stdout"]);
}

#[test]
fn traffic_log() {
    let file = |name: &str| json!({"name": name, "file": {"path": format!("/var/log/{name}")}});
    let entry = |target: Value, backend: &str| json!([{"targetRef": target, "backends": [{"name": backend}]}]);
    let bundle = bundle(&[
        document("Settings", "s", &json!({"logBackends": [file("logstash"), file("file")]})),
        document(
            "AccessLog",
            "tl-1",
            &json!({
                "targetRef": {"kind": "Mesh"},
                "to": entry(json!({"kind": "Service", "name": "web"}), "logstash"),
                "from": entry(json!({"kind": "Mesh"}), "file"),
            }),
        ),
    ]);
    let node = node("any", &[]);
    let logs = access_logs(&Scope::of(&bundle, &node)).unwrap();
    let shown: Vec<_> =
        logs.iter().map(|Logged { which, unless, backends, .. }| (which, unless.len(), backends)).collect();
    assert_eq!(shown.len(), 2);
    assert_eq!(
        (shown[0].0.service.as_deref(), shown[0].1, shown[0].2.as_slice()),
        (Some("web"), 0, &["logstash".to_owned()][..])
    );
    assert_eq!((shown[1].0.source.as_ref(), shown[1].1, shown[1].2.as_slice()), (None, 0, &["file".to_owned()][..]));
}

fn headers(name: &str) -> Value {
    json!({"name": name, "policy": "headers"})
}

fn names(chain: &Attached<'_>) -> Vec<String> {
    chain.request.iter().map(|step| step.step.name.clone()).collect()
}

/// The steps of the mesh run before those of the service, each in its own order. A step that is changed keeps its
/// place.
#[test]
fn what_is_less_specific_runs_first() {
    let policy = |name: &str, target: Value, steps: Value| {
        document("RoutePolicy", name, &json!({"targetRef": target, "request": steps}))
    };
    let bundle = bundle(&[
        policy("z-proxy", json!({"kind": "Proxy", "name": "web-1"}), json!([headers("proxy"), headers("b")])),
        policy("b-mesh", json!({"kind": "Mesh"}), json!([headers("c"), headers("b")])),
        policy("a-mesh", json!({"kind": "Mesh"}), json!([headers("a")])),
        policy("service", json!({"kind": "Service", "name": "web"}), json!([headers("service")])),
        policy("subset", json!({"kind": "MeshSubset", "tags": {"zone": "a"}}), json!([headers("subset")])),
        policy("elsewhere", json!({"kind": "Service", "name": "api"}), json!([headers("elsewhere")])),
    ]);
    let node = node("web", &[("zone", "a")]);
    let scope = Scope::of(&bundle, &node);
    let chain = default_chain(&scope);
    assert_eq!(names(&chain), ["a", "c", "b", "subset", "service", "proxy"]);
    let changed = &chain.request[2];
    let parts: Vec<_> = changed.parts.iter().map(|part| part.policy.name.as_str()).collect();
    assert_eq!(parts, ["z-proxy", "b-mesh"]);
}

#[test]
fn an_override_cannot_be_overridden_from_below() {
    let policy = |name: &str, target: Value, requests: u32, overrides: bool| {
        let step = json!({"policy": "rateLimit", "params": {"requests": requests, "per": "1s"}});
        document("RoutePolicy", name, &json!({"targetRef": target, "override": overrides, "request": [step]}))
    };
    let (mesh, service) = (json!({"kind": "Mesh"}), json!({"kind": "Service", "name": "web"}));
    let check = |mesh_overrides, service_overrides, expect: u32| {
        let bundle =
            bundle(&[policy("m", mesh.clone(), 1, mesh_overrides), policy("s", service.clone(), 2, service_overrides)]);
        let node = node("web", &[]);
        let scope = Scope::of(&bundle, &node);
        let chain = default_chain(&scope);
        assert_eq!(chain.request[0].step.params["requests"], expect, "{mesh_overrides} {service_overrides}");
    };
    check(false, false, 2);
    check(true, false, 1);
    check(false, true, 2);
    check(true, true, 1);
}

#[test]
fn a_step_of_another_policy_takes_the_place_of_the_whole_step() {
    let bundle = bundle(&[
        document(
            "RoutePolicy",
            "m",
            &json!({"targetRef": {"kind": "Mesh"}, "request": [
                {"name": "auth", "policy": "apiKeyAuth", "params": {"header": "x-key"}, "when": "request.method != 'GET'"},
            ]}),
        ),
        document(
            "RoutePolicy",
            "s",
            &json!({"targetRef": {"kind": "Service", "name": "web"}, "request": [{"name": "auth", "policy": "basicAuth"}]}),
        ),
    ]);
    let node = node("web", &[]);
    let scope = Scope::of(&bundle, &node);
    let chain = default_chain(&scope);
    let step = &chain.request[0];
    assert_eq!((step.step.policy.as_str(), step.step.when.as_deref()), ("basicAuth", None));
    assert_eq!(step.fields.provider("policy").map(|policy| policy.over.clone()), Some(vec![1]));
}

#[test]
fn of_parameters_that_exclude_each_other_the_more_specific_counts() {
    let policy = |name: &str, target: Value, params: Value| {
        let step = json!({"policy": "apiKeyAuth", "params": params});
        document("RoutePolicy", name, &json!({"targetRef": target, "request": [step]}))
    };
    let bundle = bundle(&[
        policy("m", json!({"kind": "Mesh"}), json!({"header": "x-key"})),
        policy("s", json!({"kind": "Service", "name": "web"}), json!({"query": "key"})),
    ]);
    let node = node("web", &[]);
    let scope = Scope::of(&bundle, &node);
    assert_eq!(default_chain(&scope).request[0].step.params, json!({"query": "key"}));
}

#[test]
fn shadow_of_a_resource_is_that_of_its_steps() {
    let policy = |name: &str, target: Value, mode: &str, step: &str| {
        document("RoutePolicy", name, &json!({"targetRef": target, "mode": mode, "request": [headers(step)]}))
    };
    let (mesh, service) = (json!({"kind": "Mesh"}), json!({"kind": "Service", "name": "web"}));
    let node = node("web", &[]);
    let mixed = bundle(&[policy("m", mesh.clone(), "shadow", "a"), policy("s", service.clone(), "enforce", "b")]);
    let scope = Scope::of(&mixed, &node);
    let chain = default_chain(&scope);
    let modes: Vec<_> = chain.request.iter().map(|step| step.step.mode.is_some()).collect();
    assert_eq!((chain.shadow, modes), (false, vec![true, false]));
    let whole = bundle(&[policy("m", mesh, "shadow", "a"), policy("s", service, "shadow", "b")]);
    assert!(default_chain(&Scope::of(&whole, &node)).shadow);
}

#[test]
fn says_what_a_merged_step_still_lacks() {
    let policy = |name: &str, target: Value, params: Value| {
        let step = json!({"policy": "rateLimit", "params": params});
        document("RoutePolicy", name, &json!({"targetRef": target, "request": [step]}))
    };
    let bundle = bundle(&[
        policy("m", json!({"kind": "Mesh"}), json!({"burst": 3})),
        policy("s", json!({"kind": "Service", "name": "web"}), json!({"requests": 2})),
    ]);
    let node = node("web", &[]);
    let scope = Scope::of(&bundle, &node);
    let errors: Vec<_> = default_chain(&scope).errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].ends_with(
            "RoutePolicy `s`: spec.request[0].params: missing required field `per`, also in what it is merged with"
        ),
        "{errors:?}"
    );
}

/// The targets that select the node `web-1` and its route `r`, by how specific they are, and the level of each. Both
/// kinds of routes are one level.
fn targets() -> [(usize, Value); 7] {
    [
        (0, json!({"kind": "Mesh"})),
        (1, json!({"kind": "MeshSubset", "tags": {"zone": "a"}})),
        (2, json!({"kind": "Service", "name": "web"})),
        (3, json!({"kind": "ServiceSubset", "name": "web", "tags": {"zone": "a"}})),
        (4, json!({"kind": "Proxy", "name": "web-1"})),
        (5, json!({"kind": "MeshGatewayRoute", "name": "r"})),
        (5, json!({"kind": "HTTPRoute", "name": "r"})),
    ]
}

/// A random policy: its target, its name, and the parameters that it sets in one step.
#[derive(Debug, Clone)]
struct Random {
    target: usize,
    name: String,
    params: BTreeMap<&'static str, u32>,
    overrides: bool,
}

fn random() -> impl Strategy<Value = Random> {
    let fields = prop::sample::subsequence(vec!["requests", "burst", "maxKeys"], 0..=3);
    (0..targets().len(), "[a-c]{1,2}", fields, 1..9_u32, prop::bool::weighted(0.2)).prop_map(
        |(target, name, fields, value, overrides)| Random {
            target,
            name,
            params: fields.into_iter().map(|field| (field, value)).collect(),
            overrides,
        },
    )
}

impl Random {
    fn level(&self) -> usize {
        targets()[self.target].0
    }

    fn name(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    fn document(&self, index: usize) -> String {
        let step = json!({"policy": "rateLimit", "params": self.params});
        let target = &targets()[self.target].1;
        let spec = json!({"targetRef": target, "override": self.overrides, "request": [step]});
        document("RoutePolicy", &self.name(index), &spec)
    }

    /// Whether it comes before another policy: overrides first, the least specific of them before the others; then the
    /// most specific. Of one level, the last by name.
    fn precedes(&self, index: usize, other: &Self, place: usize) -> bool {
        let by_name = self.name(index) > other.name(place);
        match (self.overrides, other.overrides) {
            (true, false) => true,
            (false, true) => false,
            (true, true) => self.level() < other.level() || self.level() == other.level() && by_name,
            (false, false) => self.level() > other.level() || self.level() == other.level() && by_name,
        }
    }
}

/// The parameters of the step on route `r`, which is merged from these policies and one that completes it.
fn merged(documents: &[String]) -> Value {
    let base = document(
        "RoutePolicy",
        "0",
        &json!({"targetRef": {"kind": "Mesh"}, "request": [{"policy": "rateLimit", "params": {"requests": 1, "per": "1s"}}]}),
    );
    let gateway = json!({"listeners": [{"name": "http", "port": 1}], "routes": [{"name": "r", "service": "s"}]});
    let service = json!({"endpoints": [{"address": "127.0.0.1", "port": 2}]});
    let served = [document("Gateway", "g", &gateway), document("Service", "s", &service)];
    let all: Vec<_> = documents.iter().cloned().chain([base]).chain(served).collect();
    let bundle = bundle(&all);
    let node = node("web", &[("zone", "a")]);
    let attachment = attach(&Scope::of(&bundle, &node));
    let place = attachment.routes.get("r").copied().or(attachment.default).expect("there is a chain");
    attachment.chains[place].request[0].step.params.clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_order_of_files_changes_nothing(
        (policies, shuffled) in prop::collection::vec(random(), 0..6).prop_flat_map(|policies| {
            let documents: Vec<_> = policies.iter().enumerate().map(|(index, policy)| policy.document(index)).collect();
            (Just(documents.clone()), Just(documents).prop_shuffle())
        })
    ) {
        prop_assert_eq!(merged(&policies), merged(&shuffled));
    }

    #[test]
    fn the_most_specific_level_that_sets_a_field_decides(policies in prop::collection::vec(random(), 1..8)) {
        let documents: Vec<_> = policies.iter().enumerate().map(|(index, policy)| policy.document(index)).collect();
        let found = merged(&documents);
        for field in ["requests", "burst", "maxKeys"] {
            let setting = policies.iter().enumerate().filter(|(_, policy)| policy.params.contains_key(field));
            let first = setting.reduce(|first, next| match next.1.precedes(next.0, first.1, first.0) {
                true => next,
                false => first,
            });
            let least = (field == "requests").then_some(1);
            let expect = first.map(|(_, policy)| policy.params[field]).or(least);
            prop_assert_eq!(found.get(field).and_then(Value::as_u64), expect.map(u64::from), "{}", field);
        }
    }

    /// Except for overrides.
    #[test]
    fn a_less_specific_resource_changes_no_field_that_a_more_specific_one_sets(
        policies in prop::collection::vec(random(), 1..6),
        mut added in random(),
    ) {
        let lowest = policies.iter().map(Random::level).min().unwrap();
        prop_assume!(lowest > 0);
        added.target = added.target.min(lowest - 1);
        added.overrides = false;
        let mut documents: Vec<_> = policies.iter().enumerate().map(|(index, policy)| policy.document(index)).collect();
        let before = merged(&documents);
        documents.push(added.document(99));
        let after = merged(&documents);
        let set = policies.iter().flat_map(|policy| policy.params.keys());
        for field in set {
            prop_assert_eq!(&before[*field], &after[*field], "{}", field);
        }
    }
}
