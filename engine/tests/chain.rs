//! Chains: what steps decide, and what later steps see of earlier ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use postern_engine::{Headers, Plan, Verdict};
use postern_proto::plan::v1::{
    ApiKeyAuth, Chain, Consumer, HeaderValue, Headers as HeadersParams, Plan as Wire, Route, Step, step,
};
use prost::Message;
use sha2::{Digest, Sha256};

const STRINGS: [&str; 8] =
    ["users", "apiKeyAuth", "x-api-key", "mobile", "headers", "secret", "x-consumer-kind", "app"];

fn key_step() -> Step {
    Step { name: 1, policy: Some(step::Policy::ApiKeyAuth(ApiKeyAuth { header: 2 })) }
}

fn headers_step(params: HeadersParams) -> Step {
    Step { name: 4, policy: Some(step::Policy::Headers(params)) }
}

fn load(request: Vec<Step>) -> Plan {
    let wire = Wire {
        format: 1,
        revision: "r1".into(),
        strings: STRINGS.map(String::from).to_vec(),
        chains: vec![Chain { request, response: vec![] }],
        routes: vec![Route { name: 0, chain: 0 }],
        consumers: vec![Consumer { name: 3, api_key_sha256: vec![Sha256::digest(b"secret").to_vec()] }],
    };
    Plan::load(&wire.encode_to_vec()).unwrap()
}

/// Runs the request chain and compares its account.
fn check(request: Vec<Step>, headers: &[(&str, &[u8])], expect: &str) {
    let plan = load(request);
    let headers: Headers = headers.iter().copied().collect();
    let decision = plan.chain("users").unwrap().request.run(&headers, plan.consumers());
    assert_eq!(decision.account("r1", "users"), expect);
}

#[test]
fn admits_the_key_of_a_consumer() {
    check(
        vec![key_step()],
        &[(":method", b"GET"), ("x-api-key", b"secret")],
        "verdict=allow consumer=mobile route=users revision=r1",
    );
}

#[test]
fn denies_a_request_without_a_key() {
    check(vec![key_step()], &[], "verdict=deny step=apiKeyAuth reason=key_missing route=users revision=r1");
}

#[test]
fn denies_an_empty_key() {
    check(
        vec![key_step()],
        &[("x-api-key", b"")],
        "verdict=deny step=apiKeyAuth reason=key_missing route=users revision=r1",
    );
}

#[test]
fn denies_a_wrong_key() {
    check(
        vec![key_step()],
        &[("x-api-key", b"guess")],
        "verdict=deny step=apiKeyAuth reason=key_unknown route=users revision=r1",
    );
}

#[test]
fn denies_a_key_that_is_not_utf8() {
    check(
        vec![key_step()],
        &[("x-api-key", b"\xff\xfe")],
        "verdict=deny step=apiKeyAuth reason=key_unknown route=users revision=r1",
    );
}

#[test]
fn denies_two_keys_even_when_one_is_right() {
    check(
        vec![key_step()],
        &[("x-api-key", b"secret"), ("x-api-key", b"guess")],
        "verdict=deny step=apiKeyAuth reason=key_repeated route=users revision=r1",
    );
}

#[test]
fn answers_every_denial_alike() {
    let plan = load(vec![key_step()]);
    let answer = |key: &[u8]| {
        let headers: Headers = [("x-api-key", key)].into_iter().collect();
        plan.chain("users").unwrap().request.run(&headers, plan.consumers()).verdict
    };
    let Verdict::Deny(response) = answer(b"") else { panic!("denied") };
    assert_eq!(response.status, 401);
    assert!(response.headers.contains(&("www-authenticate", "ApiKey")));
    assert_eq!(answer(b"guess"), Verdict::Deny(response));
}

#[test]
fn lets_a_later_step_see_what_an_earlier_one_set() {
    let set = HeadersParams { set: vec![HeaderValue { name: 2, value: 5 }], ..Default::default() };
    check(
        vec![headers_step(set), key_step()],
        &[("x-api-key", b"guess")],
        "verdict=allow consumer=mobile route=users revision=r1",
    );
}

#[test]
fn applies_no_edits_of_earlier_steps_on_denial() {
    let set = HeadersParams { set: vec![HeaderValue { name: 6, value: 7 }], ..Default::default() };
    let plan = load(vec![headers_step(set), key_step()]);
    let decision = plan.chain("users").unwrap().request.run(&Headers::default(), plan.consumers());
    assert!(matches!(decision.verdict, Verdict::Deny(_)));
}

#[test]
fn removes_then_sets_then_adds() {
    let value = HeaderValue { name: 6, value: 7 };
    let params = HeadersParams { remove: vec![6, 2], set: vec![value], add: vec![value] };
    let plan = load(vec![headers_step(params)]);
    let decision = plan.chain("users").unwrap().request.run(&Headers::default(), plan.consumers());
    let Verdict::Continue(edits) = decision.verdict else { panic!("continued") };
    let edits: Vec<_> =
        edits.iter().map(|edit| format!("{} {} {}", edit.name, edit.replace, edit.values.join("+"))).collect();
    assert_eq!(edits, ["x-consumer-kind true app+app", "x-api-key true "]);
}

#[test]
fn reads_headers_only_when_a_step_needs_them() {
    let needs = |steps| load(steps).chain("users").unwrap().request.needs().headers;
    assert!(needs(vec![key_step()]));
    assert!(!needs(vec![headers_step(HeadersParams::default())]));
}
