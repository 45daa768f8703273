//! Loading: what is refused, and the words it is refused with.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use postern_engine::Plan;
use postern_proto::plan::v1::{ApiKeyAuth, Chain, Consumer, HeaderValue, Headers, Plan as Wire, Route, Step, step};
use prost::Message;

/// A small plan that loads; each test spoils one thing.
fn plan() -> Wire {
    let strings = ["users", "apiKeyAuth", "x-api-key", "mobile", "headers", "x-from", "postern"];
    let key = Step { name: 1, policy: Some(step::Policy::ApiKeyAuth(ApiKeyAuth { header: 2 })) };
    let set = Headers { set: vec![HeaderValue { name: 5, value: 6 }], ..Default::default() };
    let headers = Step { name: 4, policy: Some(step::Policy::Headers(set)) };
    Wire {
        format: 1,
        revision: "r1".into(),
        strings: strings.map(String::from).to_vec(),
        chains: vec![Chain { request: vec![key], response: vec![headers] }],
        routes: vec![Route { name: 0, chain: 0 }],
        consumers: vec![Consumer { name: 3, api_key_sha256: vec![vec![7; 32]] }],
    }
}

fn check(spoil: impl FnOnce(&mut Wire), expect: &str) {
    let mut wire = plan();
    spoil(&mut wire);
    let error = Plan::load(&wire.encode_to_vec()).expect_err("the plan must be refused");
    assert_eq!(error.to_string(), expect);
}

#[test]
fn loads_a_good_plan() {
    let plan = Plan::load(&plan().encode_to_vec()).unwrap();
    assert_eq!((plan.revision(), plan.routes()), ("r1", 1));
    assert!(plan.chain("users").is_some());
    assert!(plan.chain("unknown").is_none());
}

#[test]
fn refuses_an_empty_plan() {
    check(|wire| *wire = Wire::default(), "plan format 0 is not supported, this engine loads format 1");
}

#[test]
fn refuses_a_later_format() {
    check(|wire| wire.format = 2, "plan format 2 is not supported, this engine loads format 1");
}

#[test]
fn refuses_bytes_that_are_no_plan() {
    let error = Plan::load(b"\xff\xff not a plan").expect_err("refused");
    assert!(error.to_string().starts_with("the plan cannot be decoded: "), "{error}");
}

#[test]
fn refuses_a_truncated_plan_at_every_length() {
    let whole = plan().encode_to_vec();
    // A cut between two fields leaves a plan that decodes; it must still not pass for the whole one.
    let loads = (0..whole.len()).filter(|end| {
        Plan::load(&whole[..*end])
            .is_ok_and(|plan| plan.routes() == 1 && plan.consumers().by_api_key(&[7; 32]).is_some())
    });
    assert_eq!(loads.count(), 0);
}

#[test]
fn refuses_a_policy_that_it_does_not_know() {
    check(
        |wire| wire.chains[0].request[0].policy = None,
        "chain 0: request: step `apiKeyAuth`: a policy that this engine does not know",
    );
}

#[test]
fn refuses_a_string_index_that_points_nowhere() {
    check(|wire| wire.chains[0].request[0].name = 99, "chain 0: request: string 99 does not exist, there are 7");
}

#[test]
fn refuses_a_chain_index_that_points_nowhere() {
    check(|wire| wire.routes[0].chain = 1, "route `users`: chain 1 does not exist, there are 1");
}

#[test]
fn refuses_a_route_that_is_there_twice() {
    check(|wire| wire.routes.push(Route { name: 0, chain: 0 }), "route `users` is there twice");
}

#[test]
fn refuses_a_digest_of_the_wrong_size() {
    check(
        |wire| wire.consumers[0].api_key_sha256.push(vec![0; 31]),
        "consumer `mobile`: an API key's digest has 31 bytes instead of 32",
    );
}

#[test]
fn refuses_two_consumers_with_one_key() {
    check(|wire| wire.consumers.push(wire.consumers[0].clone()), "API key of consumer `mobile` is there twice");
}

#[test]
fn refuses_header_names_that_would_change_the_request_line() {
    for name in ["", ":path", "host", "X-Upper", "a b", "naïve"] {
        let expect =
            format!("chain 0: request: step `apiKeyAuth`: `{}` is not a valid header name", name.escape_debug());
        check(|wire| wire.strings[2] = name.into(), &expect);
    }
}

#[test]
fn refuses_header_values_that_would_split_a_header() {
    check(
        |wire| wire.strings[6] = "a\r\nx-evil: 1".into(),
        "chain 0: response: step `headers`: `a\\r\\nx-evil: 1` is not a valid header value",
    );
}
