//! A start with a directory that is not valid (docs/rules.md, 4.2): nothing that a mistake may leave unguarded is let
//! through, everything else is served, and a restart takes the revision for no more than it is.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{sync::Arc, time::UNIX_EPOCH};

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::{keys::KeySets, pipeline::CompileError, revision::revision, snapshot::FilterCode};
use postern_model::{Bundle, Diagnostic, File};
use postern_proto::plan::v1::Plan;
use postern_release::{
    condition::{ConditionType, Truth},
    publication::{Audience, Publication},
    releases::{Admission, Applied, ApplyError, KEPT, Proposal, Releases, salvage},
    rollout::Strategy,
    store::{Draft, Memory, Parent, Store},
};
use prost::Message as _;

struct OwnAdmission(FilterCode);

impl Admission for OwnAdmission {
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError> {
        Publication::admit(bundle.clone(), KeySets::default(), &self.0, &[], None)
    }

    fn digest(&self, bundle: &Bundle) -> Digest {
        revision(bundle, &KeySets::default(), self.0.digest())
    }
}

fn admission() -> OwnAdmission {
    OwnAdmission(FilterCode::new(b"code".to_vec(), None))
}

const SITE: &str = "apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: users, match: { path: { prefix: /users } }, service: backend }
    - { name: orders, match: { path: { prefix: /orders } }, service: other }
    - { name: welcome, service: backend }
---
apiVersion: postern/v1
kind: Service
metadata: { name: backend }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
---
apiVersion: postern/v1
kind: Service
metadata: { name: other }
spec: { endpoints: [{ address: 127.0.0.1, port: 9001 }] }
---
apiVersion: postern/v1
kind: Consumer
metadata: { name: alice }
spec: { apiKeys: [{ key: alice-key }] }
---
apiVersion: postern/v1
kind: Consumer
metadata: { name: bob }
spec: { apiKeys: [{ key: bob-key }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: users-api }
spec:
  targetRef: { kind: HTTPRoute, name: users }
  request: [{ policy: apiKeyAuth, params: { header: x-key } }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: orders-api }
spec:
  targetRef: { kind: HTTPRoute, name: orders }
  request: [{ policy: apiKeyAuth, params: { header: x-key } }]
---
apiVersion: postern/v1
kind: Settings
metadata: { name: all }
spec: { policyNotSupported: { body: sorry } }
";

/// The rest of a resource in one line, to be appended.
fn document(kind: &str, name: &str, spec: &str) -> String {
    format!("---\napiVersion: postern/v1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {spec}\n")
}

fn proposal(text: &str) -> Proposal {
    let files = vec![File { name: "site.yaml".to_owned(), bytes: text.as_bytes().to_vec() }];
    let (author, message) = ("directory".to_owned(), String::new());
    Proposal {
        files,
        author,
        message,
        parent: Parent::Latest,
        again: false,
        allow_unguarded: false,
        ..Proposal::default()
    }
}

fn releases(store: Arc<dyn Store>) -> Releases {
    Releases::new(store, Strategy::AllAtOnce, KEPT)
}

/// Starts with a directory, and returns its releases and errors.
fn start_on(store: Arc<dyn Store>, text: &str, unread: Vec<Diagnostic>) -> (Releases, String) {
    let mut releases = releases(store);
    let salvaged = salvage(proposal(text), unread, &releases.ground(), &admission()).unwrap();
    let problems = salvaged.problems().map(ToString::to_string).unwrap_or_default();
    releases.take_salvaged(salvaged, UNIX_EPOCH).unwrap();
    (releases, problems)
}

fn start(text: &str) -> (Releases, String) {
    start_on(Arc::new(Memory::default()), text, Vec::new())
}

/// What becomes of requests on a route.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// They pass.
    Open,
    /// A chain decides.
    Decided,
    /// They are refused.
    Refused,
}
use Fate::{Decided, Open, Refused};

fn plan(releases: &Releases, mesh: &str) -> Plan {
    let node = NodeIdentity { mesh: mesh.to_owned(), ..NodeIdentity::default() };
    Plan::decode(releases.publication().unwrap().snapshot_for(&node).plan().bytes()).unwrap()
}

fn fate(plan: &Plan, route: &str) -> Fate {
    let index = |index: u32| usize::try_from(index).unwrap();
    let named = plan.routes.iter().find(|found| plan.strings[index(found.name)] == route).map(|found| found.chain);
    let Some(chain) = named.or(plan.default_chain.checked_sub(1)) else { return Open };
    let request = plan.chains[index(chain)].request.as_ref();
    if request.is_some_and(|request| !request.unsupported.is_empty()) { Refused } else { Decided }
}

/// Checks the fates of `users`, `orders` and `welcome`, and that every part of `says` is among the errors.
#[track_caller]
fn check(text: &str, expect: [Fate; 3], says: &[&str]) -> Releases {
    let (releases, problems) = start(text);
    let plan = plan(&releases, "default");
    assert_eq!(["users", "orders", "welcome"].map(|route| fate(&plan, route)), expect, "{problems}");
    for part in says {
        assert!(problems.contains(part), "`{part}` is not in:\n{problems}");
    }
    releases
}

const ALL: [Fate; 3] = [Refused, Refused, Refused];

/// The site with one place changed.
fn with(from: &str, to: &str) -> String {
    assert!(SITE.contains(from), "{from}");
    SITE.replacen(from, to, 1)
}

#[test]
fn serves_what_is_valid_as_it_is() {
    check(SITE, [Decided, Decided, Open], &[]);
}

#[test]
fn refuses_the_target_of_a_policy_with_a_mistake_and_serves_the_rest() {
    let expect = || [Refused, Decided, Open];
    check(
        &with("apiKeyAuth", "apiKeyAuht"),
        expect(),
        &["site.yaml:", "RoutePolicy `users-api`", "did you mean `apiKeyAuth`"],
    );
    check(&with("header: x-key", "headr: x-key"), expect(), &["unknown field `headr`"]);
    check(&with("name: users-api", "name: users api"), expect(), &["expected a name"]);
    // Even if it was to be in shadow mode, or for some sources only.
    let shadow = "mode: shadow\n  request: [{ policy: nothing }]";
    check(&with("request: [{ policy: apiKeyAuth, params: { header: x-key } }]", shadow), expect(), &["unknown policy"]);
    // A type error in a condition is found by lowering only.
    let when = "policy: apiKeyAuth, when: 'request.method + 1 == 2'";
    check(&with("policy: apiKeyAuth", when), expect(), &["spec.request[0].when"]);
}

#[test]
fn refuses_everything_for_a_policy_whose_target_is_not_clear() {
    check(&with("name: users }\n  request", "name: userss }\n  request"), ALL, &["unknown route `userss`"]);
    check(&with("kind: HTTPRoute, name: users", "kind: HTTPRout, name: users"), ALL, &["spec.targetRef.kind"]);
    check(&with("targetRef: { kind: HTTPRoute, name: users }", "targetReff: {}"), ALL, &["targetReff"]);
    check(&with("kind: HTTPRoute, name: users", "kind: HTTPRoute, nam: users"), ALL, &["`nam`"]);
}

#[test]
fn refuses_everything_for_a_policy_that_says_which_requests_take_its_route() {
    // Without its `match`, an Envoy with routes of its own would send these requests past the refusal.
    let guard = "targetRef: { kind: HTTPRoute, name: users }\n  request: [{ policy: apiKeyAuth";
    let matching = "targetRef: { kind: HTTPRoute, name: users }\n  match: { path: { prefix: /users } }\n  request: [{ \
                    policy: apiKeyAuht";
    check(&with(guard, matching), ALL, &["apiKeyAuht"]);
}

#[test]
fn refuses_everything_for_a_policy_with_a_mistake_whose_route_nobody_declares() {
    let guard = "name: users }\n  request: [{ policy: apiKeyAuth";
    check(&with(guard, "name: userss }\n  request: [{ policy: apiKeyAuht"), ALL, &["apiKeyAuht"]);
}

/// The policies and consumers of the site, for an Envoy with routes of its own.
fn overlay(from: &str, to: &str) -> String {
    let site = with(from, to);
    let parts = site.split("---\n").filter(|part| !part.contains("kind: Gateway") && !part.contains("kind: Service"));
    parts.collect::<Vec<_>>().join("---\n")
}

#[test]
fn refuses_everything_for_a_policy_whose_match_may_be_misspelt() {
    let target = "targetRef: { kind: HTTPRoute, name: users }";
    for odd in ["matches: { path: { prefix: /users } }", "macth: {}", "path: /users"] {
        check(&overlay(target, &format!("{target}\n  {odd}")), ALL, &["unknown field"]);
    }
    let within = "request: [{ match: { path: { prefix: /users } }, policy: apiKeyAuth";
    check(&overlay("request: [{ policy: apiKeyAuth", within), ALL, &["unknown field `match`"]);
    // Where the Envoy alone knows the names of its routes, a name is believed.
    check(&overlay("policy: apiKeyAuth", "policy: apiKeyAuht"), [Refused, Decided, Open], &["apiKeyAuht"]);
}

#[test]
fn serves_no_listener_in_envoys_format_beside_one_that_is_wrong() {
    let spec = "{ resource: { '@type': type.googleapis.com/envoy.config.listener.v3.Listener, name: legacy, address: { \
                socket_address: { address: 127.0.0.1, port_value: 9999 } } } }";
    let served = |releases: &Releases| releases.bundle(1).unwrap().envoy_resources.len();
    let text = format!("{SITE}{}", document("EnvoyResource", "legacy", spec));
    assert_eq!(served(&check(&text, [Decided, Decided, Open], &[])), 1);
    // It was to replace the other for some nodes, or to take it away.
    for wrong in
        [spec.replace("{ resource", "{ omitt: true, resource"), "{ resource: { '@type': nothing } }".to_owned()]
    {
        let text = format!("{text}{}", document("EnvoyResource", "edge", &wrong));
        assert_eq!(served(&check(&text, ALL, &["EnvoyResource `edge`"])), 0, "{wrong}");
    }
    let text = format!("{text}---\nkind: {{\n");
    assert_eq!(served(&check(&text, ALL, &["not valid YAML"])), 0);
}

#[test]
fn goes_back_to_nothing_that_is_not_complete() {
    let store = Memory::default();
    let revision = |digest: &str| Draft {
        digest: digest.to_owned(),
        author: String::new(),
        message: String::new(),
        at: UNIX_EPOCH,
        documents: Vec::new().into(),
    };
    store.append(revision("incomplete-0"), Parent::Latest).unwrap();
    store.append(revision("0"), Parent::Latest).unwrap();
    let back = |number| Proposal::to_go_back(&store, number, String::new(), Parent::Latest);
    assert!(back(1).unwrap_err().to_string().contains("revision 1 is not complete"));
    assert!(back(2).is_ok());
}

#[test]
fn refuses_everything_for_what_is_no_resource_at_all() {
    check(&with("kind: RoutePolicy", "kind: RoutePolice"), ALL, &["did you mean `RoutePolicy`"]);
    check(&with("request: [{ policy: apiKeyAuth", "request: [{{ policy: apiKeyAuth"), ALL, &["not valid YAML"]);
    // The document behind a broken one is still served.
    let released = check(&with("kind: Consumer\n", "kind: {\n"), ALL, &["not valid YAML"]);
    let policies: Vec<_> =
        released.bundle(1).unwrap().route_policies.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(policies, ["orders-api", "postern-refusal", "users-api"]);
    check(
        &with("apiVersion: postern/v1\nkind: RoutePolicy", "apiVersion: postern/v2\nkind: RoutePolicy"),
        ALL,
        &["postern/v2"],
    );
    let mesh = "kind: RoutePolicy\nmetadata: { meshh: other, name: users-api }";
    check(&with("kind: RoutePolicy\nmetadata: { name: users-api }", mesh), ALL, &["`meshh`"]);
    check("# nothing\n", ALL, &["no resources"]);
    check("", ALL, &["no resources"]);
}

#[test]
fn refuses_everything_in_its_mesh_for_a_kind_that_may_guard_anything() {
    for (kind, spec, says) in [
        (
            "TrafficPermission",
            "{ targetRef: { kind: Mesh }, from: [{ targetRef: { kind: Mesh }, action: ALOW }] }",
            "ALOW",
        ),
        ("EnvoyResource", "{ resource: { '@type': nothing } }", "EnvoyResource `x`"),
        ("Agent", "{ adress: nowhere }", "adress"),
    ] {
        let text = format!("{SITE}{}", document(kind, "x", spec));
        check(&text, ALL, &[says]);
        // In another mesh, it guards nothing here.
        let text = text.replace("name: x }", "name: x, mesh: other }");
        let (releases, _) = start(&text);
        assert_eq!(fate(&plan(&releases, "default"), "users"), Decided, "{kind}");
        assert_eq!(fate(&plan(&releases, "other"), "users"), Refused, "{kind}");
        // A mesh that is not known is refused, too, for it is in no resource.
    }
    check(&with("body: sorry", "bdy: sorry"), ALL, &["bdy"]);
}

#[test]
fn refuses_the_target_of_a_permission_alone() {
    let spec = "{ targetRef: { kind: HTTPRoute, name: welcome }, from: [{ targetRef: { kind: Mesh }, action: ALOW }] }";
    check(&format!("{SITE}{}", document("TrafficPermission", "x", spec)), [Decided, Decided, Refused], &["ALOW"]);
}

#[test]
fn leaves_out_who_could_come_in_and_refuses_what_needs_them() {
    // One consumer less is one who may come in less.
    let releases = check(&with("key: bob-key", "kye: bob-key"), [Decided, Decided, Open], &["Consumer `bob`"]);
    let plan = plan(&releases, "default");
    assert_eq!(plan.consumers.len(), 1);
    // An issuer that is not there makes the policy that names it invalid.
    let issuer = document("Issuer", "accounts", "{ isuer: https://example.com }");
    let jwt =
        with("policy: apiKeyAuth, params: { header: x-key }", "policy: jwtValidation, params: { issuers: [accounts] }");
    check(&format!("{jwt}{issuer}"), [Refused, Decided, Open], &["isuer", "RoutePolicy `users-api`"]);
}

#[test]
fn serves_a_gateway_although_a_service_is_wrong() {
    let releases = check(&with("port: 9001", "prot: 9001"), [Decided, Decided, Open], &["Service `other`"]);
    let bundle = releases.bundle(1).unwrap();
    let endpoints: Vec<_> =
        bundle.services.iter().map(|service| (service.name.as_str(), service.spec.endpoints.len())).collect();
    assert_eq!((bundle.gateways.len(), endpoints), (1, vec![("backend", 1), ("other", 0)]));
}

#[test]
fn serves_no_gateway_that_is_wrong_and_needs_no_targets_in_it() {
    let second = document(
        "Gateway",
        "inner",
        "{ listeners: [{ name: x, port: 8081 }], routes: [{ name: inner, service: backend }] }",
    );
    let guard = document(
        "RoutePolicy",
        "inner-api",
        "{ targetRef: { kind: HTTPRoute, name: inner }, request: [{ policy: requestId }] }",
    );
    let text = format!("{SITE}{}{guard}", second.replace("service: backend", "servce: backend"));
    let releases = check(&text, [Decided, Decided, Open], &["Gateway `inner`", "unknown route `inner`"]);
    assert_eq!(releases.bundle(1).unwrap().gateways.len(), 1);
    assert_eq!(fate(&plan(&releases, "default"), "inner"), Refused);
}

#[test]
fn refuses_routes_that_must_not_be_without_authentication() {
    let strict = with("policyNotSupported: { body: sorry }", "unguarded: deny");
    check(&strict, [Decided, Decided, Refused], &["route `welcome` has no authentication"]);
    let open = strict.replacen("{ header: x-key }", "{ header: x-key, required: false }", 1);
    check(&open, [Refused, Decided, Refused], &["route `users` has no authentication"]);
}

#[test]
fn refuses_everything_while_a_file_cannot_be_read() {
    let unread = Diagnostic { message: "empty".to_owned(), ..Diagnostic::default() };
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let (releases, problems) = start_on(Arc::clone(&store), SITE, vec![unread]);
    assert!(problems.contains("empty"));
    assert_eq!(fate(&plan(&releases, "default"), "users"), Refused);
    // The file is not in the store, and is not taken to be right for that.
    let mut again = self::releases(store);
    again.restore(&admission(), UNIX_EPOCH).unwrap();
    assert_eq!(fate(&plan(&again, "default"), "welcome"), Refused);
}

#[test]
fn refuses_routes_that_nobody_knows_too() {
    let (releases, _) = start(&with("kind: RoutePolicy", "kind: RoutePolice"));
    for mesh in ["default", "other", "invented"] {
        assert_eq!(fate(&plan(&releases, mesh), "of-envoys-own"), Refused, "{mesh}");
    }
}

#[test]
fn refuses_everything_for_clients_that_are_sent_policies_and_no_plan() {
    let (releases, _) = start(&with("kind: RoutePolicy", "kind: RoutePolice"));
    let sent = releases.publication().unwrap().policies_for(&Audience::Anyone);
    let refusal = sent.policies().iter().find(|policy| policy.name == "postern-refusal").unwrap();
    assert!(
        refusal.spec.contains(r#""override":true"#) && refusal.spec.contains(r#""status":500"#),
        "{}",
        refusal.spec
    );
    // The route of one policy alone is refused by its own.
    let (releases, _) = start(&with("apiKeyAuth", "apiKeyAuht"));
    let sent = releases.publication().unwrap().policies_for(&Audience::Anyone);
    let refusal = sent.policies().iter().find(|policy| policy.name == "users-api").unwrap();
    assert!(refusal.spec.contains(r#""status":500"#), "{}", refusal.spec);
}

#[test]
fn answers_what_the_settings_say() {
    for text in [with("apiKeyAuth", "apiKeyAuht"), with("kind: RoutePolicy", "kind: RoutePolice")] {
        let (releases, _) = start(&text);
        let plan = plan(&releases, "default");
        let answer = plan.policy_not_supported.unwrap();
        assert_eq!((answer.status, plan.strings[usize::try_from(answer.body).unwrap()].as_str()), (500, "sorry"));
    }
}

#[test]
fn says_what_is_wrong_in_the_conditions_of_its_resource() {
    let (releases, _) = start(&with("apiKeyAuth", "apiKeyAuht"));
    let lifecycle = &releases.lifecycles()[&1];
    let of = |resource: &str| {
        let found = lifecycle.conditions_of(resource).get(ConditionType::Initialized, None).unwrap().clone();
        (found.status, found.reason)
    };
    assert_eq!(of("RoutePolicy `users-api`"), (Truth::False, "Invalid".to_owned()));
    assert_eq!(of("RoutePolicy `orders-api`"), (Truth::True, "Loaded".to_owned()));
    assert!(lifecycle.errors()[0].contains("apiKeyAuht"));
}

#[test]
fn a_restart_finds_the_same_and_a_mended_directory_is_the_next_revision() {
    for broken in [with("apiKeyAuth", "apiKeyAuht"), with("kind: RoutePolicy", "kind: RoutePolice")] {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let (first, _) = start_on(Arc::clone(&store), &broken, Vec::new());
        let before = fate(&plan(&first, "default"), "users");
        let mut again = releases(store);
        again.restore(&admission(), UNIX_EPOCH).unwrap();
        assert_eq!((before, fate(&plan(&again, "default"), "users")), (Refused, Refused));
        // A refused route had no guard that the mended directory could lose.
        let open = SITE.replacen(
            "request: [{ policy: apiKeyAuth, params: { header: x-key } }]",
            "request: [{ policy: requestId }]",
            1,
        );
        let Applied::Revision(revision) = again.apply(proposal(&open), &admission(), UNIX_EPOCH).unwrap() else {
            panic!("the same revision")
        };
        assert_eq!(revision.number, 2);
        assert_eq!(fate(&plan(&again, "default"), "orders"), Decided);
        // A broken one is no longer taken.
        assert!(matches!(again.apply(proposal(&broken), &admission(), UNIX_EPOCH), Err(ApplyError::Compile(_))));
    }
}

#[test]
fn a_review_that_fails_after_a_restart_still_refuses() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    drop(start_on(Arc::clone(&store), &with("name: users }\n  request", "name: userss }\n  request"), Vec::new()));
    let mut again = releases(store);
    again.restore(&admission(), UNIX_EPOCH).unwrap();
    assert_eq!(fate(&plan(&again, "default"), "users"), Refused);
}

#[test]
fn ends_whatever_is_wrong_and_how_much() {
    let many: String =
        (0..200).map(|number| document("RoutePolicy", &format!("p{number}"), "{ targetRef: 1 }")).collect();
    check(&format!("{SITE}{many}"), ALL, &["RoutePolicy `p199`"]);
    let duplicates: String = (0..3).map(|_| document("Service", "backend", "{ endpoints: [] }")).collect();
    check(&format!("{SITE}{duplicates}"), [Decided, Decided, Open], &["Service `backend`"]);
}
