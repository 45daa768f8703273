//! Mistakes that would open a route: dangling references, routes without authentication, merges that weaken a step, and
//! changes that remove the last guard of a route.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use postern_base::node::NodeIdentity;
use postern_compile::{
    attach::{Scope, attach},
    review::{Waiting, lost_guards, review},
};
use postern_model::{Bundle, File, read};

const GATEWAY: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: orders, match: { path: { prefix: /orders } }, service: backend }
---
apiVersion: postern/v1
kind: Service
metadata: { name: backend }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
";

fn bundle(text: &str) -> Bundle {
    read(&[File { name: "f".to_owned(), bytes: text.as_bytes().to_vec() }]).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A document of this kind and name, with its spec in one line.
fn document(kind: &str, name: &str, spec: &str) -> String {
    format!("---\napiVersion: postern/v1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {spec}\n")
}

fn policy(name: &str, target: &str, rest: &str) -> String {
    document("RoutePolicy", name, &format!("{{ targetRef: {target}, {rest} }}"))
}

const ORDERS: &str = "{ kind: HTTPRoute, name: orders }";
const KEY: &str = "request: [{ policy: apiKeyAuth, params: { header: x-key } }]";

/// The errors and findings of a review, without positions.
fn said(text: &str) -> Vec<String> {
    let strip = |line: String| line.split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap();
    match review(&bundle(text)) {
        Ok(findings) => {
            findings.iter().map(|found| format!("[{}] {}", found.code, strip(found.at.to_string()))).collect()
        }
        Err(errors) => errors.iter().map(|error| strip(error.to_string())).collect(),
    }
}

#[track_caller]
fn check(text: &str, expect: &[&str]) {
    assert_eq!(said(text), expect, "{text}");
}

#[test]
fn a_route_that_nobody_declares_is_an_error() {
    let wrong = "RoutePolicy `p`: spec.targetRef.name: unknown route `order`: did you mean `orders`? (a route of Envoy's own \
                 needs `optional: true`)";
    let text = |target: &str| format!("{GATEWAY}{}{}", policy("p", target, KEY), policy("q", ORDERS, KEY));
    check(&text("{ kind: HTTPRoute, name: order }"), &[wrong]);
    check(&text("{ kind: HTTPRoute, name: order, optional: false }"), &[wrong]);
    check(&text("{ kind: HTTPRoute, name: order, optional: true }"), &[]);
    let wrong = "RoutePolicy `p`: spec.targetRef.name: unknown route `order`: did you mean `orders`? (a route of no Gateway is \
                 an `HTTPRoute`)";
    check(&text("{ kind: MeshGatewayRoute, name: order }"), &[wrong]);
}

#[test]
fn of_every_kind_that_is_attached_to_routes() {
    let target = "{ kind: HTTPRoute, name: order }";
    let guard = policy("q", ORDERS, KEY);
    for (kind, rest) in [
        ("TrafficPermission", "from: [{ targetRef: { kind: Mesh }, action: ALLOW }]"),
        ("Timeout", "to: [{ targetRef: { kind: Mesh }, http: { requestTimeout: 1s } }]"),
        ("Retry", "to: [{ targetRef: { kind: Mesh }, numRetries: 1 }]"),
        ("AccessLog", "to: [{ targetRef: { kind: Mesh }, backends: [] }]"),
    ] {
        let text = format!("{GATEWAY}{guard}{}", document(kind, "p", &format!("{{ targetRef: {target}, {rest} }}")));
        let Ok(read) = read(&[File { name: "f".to_owned(), bytes: text.clone().into_bytes() }]) else {
            continue; // It is attached to no routes.
        };
        let errors = review(&read).expect_err(kind).to_string();
        assert!(errors.contains("unknown route `order`: did you mean `orders`?"), "{errors}");
    }
}

#[test]
fn without_a_declared_route_all_routes_are_envoys_own() {
    check(&policy("p", "{ kind: HTTPRoute, name: anything }", KEY), &[]);
    let gateway = policy("p", "{ kind: MeshGatewayRoute, name: anything }", KEY);
    assert!(said(&gateway)[0].contains("unknown route `anything` (a route of no Gateway is an `HTTPRoute`)"));
    // A gateway of another mesh declares nothing here.
    let elsewhere = GATEWAY.replace("metadata: { name: edge }", "metadata: { name: edge, mesh: other }");
    let elsewhere = elsewhere.replace("metadata: { name: backend }", "metadata: { name: backend, mesh: other }");
    let found = said(&format!("{elsewhere}{}", policy("p", "{ kind: HTTPRoute, name: anything }", KEY)));
    assert!(found.iter().all(|line| line.contains("[unguarded-route] Gateway `edge`")), "{found:?}");
}

fn raw(routes: &str) -> String {
    document(
        "EnvoyResource",
        "raw",
        &format!(
            "{{ resource: {{ '@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: raw, \
             virtual_hosts: [{{ name: all, domains: ['*'], routes: [{routes}] }}] }} }}"
        ),
    )
}

#[test]
fn routes_of_raw_resources_are_declared() {
    let raw =
        raw("{ name: reports, match: { prefix: / }, route: { cluster: c } }, { name: old, match: { prefix: /o }, \
                   redirect: { path_redirect: /new } }");
    check(&format!("{raw}{}", policy("p", "{ kind: HTTPRoute, name: reports }", KEY)), &[]);
    let found = said(&format!("{raw}{}", policy("p", "{ kind: HTTPRoute, name: report }", KEY)));
    assert_eq!(
        found,
        [
            "RoutePolicy `p`: spec.targetRef.name: unknown route `report`: did you mean `reports`? (a route of Envoy's own needs \
          `optional: true`)"
        ]
    );
    check(
        &raw,
        &[
            "[unguarded-route] EnvoyResource `raw`: spec.resource.virtual_hosts[0].routes[0].name: route `reports` has no \
           authentication: add a step such as `apiKeyAuth` or `jwtValidation`, or say `public: { reason: … }`",
        ],
    );
}

#[test]
fn a_destination_that_nobody_declares_is_an_error() {
    let to = |service: &str| {
        let steps = "request: [{ policy: headers }]";
        let to = format!("to: [{{ targetRef: {{ kind: Service, name: {service} }}, {steps} }}]");
        format!("{GATEWAY}{}{}", policy("q", ORDERS, KEY), policy("p", "{ kind: Mesh }", &to))
    };
    check(&to("backend"), &[]);
    check(
        &to("bakend"),
        &["RoutePolicy `p`: spec.to[0].targetRef.name: unknown service `bakend`: did you mean `backend`?"],
    );
    check(&to("bakend, optional: true"), &[]);
    let timeout =
        "{ targetRef: { kind: Mesh }, to: [{ targetRef: { kind: Service, name: none }, connectTimeout: 1s }] }";
    check(&document("Timeout", "t", timeout), &["Timeout `t`: spec.to[0].targetRef.name: unknown service `none`"]);
}

const OPEN: &str = "[unguarded-route] Gateway `edge`: spec.routes[0].name: route `orders` has no authentication: add a step such \
                    as `apiKeyAuth` or `jwtValidation`, or say `public: { reason: … }`";
const NEARLY: &str = "[unguarded-route] Gateway `edge`: spec.routes[0].name: route `orders` has no authentication that every \
                      request must pass: add a step such as `apiKeyAuth` or `jwtValidation`, or say `public: { reason: … }`";

#[test]
fn a_route_without_authentication_is_a_warning_unless_it_is_public() {
    check(GATEWAY, &[OPEN]);
    check(&format!("{GATEWAY}{}", policy("p", ORDERS, "request: [{ policy: headers }]")), &[OPEN]);
    check(&format!("{GATEWAY}{}", policy("p", ORDERS, "response: [{ policy: securityHeaders }]")), &[OPEN]);
    check(&GATEWAY.replace("service: backend }", "service: backend, public: { reason: it is } }"), &[]);
    check(&format!("{GATEWAY}{}", policy("p", ORDERS, "public: { reason: it is }")), &[]);
    check(&format!("{GATEWAY}{}", policy("p", "{ kind: Mesh }", KEY)), &[]);
    let respond = "request: [{ policy: respond, params: { status: 404 } }]";
    check(&format!("{GATEWAY}{}", policy("p", ORDERS, respond)), &[]);
}

#[test]
fn a_route_of_envoys_own_is_warned_of_where_a_policy_names_it() {
    let limit = "request: [{ policy: rateLimit, params: { requests: 1, per: 1s } }]";
    check(
        &policy("p", ORDERS, limit),
        &[
            "[unguarded-route] RoutePolicy `p`: spec.targetRef.name: route `orders` has no authentication: add a step such as \
           `apiKeyAuth` or `jwtValidation`, or say `public: { reason: … }`",
        ],
    );
    check(&policy("p", ORDERS, &format!("{limit}, public: {{ reason: it is }}")), &[]);
}

#[test]
fn only_a_route_is_public_and_says_why() {
    let errors =
        |text: &str| read(&[File { name: "f".to_owned(), bytes: text.as_bytes().to_vec() }]).unwrap_err().to_string();
    assert!(errors(&policy("p", "{ kind: Mesh }", "public: { reason: a }")).contains("only a route can be public"));
    assert!(errors(&policy("p", ORDERS, "public: { reason: ' ' }")).contains("expected a reason"));
    assert!(errors(&policy("p", ORDERS, "public: {}")).contains("missing required field `reason`"));
    let route = GATEWAY.replace("service: backend }", "service: backend, public: { reason: '' } }");
    assert!(errors(&route).contains("spec.routes[0].public.reason: expected a reason"));
}

#[test]
fn the_settings_decide_what_an_unguarded_route_is() {
    let with =
        |unguarded: &str| format!("{GATEWAY}{}", document("Settings", "s", &format!("{{ unguarded: {unguarded} }}")));
    check(&with("warn"), &[OPEN]);
    check(&with("allow"), &[]);
    check(&with("deny"), &[OPEN.strip_prefix("[unguarded-route] ").unwrap()]);
}

/// Checks that a step which looks like authentication is reported as none, with the reason.
#[track_caller]
fn check_gap(steps: &str, why: &str) {
    let text = format!("{GATEWAY}{}", policy("p", ORDERS, steps));
    let gap = format!("[open-door] RoutePolicy `p`: {why}: it does not count as authentication of route `orders`");
    assert_eq!(said(&text), [NEARLY, gap.as_str()], "{steps}");
    let denied = format!("{text}{}", document("Settings", "s", "{ unguarded: deny }"));
    let mut expect = [gap.trim_start_matches("[open-door] "), NEARLY.trim_start_matches("[unguarded-route] ")];
    let mut found = said(&denied);
    expect.sort_unstable();
    found.sort();
    assert_eq!(found, expect, "{steps}");
}

#[test]
fn a_step_that_requests_can_avoid_is_no_authentication() {
    let key = |rest: &str| format!("request: [{{ policy: apiKeyAuth, params: {{ header: x-key }}, {rest} }}]");
    check_gap(&key("onFailure: continue"), "spec.request[0].onFailure: lets requests pass that it cannot decide");
    check_gap(&key("onFailure: skipRemaining"), "spec.request[0].onFailure: lets requests pass that it cannot decide");
    check_gap(
        &key("when: \"request.method != 'OPTIONS'\""),
        "spec.request[0].when: runs only where its condition is true: all other requests pass",
    );
    check_gap(&key("mode: shadow"), "spec.request[0].mode: is in shadow mode: it refuses nobody");
    check_gap(&format!("mode: shadow, {KEY}"), "spec.request[0].mode: is in shadow mode: it refuses nobody");
    check_gap(
        "request: [{ policy: jwtValidation, params: { allowMissing: true } }]",
        "spec.request[0].params.allowMissing: lets requests without a token pass",
    );
    check_gap(
        "request: [{ policy: apiKeyAuth, params: { header: x-key, required: false } }]",
        "spec.request[0].params.required: lets requests without a key pass",
    );
    check_gap(
        "request: [{ policy: trafficPermission, params: { rules: [{ from: { services: [web] }, action: DENY }, \
         { from: { anyone: true }, action: ALLOW }] } }]",
        "spec.request[0].params.rules: admits callers without a certificate",
    );
    check_gap(
        &format!("from: [{{ targetRef: {{ kind: Service, name: backend }}, {KEY} }}]"),
        "spec.from[0].request[0]: is for some sources only: all others pass",
    );
    check_gap(
        &format!(
            "{KEY}, from: [{{ targetRef: {{ kind: Service, name: backend }}, request: [{{ policy: headers, name: apiKeyAuth }}] }}]"
        ),
        "spec.from[0].request[0].policy: takes the place of an authentication step, and is none",
    );
    check_gap(
        "request: [{ policy: rateLimit, params: { requests: 1, per: 1s }, onFailure: skipRemaining }, \
         { policy: apiKeyAuth, params: { header: x-key } }]",
        "spec.request[0].onFailure: leaves out the steps behind it when it cannot decide, and with them the authentication",
    );
}

#[test]
fn a_second_guard_or_a_condition_that_always_holds_is_enough() {
    let silent = |steps: &str| check(&format!("{GATEWAY}{}", policy("p", ORDERS, steps)), &[]);
    silent("request: [{ policy: apiKeyAuth, params: { header: x-key }, when: 'true' }]");
    silent(
        "request: [{ policy: jwtValidation, params: { allowMissing: true } }, { policy: roleCheck, params: { groups: [a] } }]",
    );
    silent(
        "request: [{ policy: apiKeyAuth, params: { header: x-key } }, { policy: rateLimit, params: { requests: 1, per: 1s }, \
            onFailure: skipRemaining }]",
    );
    silent(&format!(
        "{KEY}, from: [{{ targetRef: {{ kind: Service, name: backend }}, request: [{{ policy: apiKeyAuth, params: {{ query: k }} }}] }}]"
    ));
    silent("request: [{ policy: trafficPermission, params: { rules: [{ from: { mesh: true }, action: ALLOW }] } }]");
}

#[test]
fn a_permission_guards_even_where_all_policies_are_in_shadow() {
    let permission = "{ targetRef: { kind: Mesh }, from: [{ targetRef: { kind: Mesh }, action: ALLOW }] }";
    let shadow = policy("p", ORDERS, &format!("mode: shadow, {KEY}"));
    let text = format!("{GATEWAY}{}{shadow}", document("TrafficPermission", "t", permission));
    check(&text, &[]);
    let (bundle, node) = (bundle(&text), NodeIdentity::default());
    let scope = Scope::of(&bundle, &node);
    let attachment = attach(&scope);
    let chain = &attachment.chains[attachment.routes["orders"]];
    assert!(!chain.shadow && !chain.permissions.is_empty(), "the permission is enforced, the step is not");
    assert!(chain.request[0].step.mode.is_some());
}

#[test]
fn a_guard_on_some_nodes_only_is_said_so() {
    let text = format!("{GATEWAY}{}", policy("p", "{ kind: Service, name: edge }", KEY));
    let found = said(&text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("route `orders` has no authentication on nodes that no target selects"), "{found:?}");
}

#[test]
fn targets_by_nodes_are_warned_of_until_one_has_come() {
    let text = format!("{GATEWAY}{}{}", policy("p", "{ kind: Service, name: edge }", KEY), policy("q", ORDERS, KEY));
    let waiting = |text: &str, nodes: &[NodeIdentity]| -> Vec<String> {
        Waiting::of(&bundle(text)).findings(nodes).iter().map(|found| found.at.message.clone()).collect()
    };
    assert_eq!(waiting(&text, &[]), ["no node of Service `edge` has connected yet"]);
    let node =
        |service: &str| NodeIdentity { id: "n".to_owned(), service: service.to_owned(), ..NodeIdentity::default() };
    assert_eq!(waiting(&text, &[node("other")]).len(), 1);
    assert!(waiting(&text, &[node("other"), node("edge")]).is_empty());
    assert!(waiting(&text.replace("name: edge }, req", "name: edge, optional: true }, req"), &[]).is_empty());
    let overlay = policy("p", ORDERS, KEY);
    assert!(waiting(&overlay, &[])[0].contains("nothing declares route `orders`"));
    assert!(waiting(&overlay, &[node("any")]).is_empty());
    let source = document(
        "TrafficPermission",
        "t",
        "{ targetRef: { kind: Mesh }, from: [{ targetRef: { kind: Service, name: wbe }, action: DENY }] }",
    );
    assert!(waiting(&source, &[node("web")])[0].contains("there is no Service `wbe`"));
    assert!(waiting(&source, &[node("wbe")]).is_empty());
}

/// Merges a step of a mesh with that of a route.
fn merged(mesh: &str, route: &str) -> (serde_json::Value, Vec<(String, usize)>) {
    let text = format!(
        "{GATEWAY}{}{}",
        policy("mesh", "{ kind: Mesh }", &format!("request: [{{ name: auth, policy: {mesh} }}]")),
        policy("route", ORDERS, &format!("request: [{{ name: auth, policy: {route} }}]"))
    );
    let (bundle, node) = (bundle(&text), NodeIdentity::default());
    let scope = Scope::of(&bundle, &node);
    let attachment = attach(&scope);
    let step = &attachment.chains[attachment.routes["orders"]].request[0];
    let withheld = step.withheld.iter().map(|held| (held.field.clone(), held.part)).collect();
    let mut value = serde_json::to_value(&*step.step).unwrap();
    value
        .as_object_mut()
        .unwrap()
        .retain(|name, value| !value.is_null() && !["name", "policy"].contains(&name.as_str()));
    (value, withheld)
}

#[test]
fn no_merge_opens_a_step() {
    use serde_json::json;
    let mesh =
        "apiKeyAuth, params: { header: x-key }, when: \"request.method == 'POST'\", onFailure: continue, mode: shadow";
    let held = |fields: &[&str]| fields.iter().map(|field| ((*field).to_owned(), 1)).collect::<Vec<_>>();
    let (step, withheld) = merged(mesh, "apiKeyAuth");
    assert_eq!((step, withheld), (json!({"params": {"header": "x-key"}}), held(&["when", "onFailure", "mode"])));
    let (step, withheld) = merged(mesh, "apiKeyAuth, inherit: [when]");
    let expect = json!({"params": {"header": "x-key"}, "when": "request.method == 'POST'"});
    assert_eq!((step, withheld), (expect, held(&["onFailure", "mode"])));
    let (step, withheld) = merged("jwtValidation, params: { allowMissing: true, realm: a }", "jwtValidation");
    assert_eq!((step, withheld), (json!({"params": {"realm": "a"}}), held(&["params.allowMissing"])));
}

#[test]
fn what_is_more_specific_does_not_open_an_override() {
    let text = format!(
        "{GATEWAY}{}{}",
        policy("mesh", "{ kind: Mesh }", &format!("override: true, {KEY}")),
        policy("route", ORDERS, "request: [{ policy: apiKeyAuth, when: 'false', mode: shadow, onFailure: continue }]")
    );
    assert!(said(&text).iter().all(|line| !line.contains("authentication")), "{:?}", said(&text));
}

#[track_caller]
fn check_lost(before: &str, after: &str, expect: &[&str]) {
    assert_eq!(lost_guards(&bundle(before), &bundle(after), &[]), expect, "{after}");
}

#[test]
fn a_change_that_removes_the_last_guard_of_a_route_is_seen() {
    let guarded = format!("{GATEWAY}{}", policy("p", ORDERS, KEY));
    check_lost(&guarded, &guarded, &[]);
    check_lost(&guarded, GATEWAY, &["`orders`"]);
    check_lost(&guarded, &format!("{GATEWAY}{}", policy("p", ORDERS, &format!("mode: shadow, {KEY}"))), &["`orders`"]);
    check_lost(&guarded, &guarded.replace("header: x-key }", "header: x-key }, onFailure: continue"), &["`orders`"]);
    let basic = "request: [{ policy: basicAuth }]";
    check_lost(&guarded, &format!("{GATEWAY}{}", policy("p", ORDERS, basic)), &[]);
    check_lost(&guarded, &format!("{GATEWAY}{}", policy("p", "{ kind: Service, name: edge }", KEY)), &["`orders`"]);
    // The route is gone, and so is the way to its service; or it is there under another name.
    let renamed = GATEWAY.replace("name: orders", "name: sales");
    check_lost(&guarded, &renamed, &["`orders`"]);
    check_lost(&guarded, &renamed.replace("prefix: /orders", "prefix: /sales"), &[]);
    // A route that is declared public is not reported.
    check_lost(&guarded, &format!("{GATEWAY}{}", policy("p", ORDERS, "public: { reason: it is }")), &[]);
    check_lost(GATEWAY, GATEWAY, &[]);
}

#[test]
fn a_route_of_envoys_own_is_there_still_when_nobody_names_it() {
    let guarded = policy("p", ORDERS, KEY);
    let other = policy("q", "{ kind: HTTPRoute, name: users }", KEY);
    check_lost(&format!("{guarded}{other}"), &other, &["`orders`"]);
    check_lost(&guarded, &policy("p", "{ kind: HTTPRoute, name: order }", KEY), &["`orders`"]);
    check_lost(&guarded, &policy("p", "{ kind: Mesh }", KEY), &[]);
    let mesh = policy("p", "{ kind: Mesh }", KEY);
    check_lost(&mesh, &other, &["every route that no policy names"]);
}

/// Two services behind one route, by weight, and what is said of them.
fn weighted(weight: u32, resources: &str) -> String {
    let endpoints = "{ endpoints: [{ address: 127.0.0.1, port: 9000 }] }";
    let services = "public: { reason: a test }, services: [{ service: one }, { service: two, weight: WEIGHT }] }";
    let gateway = GATEWAY.replace("service: backend }", &services.replace("WEIGHT", &weight.to_string()));
    format!("{gateway}{}{}{resources}", document("Service", "one", endpoints), document("Service", "two", endpoints))
}

#[test]
fn what_envoy_has_once_for_a_route_is_the_same_for_all_of_its_services() {
    let to = |service: &str, conf: &str| format!("{{ targetRef: {{ kind: Service, name: {service} }}, {conf} }}");
    let attached = |kind: &str, entries: &[String]| {
        document(kind, "p", &format!("{{ targetRef: {{ kind: Mesh }}, to: [{}] }}", entries.join(", ")))
    };
    let timeout = |service: &str, time: &str| to(service, &format!("http: {{ requestTimeout: {time} }}"));
    let one = attached("Timeout", &[timeout("one", "1s")]);
    let message = "Timeout `p`: spec.to[0].http.requestTimeout: Envoy has one for all services of route `orders`, and there \
                   would be `1s` for `one` and none for `two`";
    check(&weighted(1, &one), &[message]);
    // A service without requests has no say.
    check(&weighted(0, &one), &[]);
    let both = |time: &str| weighted(1, &attached("Timeout", &[timeout("one", "1s"), timeout("two", time)]));
    check(&both("1s"), &[]);
    let message = "Timeout `p`: spec.to[1].http.requestTimeout: Envoy has one for all services of route `orders`, and there \
                   would be `1s` for `one` and `2s` for `two`";
    check(&both("2s"), &[message]);
    // Connections belong to services.
    check(&weighted(1, &attached("Timeout", &[to("one", "connectTimeout: 1s")])), &[]);

    let retry = attached("Retry", &[to("two", "retryOn: [reset]")]);
    let message = "Retry `p`: spec.to[0].retryOn: Envoy has one for all services of route `orders`, and there would be none \
                   for `one` and `[\"reset\"]` for `two`";
    check(&weighted(1, &retry), &[message]);
    let own = weighted(1, &retry).replace("services: [{", "retries: { on: [reset] }, services: [{");
    check(&own, &[]);
    check(
        &own.replace("spec: { targetRef: { kind: Mesh }, to", "spec: { override: true, targetRef: { kind: Mesh }, to"),
        &[message],
    );
}

#[test]
fn merged_fields_that_contradict_each_other_are_an_error_where_the_later_one_stands() {
    let retry = |name: &str, conf: &str| {
        document(
            "Retry",
            name,
            &format!("{{ targetRef: {{ kind: Mesh }}, to: [{{ targetRef: {{ kind: Mesh }}, {conf} }}] }}"),
        )
    };
    let site = GATEWAY.replace("service: backend }", "public: { reason: a test }, service: backend }");
    let limit = retry("limit", "backOff: { maxInterval: 20ms }");
    check(
        &format!("{site}{limit}"),
        &["Retry `limit`: spec.to[0].backOff.maxInterval: expected at least the base interval of `25ms`"],
    );
    check(&format!("{site}{limit}{}", retry("base", "backOff: { baseInterval: 5ms }")), &[]);
    check(
        &format!("{site}{limit}{}", retry("base", "backOff: { baseInterval: 1s }")),
        &["Retry `limit`: spec.to[0].backOff.maxInterval: expected at least the base interval of `1s`"],
    );
    let check_of =
        document("HealthCheck", "p", "{ targetRef: { kind: Mesh }, to: [{ targetRef: { kind: Mesh }, grpc: {} }] }");
    check(
        &format!("{site}{check_of}"),
        &[
            "HealthCheck `p`: spec.to[0].grpc: Service `backend` speaks HTTP/1.1: gRPC needs `protocol: grpc` or `http2`",
        ],
    );
    check(&format!("{}{check_of}", site.replace("{ endpoints:", "{ protocol: grpc, endpoints:")), &[]);
}

#[test]
fn calls_of_services_that_nobody_declares_are_errors() {
    let site = GATEWAY.replace("service: backend }", "public: { reason: a test }, service: backend }");
    for (kind, conf) in [
        ("Timeout", "connectTimeout: 1s"),
        ("CircuitBreaker", "connectionLimits: { maxRequests: 1 }"),
        ("Retry", "numRetries: 1"),
        ("HealthCheck", "tcp: {}"),
    ] {
        let spec = format!(
            "{{ targetRef: {{ kind: Mesh }}, to: [{{ targetRef: {{ kind: Service, name: bakend }}, {conf} }}] }}"
        );
        let message =
            format!("{kind} `p`: spec.to[0].targetRef.name: unknown service `bakend`: did you mean `backend`?");
        check(&format!("{site}{}", document(kind, "p", &spec)), &[&message]);
    }
    let tracing = |collector: &str| {
        let spec = format!("{{ targetRef: {{ kind: Mesh }}, collector: {collector} }}");
        format!("{site}{}", document("Tracing", "p", &spec))
    };
    let place = "Tracing `p`: spec.collector";
    let unknown = format!("{place}.http.service: unknown service `bakend`: did you mean `backend`?");
    check(&tracing("{ http: { service: bakend } }"), &[&unknown]);
    let protocol =
        format!("{place}.grpc.service: Service `backend` speaks HTTP/1.1: gRPC needs `protocol: grpc` or `http2`");
    check(&tracing("{ grpc: { service: backend } }"), &[&protocol]);
    check(&tracing("{ http: { service: backend } }"), &[]);
}

#[test]
fn an_access_log_by_source_warns_where_no_caller_has_a_certificate() {
    let site = GATEWAY.replace("service: backend }", "public: { reason: a test }, service: backend }");
    let log = |source: &str| {
        let spec = format!("{{ targetRef: {{ kind: Mesh }}, from: [{{ targetRef: {source}, backends: [] }}] }}");
        document("AccessLog", "p", &spec)
    };
    let by_service = log("{ kind: Service, name: backend }");
    check(
        &format!("{site}{by_service}"),
        &[
            "[logs-nothing] AccessLog `p`: spec.from[0].targetRef: logs nothing: no listener asks callers for a certificate \
           (`tls.clientCa`), so no source is known",
        ],
    );
    check(&format!("{site}{}", log("{ kind: Mesh }")), &[]);
    // Nothing is known of listeners that are an Envoy's own.
    let service = document("Service", "backend", "{ endpoints: [{ address: 127.0.0.1, port: 9000 }] }");
    check(&format!("{service}{by_service}"), &[]);
}
