use postern_model::File;
use postern_release::store::split;

use super::*;

fn document(kind: &str, name: &str, spec: &str) -> String {
    format!("---\napiVersion: postern/v1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {spec}\n")
}

fn gateway(routes: &str) -> String {
    let service = document("Service", "a", "{ endpoints: [{ address: 127.0.0.1, port: 9000 }] }");
    service
        + &document("Gateway", "edge", &format!("{{ listeners: [{{ name: http, port: 80 }}], routes: [{routes}] }}"))
}

fn policy(name: &str, target: &str, steps: &str) -> String {
    document("RoutePolicy", name, &format!("{{ targetRef: {target}, request: [{steps}] }}"))
}

fn node(id: &str, service: &str) -> NodeIdentity {
    NodeIdentity { id: id.to_owned(), service: service.to_owned(), ..NodeIdentity::default() }
}

fn differ(before: &str, after: &str, live: &[NodeIdentity]) -> Difference {
    let read = |text: &str| {
        let files = [File { name: "r.yaml".to_owned(), bytes: text.as_bytes().to_vec() }];
        (postern_model::read(&files).unwrap_or_else(|errors| panic!("{errors}")), Catalogue::of(&split(&files)))
    };
    let (was, is) = (read(before), read(after));
    let side = |(bundle, catalogue), revision| Side { revision, bundle, catalogue };
    compare(side((&was.0, &was.1), Some(1)), side((&is.0, &is.1), None), live)
}

/// The text without colours, as in a pipe.
fn shown(difference: &Difference) -> String {
    anstream::adapter::strip_str(&difference.to_string()).to_string()
}

#[track_caller]
fn check(before: &str, after: &str, live: &[NodeIdentity], expect: &str) {
    assert_eq!(shown(&differ(before, after, live)), expect);
}

const USERS: &str = "{ name: users, match: { path: { prefix: /users } }, service: a }";
const ROUTE: &str = "{ kind: HTTPRoute, name: users }";

#[test]
fn finds_no_difference_in_another_way_of_writing() {
    let (before, after) = (gateway(USERS), format!("# a comment\n{}", gateway(USERS)));
    assert!(differ(&before, &after, &[node("e", "")]).is_empty());
    check(&before, &after, &[], "no difference\n");
}

#[test]
fn says_which_field_of_which_step_changes_on_which_node() {
    let limit = |requests: u32| {
        policy("p", ROUTE, &format!("{{ policy: rateLimit, params: {{ requests: {requests}, per: 1s }} }}"))
    };
    let expect = "resources\n  ~ RoutePolicy/p  r.yaml:12\n      spec.request[0].params.requests: 10 → 20\n\n\
                  routes\n  ~ users  on e\n      ~ request rateLimit\n          params.requests: 10 → 20\n\n\
                  nodes\n  1 of 1 get something else: e\n";
    check(&(gateway(USERS) + &limit(10)), &(gateway(USERS) + &limit(20)), &[node("e", "edge")], expect);
}

#[test]
fn leaves_out_nodes_that_a_policy_does_not_select() {
    let web = |value: &str| {
        policy(
            "p",
            "{ kind: Service, name: web }",
            &format!("{{ policy: headers, params: {{ set: {{ x-a: {value} }} }} }}"),
        )
    };
    let live = [node("e", "edge"), node("w", "web")];
    let difference = differ(&(gateway(USERS) + &web("b")), &(gateway(USERS) + &web("c")), &live);
    let nodes: Vec<_> = difference.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!((nodes, difference.live_nodes), (vec!["w"], 2));
    assert!(difference.routes.iter().all(|route| route.nodes == ["w"]), "{difference:?}");
}

#[test]
fn shows_routes_and_steps_that_come_go_and_move() {
    let before = gateway(USERS) + &policy("p", ROUTE, "{ policy: requestId }, { policy: securityHeaders, name: s }, { policy: headers, params: { set: { x-a: b } } }")
        .replace("{ policy: securityHeaders, name: s }, ", "");
    let after = gateway(&format!("{USERS}, {{ name: orders, match: {{ path: {{ prefix: /orders }} }}, service: a }}"))
        + &policy(
            "p",
            ROUTE,
            "{ policy: headers, params: { set: { x-a: b } } }, { policy: requestId }, { policy: cors, params: { allowOrigins: ['https://a.example'] } }",
        );
    let difference = differ(&before, &after, &[]);
    let steps: Vec<_> = difference
        .routes
        .iter()
        .flat_map(|route| &route.what.steps)
        .map(|step| (step.step.as_str(), step.change))
        .collect();
    assert_eq!(steps, [("headers", Change::Moved), ("requestId", Change::Moved), ("cors", Change::Added)]);
    let routes: Vec<_> = difference.routes.iter().map(|route| (route.route.as_str(), route.what.change)).collect();
    assert_eq!(routes, [("orders", Change::Added), ("users", Change::Changed)]);
    assert!(shown(&difference).ends_with("nodes\n  none is connected\n"));
}

#[test]
fn shows_that_a_credential_changed_but_not_which() {
    let consumer = |key: &str| document("Consumer", "c", &format!("{{ apiKeys: [{{ key: {key} }}] }}"));
    let difference = differ(&consumer("old-secret"), &consumer("new-secret"), &[]);
    let text = shown(&difference) + &serde_json::to_string(&difference).unwrap();
    assert!(text.contains("spec.apiKeys[0].key: (hidden), another than before"), "{text}");
    assert!(!text.contains("old-secret") && !text.contains("new-secret"), "{text}");
}

#[test]
fn shows_that_a_changed_tag_renames_the_host_of_an_outbound_route() {
    let site = |version: &str| {
        let endpoint =
            format!("{{ endpoints: [{{ address: 127.0.0.1, port: 9000, tags: {{ version: {version} }} }}] }}");
        let names =
            "{ targetRef: { kind: Mesh }, to: [{ targetRef: { kind: Mesh }, host: '{tags.version}.{service}' }] }";
        document("Service", "a", &endpoint) + &document("VirtualOutbound", "names", names)
    };
    let difference = differ(&site("v1"), &site("v2"), &[node("e", "edge")]);
    let routes: Vec<_> = difference.routes.iter().map(|route| (route.route.as_str(), route.what.change)).collect();
    assert_eq!(routes, [("outbound:a", Change::Changed)]);
    let text = shown(&difference);
    assert!(text.contains("hosts: [\"v1.a\"] → [\"v2.a\"]"), "{text}");
}
