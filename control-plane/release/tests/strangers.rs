//! Bounds on what is kept for nodes that any client can invent, and the secrets that a plan contains.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "test code")]

use postern_base::node::NodeIdentity;
use postern_compile::{keys::KeySets, snapshot::FilterCode};
use postern_model::File;
use postern_proto::plan::v1::Plan;
use postern_release::publication::Publication;
use prost::Message as _;

/// The maximum number of cached groups, besides those that streams are served from.
const MOST: usize = 1024;

fn publication(text: &str) -> Publication {
    let file = File { name: "r.yaml".to_owned(), bytes: text.into() };
    let bundle = postern_model::read(&[file]).unwrap_or_else(|errors| panic!("{errors}"));
    let code = FilterCode::new(b"code".to_vec(), None);
    Publication::admit(bundle, KeySets::default(), &code, &[], None).unwrap_or_else(|error| panic!("{error}"))
}

fn policy(name: &str, target: &str, step: &str) -> String {
    format!(
        "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {name} }}\n\
         spec: {{ targetRef: {{ {target} }}, request: [{step}] }}\n---\n"
    )
}

#[test]
fn meshes_without_resources_are_one_group() {
    let publication = publication(&policy("p", "kind: Mesh", "{ policy: requestId }"));
    let before = publication.groups();
    let snapshot = |mesh: String| publication.snapshot_for(&NodeIdentity { mesh, ..NodeIdentity::default() });
    let first = snapshot("made-up".to_owned());
    for number in 0..5_000 {
        assert!(std::sync::Arc::ptr_eq(&first, &snapshot(format!("made-up-{number}"))));
    }
    assert!(publication.groups() <= before + 1, "{} groups", publication.groups());
    let known = snapshot("default".to_owned());
    assert!(!std::sync::Arc::ptr_eq(&first, &known), "a mesh with resources is another");
}

#[test]
fn groups_that_strangers_make_up_are_bounded_and_those_in_use_stay() {
    let text: String = (0..11)
        .map(|tag| {
            let step = format!("{{ policy: headers, params: {{ set: {{ x-{tag}: a }} }} }}");
            policy(&format!("p{tag}"), &format!("kind: MeshSubset, tags: {{ t{tag}: a }}"), &step)
        })
        .collect();
    let publication = publication(text.trim_end_matches("---\n"));
    let node = |bits: usize| {
        let chosen = (0..11).filter(|tag| bits >> tag & 1 == 1);
        let tags = chosen.map(|tag| (format!("t{tag}"), "a".to_owned())).collect();
        NodeIdentity { id: format!("stranger-{bits}"), tags, ..NodeIdentity::default() }
    };
    let in_use = publication.snapshot_for(&node(0b111));
    for bits in 0..2048 {
        drop(publication.snapshot_for(&node(bits)));
    }
    assert!(publication.groups() <= MOST + 1, "{} groups", publication.groups());
    assert!(std::sync::Arc::ptr_eq(&in_use, &publication.snapshot_for(&node(0b111))), "a stream is served from it");
}

const TABLE: &str = "apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  targetRef: { kind: MeshSubset, tags: { zone: a } }
  listeners: [{ name: http, port: 80 }]
  routes:
    - { name: preview, service: one, match: { headers: [{ name: x-preview, present: true }] } }
    - { name: edited, service: two, match: { path: { prefix: /edited } } }
    - { name: plain, service: one }
---
apiVersion: postern/v1
kind: Service
metadata: { name: one }
spec: { endpoints: [{ address: 127.0.0.1, port: 1 }] }
---
apiVersion: postern/v1
kind: Service
metadata: { name: two }
spec: { endpoints: [{ address: 127.0.0.1, port: 2 }] }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: edits }
spec:
  targetRef: { kind: Service, name: web }
  to:
    - targetRef: { kind: Service, name: two }
      request: [{ policy: headers, params: { set: { x-preview: a } } }]
---
";

/// Admission looks at each target by itself. A node that two of them select is of a group that nobody foresaw: it has
/// routes that match on a header, and a policy that edits this header.
#[test]
fn a_group_that_nobody_foresaw_is_refused_only_where_its_chain_is_invalid() {
    let plain = policy("plain", "kind: HTTPRoute, name: plain", "{ policy: requestId }");
    let publication = publication(&format!("{TABLE}{}", plain.trim_end_matches("---\n")));
    // The steps of a route's chain, and whether the chain refuses all requests.
    let chain = |service: &str, route: &str| {
        let tags = [("zone".to_owned(), "a".to_owned())].into();
        let node = NodeIdentity { service: service.to_owned(), tags, ..NodeIdentity::default() };
        let snapshot = publication.snapshot_for(&node);
        postern_engine::Plan::load(snapshot.plan().bytes()).unwrap();
        let plan = Plan::decode(snapshot.plan().bytes()).unwrap();
        let name = |index: u32| plan.strings[index as usize].clone();
        let found = plan.routes.iter().find(|found| name(found.name) == route)?;
        let steps = plan.chains[found.chain as usize].request.clone().unwrap();
        let names: Vec<_> = steps.steps.iter().map(|step| name(step.name)).collect();
        Some((names, !steps.unsupported.is_empty()))
    };
    assert_eq!(chain("other", "edited"), None, "a node that was foreseen");
    assert_eq!(chain("web", "edited"), Some((vec![], true)));
    assert_eq!(chain("web", "plain"), Some((vec!["requestId".to_owned()], false)));
}

const CREDENTIALS: &str = r#"apiVersion: postern/v1
kind: Consumer
metadata: { name: keys }
spec: { apiKeys: [{ key: a-key }] }
---
apiVersion: postern/v1
kind: Consumer
metadata: { name: all }
spec:
  apiKeys: [{ key: another-key }]
  basicAuth: { username: all, password: a-password }
  hmac: [{ keyId: all-1, secret: a-secret-that-signs-requests-0123456789 }]
---
apiVersion: postern/v1
kind: Issuer
metadata: { name: one }
spec: { issuer: "https://one.example", jwks: { keys: [{ kty: oct, alg: HS256, kid: k, k: YS1zZWNyZXQtdGhhdC1zaWducy10b2tlbnMtMDEyMzQ1Njc4OQ }] } }
---
apiVersion: postern/v1
kind: Issuer
metadata: { name: two }
spec: { issuer: "https://two.example", jwks: { keys: [{ kty: oct, alg: HS256, kid: k, k: b3RoZXItc2VjcmV0LXRoYXQtc2lnbnMtdG9rZW5zLTAxMjM0NQ }] } }
---
"#;

/// What a plan with this step contains: consumers with API keys, passwords and HMAC keys, and issuers, by name.
fn known(step: &str) -> (Vec<String>, Vec<String>) {
    let text = CREDENTIALS.to_owned() + policy("p", "kind: Mesh", step).trim_end_matches("---\n");
    let snapshot = publication(&text).snapshot_for(&NodeIdentity::default());
    let plan = Plan::decode(snapshot.plan().bytes()).unwrap();
    let name = |index: u32| plan.strings[index as usize].clone();
    let consumers = plan.consumers.iter().map(|consumer| {
        let parts = [consumer.api_key_sha256.len(), usize::from(consumer.basic_auth.is_some()), consumer.hmac.len()];
        format!("{} {parts:?}", name(consumer.name))
    });
    // A filter can load the plan.
    postern_engine::Plan::load(snapshot.plan().bytes()).unwrap();
    (consumers.collect(), plan.issuers.iter().map(|issuer| name(issuer.name)).collect())
}

#[test]
fn a_plan_has_only_what_its_steps_need() {
    let check = |step: &str, consumers: &[&str], issuers: &[&str]| {
        let (found, names) = known(step);
        assert_eq!((found.as_slice(), names.as_slice()), (&texts(consumers)[..], &texts(issuers)[..]), "{step}");
    };
    check("{ policy: requestId }", &[], &[]);
    check("{ policy: apiKeyAuth, params: { header: k } }", &["all [1, 0, 0]", "keys [1, 0, 0]"], &[]);
    check("{ policy: basicAuth }", &["all [0, 1, 0]"], &[]);
    check("{ policy: hmacAuth }", &["all [0, 0, 1]"], &[]);
    check("{ policy: jwtValidation, params: { issuers: [two] } }", &[], &["two"]);
    check("{ policy: jwtValidation, params: { issuers: [two, one] } }", &[], &["one", "two"]);
    let by_name = "{ policy: jwtValidation, params: { issuers: [one], consumer: sub } }";
    check(by_name, &["all [0, 0, 0]", "keys [0, 0, 0]"], &["one"]);
    check("{ policy: basicAuth }, { policy: hmacAuth }", &["all [0, 1, 1]"], &[]);
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
