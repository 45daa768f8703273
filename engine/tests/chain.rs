//! Chains: what steps decide, what later steps see of earlier ones, and what follows when a step fails.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod common;

use common::{Driver, Writer};
use postern_engine::{Verdict, agent::CallError};
use postern_proto::plan::v1::{
    Chain, Expression, FaultInjection, InjectedDelay, OnFailure, RateLimit, Step, Steps,
    expression::{Attribute, Node, node::Kind},
    step::Policy,
};
use sha2::{Digest, Sha256};

const SECOND: u64 = 1_000_000_000;

fn writer() -> Writer {
    let mut writer = Writer::new();
    writer.consumer("mobile", Sha256::digest(b"secret").to_vec(), &[]);
    writer
}

/// Runs a chain and compares its account.
fn check(steps: impl FnOnce(&mut Writer) -> Vec<Step>, headers: &[(&str, &[u8])], expect: &str) {
    let mut writer = writer();
    let steps = steps(&mut writer);
    writer.route("users", steps, vec![]);
    let decision = Driver::request(headers).run(&writer.load(), "users").unwrap();
    assert_eq!(decision.account("r1", "users"), format!("{expect} route=users plan=r1"));
}

fn key(writer: &mut Writer) -> Vec<Step> {
    vec![writer.key_step()]
}

#[test]
fn admits_the_key_of_a_consumer() {
    check(key, &[("x-api-key", b"secret")], "verdict=allow consumer=mobile");
}

#[test]
fn denies_every_other_key() {
    check(key, &[], "verdict=deny step=apiKeyAuth reason=key_missing");
    check(key, &[("x-api-key", b"")], "verdict=deny step=apiKeyAuth reason=key_missing");
    check(key, &[("x-api-key", b"guess")], "verdict=deny step=apiKeyAuth reason=key_unknown");
    check(key, &[("x-api-key", b"\xff\xfe")], "verdict=deny step=apiKeyAuth reason=key_unknown");
    check(
        key,
        &[("x-api-key", b"secret"), ("x-api-key", b"guess")],
        "verdict=deny step=apiKeyAuth reason=key_repeated",
    );
}

/// A key that was found good before is looked up in another way than a new one.
#[test]
fn knows_a_key_again_and_no_other() {
    let mut writer = writer();
    writer.consumer("desktop", Sha256::digest(b"other").to_vec(), &[]);
    let steps = key(&mut writer);
    writer.route("users", steps, vec![]);
    let plan = writer.load();
    for _ in 0..3 {
        for (key, consumer) in [("secret", Some("mobile")), ("other", Some("desktop")), ("secre", None), ("s", None)] {
            let decision = Driver::request(&[("x-api-key", key.as_bytes())]).run(&plan, "users").unwrap();
            assert_eq!(decision.consumer.as_deref(), consumer, "{key}");
            assert_eq!(decision.verdict.word(), if consumer.is_some() { "allow" } else { "deny" }, "{key}");
        }
    }
}

/// The time is asked for with the first question. After a wait it must be asked for again.
#[test]
fn tells_a_step_after_a_wait_what_time_it_is() {
    let mut writer = writer();
    let delay = InjectedDelay { milliseconds: 2000, percent: 100 };
    let delay = writer.step("delay", Policy::FaultInjection(FaultInjection { delay: Some(delay), abort: None }));
    let limit =
        RateLimit { id: writer.string("id"), interval_ns: SECOND, burst: 1, most_keys: 1, ..Default::default() };
    let limit = writer.step("limit", Policy::RateLimit(limit));
    writer.route("users", vec![delay, limit], vec![]);
    let mut driver = Driver { now: 100 * SECOND, ..Driver::default() };
    assert_eq!(driver.run(&writer.load(), "users").unwrap().verdict.word(), "allow");
    let (bucket, _) = driver.shared.values.values().next().unwrap();
    let full_at = u64::from_le_bytes(bucket[8..].try_into().unwrap());
    assert_eq!(full_at, 103 * SECOND);
}

#[test]
fn tries_a_bucket_again_when_another_worker_was_faster_but_not_for_ever() {
    let decide = |on_failure: OnFailure, driver: Driver| {
        let mut writer = writer();
        let limit =
            RateLimit { id: writer.string("id"), interval_ns: SECOND, burst: 1, most_keys: 1, ..Default::default() };
        let mut limit = writer.step("limit", Policy::RateLimit(limit));
        limit.on_failure = on_failure.into();
        writer.route("users", vec![limit], vec![]);
        let mut driver = Driver { now: 100 * SECOND, ..driver };
        let decision = driver.run(&writer.load(), "users").unwrap();
        (decision.verdict.word(), decision.reason.unwrap_or_default(), driver.shared.values.len())
    };
    let rivals = |rivals| Driver { rivals, ..Driver::default() };
    let down = || Driver { down: true, ..Driver::default() };
    assert_eq!(decide(OnFailure::Unspecified, rivals(3)), ("allow", "", 1));
    assert_eq!(decide(OnFailure::Unspecified, rivals(1000)), ("deny", "bucket_contended", 0));
    assert_eq!(decide(OnFailure::Unspecified, down()), ("deny", "bucket_contended", 0));
    assert_eq!(decide(OnFailure::Continue, down()), ("allow", "", 0));
}

#[test]
fn answers_every_denial_alike() {
    let mut writer = writer();
    let steps = key(&mut writer);
    writer.route("users", steps, vec![]);
    let plan = writer.load();
    let answer = |key: &[u8]| Driver::request(&[("x-api-key", key)]).run(&plan, "users").unwrap().verdict;
    let Verdict::Deny(response) = answer(b"") else { panic!("denied") };
    assert_eq!(response.status, 401);
    assert_eq!(answer(b"guess"), Verdict::Deny(response));
}

#[test]
fn lets_a_later_step_see_what_an_earlier_one_set() {
    check(
        |writer| vec![writer.set_step("headers", "x-api-key", "secret"), writer.key_step()],
        &[("x-api-key", b"guess")],
        "verdict=allow consumer=mobile",
    );
}

#[test]
fn reports_a_step_in_shadow_mode_and_forgets_what_it_did() {
    check(
        |writer| {
            let mut set = writer.set_step("headers", "x-api-key", "secret");
            set.shadow = true;
            let mut key = writer.key_step();
            key.shadow = true;
            vec![set, key]
        },
        &[("x-api-key", b"guess")],
        "verdict=allow shadow=apiKeyAuth:key_unknown",
    );
}

#[test]
fn reports_a_chain_in_shadow_mode_and_enforces_nothing() {
    let mut writer = writer();
    let steps = vec![writer.set_step("headers", "x", "y"), writer.key_step()];
    let request = Some(Steps { steps, unsupported: vec![] });
    writer.chain("users", Chain { request, shadow: true, ..Default::default() });
    let decision = Driver::request(&[]).run(&writer.load(), "users").unwrap();
    assert_eq!(decision.account("r1", "users"), "verdict=allow shadow=apiKeyAuth:key_missing route=users plan=r1");
    let Verdict::Continue(edits) = decision.verdict else { panic!("continued") };
    assert_eq!(edits.headers().count(), 0);
}

#[test]
fn does_with_a_failed_step_what_it_says() {
    let failing = |on_failure: OnFailure, fail_open: bool| {
        move |writer: &mut Writer| {
            let agent = writer.agent("slow", fail_open);
            let mut step = writer.agent_step("check", &[agent]);
            step.on_failure = on_failure.into();
            vec![step, writer.key_step()]
        }
    };
    let check = |on_failure, fail_open, expect: &str| {
        let mut writer = writer();
        let steps = failing(on_failure, fail_open)(&mut writer);
        writer.route("users", steps, vec![]);
        let mut driver =
            Driver { replies: vec![Err(CallError::Timeout)], ..Driver::request(&[("x-api-key", b"secret")]) };
        let decision = driver.run(&writer.load(), "users").unwrap();
        assert_eq!(decision.account("r1", "users"), format!("{expect} route=users plan=r1"));
    };
    check(OnFailure::Deny, true, "verdict=deny step=check reason=agent_timeout");
    check(OnFailure::Unspecified, false, "verdict=deny step=check reason=agent_timeout");
    check(OnFailure::Unspecified, true, "verdict=allow consumer=mobile failed=check:agent_timeout");
    check(OnFailure::Continue, false, "verdict=allow consumer=mobile failed=check:agent_timeout");
    check(OnFailure::SkipRemaining, false, "verdict=allow skipped=check:agent_timeout");
}

#[test]
fn removes_nothing_from_and_adds_nothing_to_a_response_without_a_chain() {
    let mut writer = writer();
    let steps = key(&mut writer);
    writer.route("users", steps, vec![]);
    let (_, response) = Driver::request(&[("x-api-key", b"secret")]).run_both(&writer.load(), "users");
    assert!(response.is_none());
}

#[test]
fn refuses_a_body_that_is_too_large_for_a_step_of_the_response() {
    let decide = |shadow| {
        let mut writer = writer();
        let body = Node { kind: Some(Kind::HasAttribute(Attribute::RequestBody.into())), column: 0 };
        writer.plan.expressions.push(Expression { nodes: vec![body] });
        let step = Step { when: 1, shadow, ..writer.set_step("mark", "x-a", "b") };
        let response = Some(Steps { steps: vec![step], unsupported: vec![] });
        writer.chain("users", Chain { response, body_limit: 3, ..Chain::default() });
        let mut driver = Driver { body: b"four".to_vec(), ..Driver::default() };
        driver.run(&writer.load(), "users").unwrap().account("r1", "users")
    };
    assert_eq!(decide(false), "verdict=deny step=mark reason=body_too_large route=users plan=r1");
    assert_eq!(decide(true), "verdict=allow shadow=mark:body_too_large route=users plan=r1");
}
