//! Host names of services: which service gets which at a node, what guards its route, and what Envoys are served.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;

use envoy_types::pb::envoy::{
    config::{listener::v3::Listener, route::v3::RouteConfiguration},
    extensions::filters::network::http_connection_manager::v3::HttpConnectionManager,
};
use postern_base::node::NodeIdentity;
use postern_compile::{
    attach::{Scope, attach, outbound_name},
    keys::KeySets,
    lint::Finding,
    pipeline::compile_bundle,
    review::{Waiting, lost_guards, review},
    route_match::{guarded_services, marked_names},
    snapshot::{FilterCode, ResourceType, Snapshot},
};
use postern_engine::event::Phase;
use postern_model::{Bundle, File, read};
use prost::Message;
use serde_json::{Value, json};

fn document(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "postern/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

fn read_all(documents: &[String]) -> Result<Bundle, String> {
    let file = |(index, text): (usize, &String)| File { name: index.to_string(), bytes: text.clone().into_bytes() };
    let files: Vec<_> = documents.iter().enumerate().map(file).collect();
    read(&files).map_err(|errors| errors.to_string())
}

fn bundle(documents: &[String]) -> Bundle {
    read_all(documents).unwrap_or_else(|errors| panic!("{errors}"))
}

fn service(name: &str, tags: &[&[(&str, &str)]]) -> String {
    let endpoint = |(index, tags): (usize, &&[(&str, &str)])| {
        let tags: BTreeMap<_, _> = tags.iter().copied().collect();
        json!({"address": "127.0.0.1", "port": 9000 + index, "tags": tags})
    };
    document("Service", name, &json!({"endpoints": tags.iter().enumerate().map(endpoint).collect::<Vec<_>>()}))
}

fn plain(name: &str) -> String {
    service(name, &[&[]])
}

/// A VirtualOutbound with entries: a destination and fields.
fn named(name: &str, target: Value, to: &[(Value, Value)]) -> String {
    let entry = |(target, conf): &(Value, Value)| {
        let mut entry = conf.clone();
        entry["targetRef"] = target.clone();
        entry
    };
    let to: Vec<_> = to.iter().map(entry).collect();
    document("VirtualOutbound", name, &json!({"targetRef": target, "to": to}))
}

fn mesh() -> Value {
    json!({"kind": "Mesh"})
}

fn of(service: &str) -> Value {
    json!({"kind": "Service", "name": service})
}

fn node(service: &str) -> NodeIdentity {
    NodeIdentity { service: service.to_owned(), ..NodeIdentity::default() }
}

/// Each route of generated gateways at a node: the name, the address of its listener, and its host.
fn routes(bundle: &Bundle, service: &str) -> Vec<String> {
    let node = node(service);
    let scope = Scope::of(bundle, &node);
    let outbound = scope.gateways.iter().filter(|gateway| gateway.is_outbound());
    let routes = outbound.flat_map(|gateway| {
        let listener = &gateway.spec.listeners[0];
        gateway.spec.routes.iter().map(move |route| {
            assert_eq!(route.backends.len(), 1);
            format!("{} {}:{} {}", route.name, listener.address, listener.port, route.hosts.join(","))
        })
    });
    routes.collect()
}

/// The errors of a review, without the positions.
fn errors(documents: &[String]) -> Vec<String> {
    let found = read_all(documents).and_then(|bundle| review(&bundle).map_err(|errors| errors.to_string()));
    found.err().unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn each_service_gets_one_name_by_the_most_specific_entry() {
    let bundle = bundle(&[
        service("Backend", &[&[("version", "V1"), ("zone", "a")], &[("version", "V1")]]),
        plain("payments"),
        plain("web"),
        named("00-base", mesh(), &[(mesh(), json!({"host": "{service}.mesh", "port": 15001}))]),
        named("01-backend", mesh(), &[(of("Backend"), json!({"host": "{tags.version}.{service}.{mesh}"}))]),
        named("web", of("web"), &[(of("Backend"), json!({"port": 81})), (of("payments"), json!({"address": "::1"}))]),
        named("other", of("other"), &[(mesh(), json!({"host": "{service}"}))]),
    ]);
    let expect = [
        "outbound:payments ::1:15001 payments.mesh",
        "outbound:Backend 127.0.0.1:81 v1.backend.default",
        "outbound:web 127.0.0.1:15001 web.mesh",
    ];
    let mut found = routes(&bundle, "web");
    found.sort();
    let mut sorted = expect.to_vec();
    sorted.sort();
    assert_eq!(found, sorted);
    // The other service's own entry is more specific than both of the mesh.
    assert_eq!(
        routes(&bundle, "other"),
        [
            "outbound:Backend 127.0.0.1:15001 backend",
            "outbound:payments 127.0.0.1:15001 payments",
            "outbound:web 127.0.0.1:15001 web"
        ]
    );
    let web = node("web");
    let scope = Scope::of(&bundle, &web);
    let backend = bundle.services.iter().find(|service| service.name == "Backend").unwrap();
    let said = outbound_name(&scope.virtual_outbounds, backend);
    let by = |field: &str| said.parts[said.fields.provider(field).unwrap().by].0.name.as_str();
    assert_eq!((by("host"), by("port")), ("01-backend", "web"));
    assert_eq!(said.fields.provider("host").unwrap().over.len(), 1);
}

#[test]
fn an_override_holds_against_more_specific_entries() {
    let firm = json!({"targetRef": mesh(), "override": true, "to": [{"targetRef": mesh(), "host": "{service}.firm"}]});
    let bundle = bundle(&[
        plain("a"),
        document("VirtualOutbound", "firm", &firm),
        named("web", of("web"), &[(mesh(), json!({"host": "{service}.web", "port": 80}))]),
    ]);
    assert_eq!(routes(&bundle, "web"), ["outbound:a 127.0.0.1:80 a.firm"]);
}

#[test]
fn entries_select_services_by_the_tags_that_all_endpoints_have() {
    let tagged = |tags: Value| json!({"kind": "MeshSubset", "tags": tags});
    let bundle = bundle(&[
        service("both", &[&[("team", "a")], &[("team", "a"), ("x", "y")]]),
        service("half", &[&[("team", "a")], &[]]),
        service("mixed", &[&[("team", "a")], &[("team", "b")]]),
        named(
            "v",
            mesh(),
            &[
                (
                    json!({"kind": "ServiceSubset", "name": "half", "tags": {"team": "a"}, "optional": true}),
                    json!({"host": "x"}),
                ),
                (tagged(json!({"team": "a"})), json!({"host": "{service}.{tags.team}"})),
            ],
        ),
    ]);
    assert_eq!(routes(&bundle, "web"), ["outbound:both 127.0.0.1:15001 both.a"]);
    assert!(review(&bundle).is_ok());
}

#[test]
fn a_port_may_come_from_a_tag() {
    let bundle = bundle(&[
        service("a", &[&[("port", "8081")]]),
        service("b", &[&[("port", "8082")]]),
        named("v", mesh(), &[(mesh(), json!({"host": "{service}", "port": "{tags.port}"}))]),
    ]);
    assert_eq!(routes(&bundle, "web"), ["outbound:a 127.0.0.1:8081 a", "outbound:b 127.0.0.1:8082 b"]);
}

#[test]
fn what_a_service_lacks_is_an_error_at_the_field() {
    let one = |conf: Value| named("v", mesh(), &[(mesh(), conf)]);
    let check = |service: String, conf: Value, expect: &str| {
        let found = errors(&[service, one(conf)]);
        let messages: Vec<_> = found.iter().map(|line| line.splitn(4, ':').last().unwrap().trim_start()).collect();
        assert_eq!(messages, [expect]);
    };
    let host = |text: &str| json!({"host": text});
    let at = "VirtualOutbound `v`: spec.to[0]";
    check(plain("a"), host("{tags.version}.a"), &format!("{at}.host: Service `a` has no tag `version`"));
    check(
        service("a", &[&[("version", "v1")], &[]]),
        host("{tags.version}.a"),
        &format!("{at}.host: an endpoint of Service `a`, at port 9001, has no tag `version`, which others have"),
    );
    check(
        service("a", &[&[("version", "v1")], &[("version", "v2")]]),
        host("{tags.version}.a"),
        &format!("{at}.host: endpoints of Service `a` differ in tag `version`: `v1` and `v2`"),
    );
    for odd in ["*", "a b", "a:80", "a/", "", "x@y", "-"] {
        let expect = format!("{at}.host: for Service `a` it becomes `{}.mesh`, which is no host name", odd);
        check(service("a", &[&[("version", odd)]]), host("{tags.version}.mesh"), &expect);
    }
    for odd in ["0", "65536", "x", "+80", " 80", ""] {
        let expect = format!("{at}.port: for Service `a` it becomes `{odd}`, which is no port from 1 to 65535");
        let conf = json!({"host": "{service}", "port": "{tags.p}"});
        check(service("a", &[&[("p", odd)]]), conf, &expect);
    }
}

#[test]
fn two_services_of_one_name_are_an_error_that_names_both() {
    let all = |other: &str| {
        vec![
            plain("a"),
            plain("b"),
            plain("c"),
            named(
                "v",
                mesh(),
                &[(of("b"), json!({"host": "A.mesh", "port": other})), (mesh(), json!({"host": "{service}.mesh"}))],
            ),
        ]
    };
    let expect = "3:1:137: VirtualOutbound `v`: spec.to[0].host: Service `b` would have host `a.mesh` at `127.0.0.1:15001`, \
                  which is that of Service `a` (VirtualOutbound `v`, 3:1)";
    let found = errors(&all("15001"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].split_once("spec.to").unwrap().1, expect.split_once("spec.to").unwrap().1);
    // Neither is served where errors do not refuse the whole.
    assert_eq!(routes(&bundle(&all("15001")), "web"), ["outbound:c 127.0.0.1:15001 c.mesh"]);
    // On another port it is another name.
    assert_eq!(errors(&all("15002")), [""; 0]);
}

#[test]
fn a_listener_takes_no_address_of_another_one() {
    let gateway = |address: &str, port: u16| {
        let spec = json!({"listeners": [{"name": "h", "address": address, "port": port}], "routes": [{"name": "r", "service": "a", "public": {"reason": "x"}}]});
        document("Gateway", "edge", &spec)
    };
    let raw = |address: &str, port: u16| {
        let resource = json!({
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "own",
            "address": {"socket_address": {"address": address, "port_value": port}},
        });
        document("EnvoyResource", "own", &json!({"resource": resource}))
    };
    let outbound =
        |address: &str| named("v", mesh(), &[(mesh(), json!({"host": "{service}", "port": 80, "address": address}))]);
    let all = |other: String, address: &str| {
        let documents = [plain("a"), other, outbound(address)];
        let bundle = bundle(&documents);
        let compiled = compile_bundle(&bundle, &KeySets::default(), &FilterCode::new(Vec::new(), None));
        compiled.err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (theirs, ours, clashes) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("0.0.0.0", "127.0.0.1", true),
        ("127.0.0.1", "0.0.0.0", true),
        ("127.0.0.2", "127.0.0.1", false),
    ] {
        for (other, label) in [(gateway(theirs, 80), "Gateway `edge`"), (raw(theirs, 80), "EnvoyResource `own`")] {
            let found = all(other, ours);
            let expect = format!("spec.to: `{ours}:80` is already used by {label} (1:1)");
            assert_eq!(found.contains(&expect), clashes, "{found}");
            assert_eq!(found.is_empty(), !clashes, "{found}");
        }
    }
    assert_eq!(all(gateway("127.0.0.1", 81), "127.0.0.1"), "");
    assert_eq!(all(raw("127.0.0.1", 81), "127.0.0.1"), "");
    let twice = named(
        "v",
        mesh(),
        &[
            (of("a"), json!({"host": "a", "port": 80, "address": "0.0.0.0"})),
            (of("b"), json!({"host": "b", "port": 80})),
        ],
    );
    let found = errors(&[plain("a"), plain("b"), twice]);
    assert!(found.iter().any(|line| line.contains("is already used by listener `outbound:")), "{found:?}");
}

#[test]
fn names_of_routes_are_its_own() {
    let outbound = || named("v", mesh(), &[(mesh(), json!({"host": "{service}"}))]);
    let gateway = document(
        "Gateway",
        "edge",
        &json!({"listeners": [{"name": "h", "port": 80}], "routes": [{"name": "outbound:a", "service": "a"}]}),
    );
    let found = errors(&[plain("a"), gateway.clone(), outbound()]);
    let expect = "names that start with `outbound:` are for routes of VirtualOutbound `v` (2:1)";
    assert!(found[0].contains("Gateway `edge`: spec.routes[0].name") && found[0].ends_with(expect), "{found:?}");
    let matched = json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:x"}, "match": {"hosts": ["a"]}, "request": [{"policy": "requestId"}]});
    let found = errors(&[plain("a"), document("RoutePolicy", "p", &matched), outbound()]);
    assert!(found[0].contains("RoutePolicy `p`: spec.match") && found[0].ends_with(expect), "{found:?}");
    // Without VirtualOutbounds it is a name like any other.
    assert!(read_all(&[plain("a"), gateway]).is_ok());
}

#[test]
fn references_to_routes_and_services_must_be_there() {
    let policy = |kind: &str, route: &str, more: Value| {
        let mut target = json!({"kind": kind, "name": route});
        target.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        document("RoutePolicy", "p", &json!({"targetRef": target, "request": [{"policy": "requestId"}]}))
    };
    let outbound = || named("v", mesh(), &[(of("users"), json!({"host": "{service}"}))]);
    let check = |policy: String, expect: &[&str]| {
        assert_eq!(errors(&[plain("users"), plain("orders"), policy, outbound()]), expect);
    };
    let none = json!({});
    check(policy("HTTPRoute", "outbound:users", none.clone()), &[]);
    let wrong = |name: &str, near: &str| {
        format!(
            "2:1:102: RoutePolicy `p`: spec.targetRef.name: unknown route `{name}`{near} (no VirtualOutbound comes to it)"
        )
    };
    for (name, near) in
        [("outbound:user", ": did you mean `outbound:users`?"), ("outbound:orders", ": did you mean `outbound:users`?")]
    {
        let found = errors(&[plain("users"), plain("orders"), policy("HTTPRoute", name, none.clone()), outbound()]);
        assert_eq!(found.len(), 1);
        let rest = |text: &str| text.split_once("RoutePolicy").unwrap().1.to_owned();
        assert_eq!(rest(&found[0]), rest(&wrong(name, near)));
        check(policy("HTTPRoute", name, json!({"optional": true})), &[]);
    }
    let found = errors(&[plain("users"), policy("MeshGatewayRoute", "outbound:users", none), outbound()]);
    assert!(found[0].contains("(a route of no Gateway is an `HTTPRoute`)"), "{found:?}");
    let check = |target: Value, expect: &str| {
        let found = errors(&[plain("users"), named("v", mesh(), &[(target, json!({"host": "x"}))])]);
        assert!(found.len() == 1 && found[0].ends_with(expect), "{found:?}");
    };
    check(of("usres"), "spec.to[0].targetRef.name: unknown service `usres`: did you mean `users`?");
    check(
        json!({"kind": "MeshSubset", "tags": {"a": "b"}}),
        "spec.to[0].targetRef.tags: MeshSubset {a: b}: no Service has these tags at all of its endpoints",
    );
}

/// The names of the steps of a route's request chain at a node of service `web`. A permission is `permission`.
fn chain(documents: &[String], route: &str) -> Option<Vec<String>> {
    let bundle = bundle(documents);
    let web = node("web");
    let scope = Scope::of(&bundle, &web);
    let attachment = attach(&scope);
    let place = attachment.routes.get(route).copied().or(attachment.default)?;
    let chain = &attachment.chains[place];
    let permissions = (!chain.permissions.is_empty()).then(|| "permission".to_owned());
    let steps = chain.steps(Phase::Request).iter().map(|step| step.step.name.clone());
    Some(permissions.into_iter().chain(steps).collect())
}

fn guards(address: &str) -> Vec<String> {
    let step = |name: &str| json!([{"name": name, "policy": "headers", "params": {"set": {"x-a": name}}}]);
    let entry = |target: Value, name: &str| json!({"targetRef": target, "request": step(name)});
    let policy = json!({
        "targetRef": of("web"), "request": step("always"),
        "from": [entry(mesh(), "from")],
        "to": [entry(of("a"), "to-a"), entry(of("b"), "to-b"), entry(mesh(), "to-all")],
    });
    let own = json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:a"}, "request": step("own")});
    let permission = json!({"targetRef": mesh(), "from": [{"targetRef": mesh(), "action": "DENY"}]});
    vec![
        plain("a"),
        plain("b"),
        named("v", mesh(), &[(mesh(), json!({"host": "{service}", "address": address}))]),
        document("RoutePolicy", "p", &policy),
        document("RoutePolicy", "q", &own),
        document("TrafficPermission", "t", &permission),
    ]
}

#[test]
fn a_route_that_only_its_node_reaches_has_all_but_what_is_for_incoming_traffic() {
    let sorted = |documents: &[String], route: &str| {
        let mut found = chain(documents, route).unwrap();
        found.sort();
        found
    };
    let local = guards("127.0.0.1");
    assert_eq!(sorted(&local, "outbound:a"), ["always", "own", "to-a", "to-all"]);
    assert_eq!(sorted(&local, "outbound:b"), ["always", "to-all", "to-b"]);
    // On any other address, callers are strangers.
    let open = guards("0.0.0.0");
    assert_eq!(sorted(&open, "outbound:a"), ["always", "from", "own", "permission", "to-a", "to-all"]);
    // What targets the route itself is meant.
    let mut own = guards("127.0.0.1");
    let denied = json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:b"}, "from": [{"targetRef": mesh(), "action": "DENY"}]});
    own.push(document("TrafficPermission", "u", &denied));
    assert_eq!(sorted(&own, "outbound:b"), ["always", "permission", "to-all", "to-b"]);
    assert_eq!(sorted(&own, "outbound:a"), ["always", "own", "to-a", "to-all"]);
}

#[test]
fn what_is_for_incoming_traffic_alone_is_no_default_of_a_local_route() {
    let permission = json!({"targetRef": mesh(), "from": [{"targetRef": mesh(), "action": "DENY"}]});
    let documents = [
        plain("a"),
        named("v", mesh(), &[(mesh(), json!({"host": "{service}"}))]),
        document("TrafficPermission", "t", &permission),
    ];
    assert_eq!(chain(&documents, "outbound:a"), Some(Vec::new()));
    assert_eq!(chain(&documents, "another"), Some(vec!["permission".to_owned()]));
    // It has a chain without steps in any case where filters count requests on routes without one.
    assert_eq!(chain(&documents[..2], "outbound:a"), Some(Vec::new()));
    let gateway = json!({"listeners": [{"name": "h", "port": 80}], "routes": [{"name": "r", "service": "a"}]});
    assert_eq!(chain(&[&documents[..2], &[document("Gateway", "edge", &gateway)]].concat(), "outbound:a"), None);
    // The plan loads, and declares the route.
    let snapshot = snapshot(&documents);
    assert!(snapshot.whole(ResourceType::ExtensionConfig).resources.len() > 1);
}

#[test]
fn a_route_that_only_its_node_reaches_is_not_reported_as_unguarded() {
    let found = |address: &str| -> Vec<Finding> {
        let documents = [plain("a"), named("v", mesh(), &[(mesh(), json!({"host": "{service}", "address": address}))])];
        review(&bundle(&documents)).unwrap()
    };
    assert!(found("127.0.0.1").is_empty() && found("::1").is_empty());
    for address in ["0.0.0.0", "10.0.0.1", "::", "::ffff:127.0.0.1"] {
        let found = found(address);
        assert!(found.len() == 1 && found[0].code == "unguarded-route", "{address} {found:?}");
        assert!(found[0].at.message.starts_with("route `outbound:a` has no authentication"), "{found:?}");
    }
    // Opening a listener to others shows as what it is.
    let guarded = |address: &str| {
        let key = json!({"targetRef": mesh(), "from": [{"targetRef": mesh(), "request": [{"policy": "apiKeyAuth", "params": {"header": "x-api-key"}}]}]});
        bundle(&[
            plain("a"),
            document("RoutePolicy", "p", &key),
            named("v", mesh(), &[(mesh(), json!({"host": "{service}", "address": address}))]),
        ])
    };
    assert!(review(&guarded("0.0.0.0")).unwrap().is_empty());
    assert_eq!(lost_guards(&guarded("0.0.0.0"), &guarded("127.0.0.1"), &[]), [""; 0]);
    assert!(Waiting::of(&guarded("0.0.0.0")).findings(&[]).len() == 1, "it waits for a node");
}

#[test]
fn a_policy_for_an_outbound_route_makes_no_route_on_other_nodes() {
    let documents = [
        plain("a"),
        named("v", of("web"), &[(mesh(), json!({"host": "{service}"}))]),
        document(
            "RoutePolicy",
            "q",
            &json!({"targetRef": {"kind": "HTTPRoute", "name": "outbound:a"}, "request": [{"policy": "requestId"}]}),
        ),
    ];
    let bundle = bundle(&documents);
    let has = |service: &str| {
        let node = node(service);
        attach(&Scope::of(&bundle, &node)).routes.contains_key("outbound:a")
    };
    assert_eq!((has("web"), has("other")), (true, false));
    assert!(review(&bundle).unwrap().is_empty());
}

#[test]
fn a_new_service_changes_no_mark_of_others_and_a_new_reach_does() {
    let marks = |services: &[&str], address: &str| -> BTreeMap<String, String> {
        let mut documents: Vec<_> = services.iter().map(|name| plain(name)).collect();
        documents.push(named("v", mesh(), &[(mesh(), json!({"host": "{service}", "address": address}))]));
        let bundle = bundle(&documents);
        let node = node("web");
        let scope = Scope::of(&bundle, &node);
        let gateway = &scope.gateways[0].spec;
        let names = gateway.routes.iter().map(|route| route.name.clone());
        let guarded = guarded_services(scope.route_policies.iter().map(|policy| &policy.spec));
        names.zip(marked_names(gateway, &guarded)).collect()
    };
    let (few, more) = (marks(&["b", "c"], "127.0.0.1"), marks(&["a", "b", "c"], "127.0.0.1"));
    assert!(few.iter().all(|(name, mark)| more[name] == *mark));
    assert!(marks(&["b", "c"], "0.0.0.0").iter().all(|(name, mark)| few[name] != *mark));
    let mut all: Vec<_> = more.values().collect();
    all.dedup();
    assert_eq!(all.len(), 3);
}

fn snapshot(documents: &[String]) -> Snapshot {
    compile_bundle(&bundle(documents), &KeySets::default(), &FilterCode::new(Vec::new(), None)).unwrap()
}

#[test]
fn an_envoy_gets_a_hardened_listener_with_a_virtual_host_for_each_name() {
    let timeout = json!({"targetRef": mesh(), "to": [{"targetRef": of("a"), "http": {"requestTimeout": "7s"}}]});
    let gateway = json!({"listeners": [{"name": "h", "port": 80}], "routes": [{"name": "r", "service": "a", "public": {"reason": "x"}}]});
    let log = json!({"targetRef": mesh(), "from": [{"targetRef": mesh(), "backends": [{"name": "stdout"}]}]});
    let snapshot = snapshot(&[
        plain("a"),
        plain("b"),
        document("Gateway", "edge", &gateway),
        document("Timeout", "t", &timeout),
        document("AccessLog", "l", &log),
        named("v", mesh(), &[(mesh(), json!({"host": "{service}.mesh"}))]),
    ]);
    let message = |kind, name: &str| snapshot.whole(kind).get(name).unwrap().body.value.clone();
    let manager = |name: &str| {
        let listener = Listener::decode(message(ResourceType::Listener, name).as_slice()).unwrap();
        let filter = listener.filter_chains[0].filters[0].clone();
        let Some(envoy_types::pb::envoy::config::listener::v3::filter::ConfigType::TypedConfig(config)) =
            filter.config_type
        else {
            panic!("{filter:?}")
        };
        (listener.traffic_direction, HttpConnectionManager::decode(config.value.as_slice()).unwrap())
    };
    let (direction, mut outbound) = manager("outbound:127.0.0.1:15001/http");
    let (_, mut edge) = manager("edge/h");
    assert_eq!(direction, 2, "outbound");
    // It differs from a Gateway's in its names, and logs no incoming requests.
    assert_eq!((outbound.access_log.len(), edge.access_log.len()), (0, 1));
    for manager in [&mut outbound, &mut edge] {
        manager.stat_prefix = String::new();
        manager.access_log.clear();
        manager.route_specifier = None;
    }
    assert_eq!(outbound, edge);
    let routes =
        RouteConfiguration::decode(message(ResourceType::RouteConfiguration, "outbound:127.0.0.1:15001").as_slice())
            .unwrap();
    assert!(routes.ignore_port_in_host_matching);
    let hosts: Vec<_> = routes.virtual_hosts.iter().flat_map(|host| host.domains.clone()).collect();
    assert_eq!(hosts, ["*", "a.mesh", "b.mesh"]);
    let last = |host: usize| routes.virtual_hosts[host].routes.last().unwrap();
    assert!(last(1).name.starts_with("outbound:a#") && last(2).name.starts_with("outbound:b#"));
    assert!(
        format!("{:?}", last(1).action).contains("seconds: 7")
            && !format!("{:?}", last(2).action).contains("seconds: 7")
    );
    assert!(routes.virtual_hosts[0].routes.iter().all(|route| !route.name.starts_with("outbound:")));
}
