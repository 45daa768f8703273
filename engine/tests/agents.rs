//! Which steps one question to an agent covers, and what an agent must not change.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod common;

use common::{Driver, Writer};
use postern_engine::{
    Decision, Response, Verdict,
    agent::{Instruction, Outcome, Reply},
};
use postern_proto::plan::v1 as wire;

const WEB: &str = "spiffe://default/web";

fn reply(instructions: Vec<Instruction>) -> Reply {
    Reply { instructions, ..Reply::default() }
}

/// A step of the only agent, for some service or for all traffic, perhaps as an alternative to the one before.
fn step(writer: &mut Writer, policy: &str, service: Option<&str>, alternative: bool) -> wire::Step {
    let (mesh, service) = (writer.string("default"), service.map(|service| writer.string(service)));
    let source = service.is_some().then(|| wire::Source { mesh, service, tags: vec![] });
    wire::Step { source, alternative, ..writer.agent_step(policy, &[0]) }
}

/// Checks what the agent is asked, call by call, for a caller with this identity.
fn check(write: impl Fn(&mut Writer) -> Vec<wire::Step>, identity: Option<&str>, expect: &[&str]) -> Decision {
    let mut writer = Writer::new();
    writer.agent("agent", false);
    let steps = write(&mut writer);
    writer.route("a", steps, vec![]);
    let mut driver = Driver::request(&[]);
    driver.replies = vec![Ok(reply(vec![])); 9];
    if let Some(identity) = identity {
        driver.properties.insert("connection.uri_san_peer_certificate", identity.into());
    }
    let decision = driver.run(&writer.load(), "a").unwrap();
    let asked = |call: &postern_engine::agent::Call| {
        call.policies.iter().map(|policy| policy.name.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(driver.calls.iter().map(asked).collect::<Vec<_>>(), expect, "{identity:?}");
    decision
}

#[test]
fn asks_for_no_step_of_another_source() {
    let steps = |writer: &mut Writer| {
        vec![
            step(writer, "all", None, false),
            step(writer, "web", Some("web"), false),
            step(writer, "batch", Some("batch"), false),
            step(writer, "last", None, false),
        ]
    };
    check(steps, Some(WEB), &["all web last"]);
    check(steps, Some("spiffe://default/batch"), &["all batch last"]);
    check(steps, None, &["all last"]);
}

#[test]
fn asks_for_the_one_alternative_that_runs() {
    let steps = |writer: &mut Writer| {
        vec![
            step(writer, "first", None, false),
            step(writer, "for-web", Some("web"), false),
            step(writer, "for-batch", Some("batch"), true),
            step(writer, "for-others", None, true),
            step(writer, "last", None, false),
        ]
    };
    check(steps, Some(WEB), &["first for-web last"]);
    check(steps, Some("spiffe://default/batch"), &["first for-batch last"]);
    check(steps, None, &["first for-others last"]);
}

#[test]
fn passes_over_the_alternatives_of_the_step_that_begins_a_group() {
    let steps = |writer: &mut Writer| {
        vec![
            step(writer, "for-web", Some("web"), false),
            step(writer, "for-others", None, true),
            step(writer, "last", None, false),
        ]
    };
    check(steps, Some(WEB), &["for-web last"]);
    check(steps, None, &["for-others last"]);
}

#[test]
fn asks_for_a_step_in_shadow_mode_alone() {
    let steps = |shadow: usize| {
        move |writer: &mut Writer| {
            let mut steps = vec![step(writer, "one", None, false), step(writer, "two", None, false)];
            steps[shadow].shadow = true;
            steps
        }
    };
    check(steps(0), None, &["one", "two"]);
    check(steps(1), None, &["one", "two"]);
}

#[test]
fn enforces_a_denial_behind_a_step_in_shadow_mode() {
    let mut writer = Writer::new();
    writer.agent("agent", false);
    let (one, two) = (step(&mut writer, "one", None, false), step(&mut writer, "two", None, false));
    writer.route("a", vec![wire::Step { shadow: true, ..one }, two], vec![]);
    let mut driver = Driver::request(&[]);
    let denied = || Ok(Reply { outcome: Outcome::Denied, ..reply(vec![]) });
    driver.replies = vec![denied(), denied()];
    let decision = driver.run(&writer.load(), "a").unwrap();
    assert!(matches!(decision.verdict, Verdict::Deny(_)), "{decision:?}");
}

/// The decision on a request that an agent allows with these instructions.
fn decide(instructions: Vec<Instruction>) -> Decision {
    let mut writer = Writer::new();
    writer.agent("agent", false);
    let steps = vec![step(&mut writer, "one", None, false)];
    writer.route("a", steps, vec![]);
    let mut driver = Driver::request(&[]);
    driver.replies = vec![Ok(reply(instructions))];
    driver.run(&writer.load(), "a").unwrap()
}

#[test]
fn fails_on_an_edit_that_is_not_an_agents_to_make() {
    let set = |name: &str, value: &str| Instruction::SetHeader(name.into(), value.into());
    let good = || set("x-a", "1");
    let bad = [
        set("content-length", "5"),
        set("Transfer-Encoding", "chunked"),
        set("host", "evil"),
        set(":path", "/admin"),
        set("x-envoy-original-path", "/admin"),
        set("x-b", "a\r\ncontent-length: 5"),
        set("x-b", "a\0"),
        set("x-b\r\nc", "d"),
        Instruction::RemoveHeader("connection".into()),
        Instruction::RemoveHeader("Content-Length".into()),
        Instruction::Respond(Response::problem(200, "").with_header("content-length", "5")),
        Instruction::Respond(Response::problem(200, "").with_header("x-a", "a\nb")),
        Instruction::Respond(Response::problem(101, "")),
    ];
    for instruction in bad {
        let decision = decide(vec![good(), instruction.clone()]);
        assert!(matches!(decision.verdict, Verdict::Deny(_)), "{instruction:?}");
        assert_eq!(decision.reason, Some("agent_edit_refused"), "{instruction:?}");
    }
    let decision = decide(vec![set("X-A", "1"), Instruction::RemoveHeader("X-Envoy-Internal".into())]);
    let Verdict::Continue(edits) = &decision.verdict else { panic!("{decision:?}") };
    assert_eq!(edits.headers().map(|edit| &*edit.name).collect::<Vec<_>>(), ["x-a", "x-envoy-internal"]);
}

#[test]
fn gives_no_answer_of_an_agent_that_cannot_be_given_but_still_denies() {
    let mut writer = Writer::new();
    writer.agent("agent", false);
    let steps = vec![step(&mut writer, "one", None, false)];
    writer.route("a", steps, vec![]);
    let mut driver = Driver::request(&[]);
    let answer = Response::problem(403, "").with_header("transfer-encoding", "chunked");
    driver.replies = vec![Ok(Reply { outcome: Outcome::Denied, ..reply(vec![Instruction::Respond(answer)]) })];
    let decision = driver.run(&writer.load(), "a").unwrap();
    let Verdict::Deny(response) = &decision.verdict else { panic!("{decision:?}") };
    assert!(response.headers.iter().all(|(name, _)| &**name != "transfer-encoding"), "{response:?}");
}
