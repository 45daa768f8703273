//! Loading plans: what is refused, and the messages.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

mod common;

use common::Writer;
use postern_engine::{Plan, Run, agent::Health};
use postern_proto::plan::v1::{AgentPolicy, Consumer, FORMAT, Plan as Wire, RateLimit, Route, step};
use prost::Message;

/// A small plan that loads. Each test breaks one thing in it.
fn plan() -> Wire {
    let mut writer = Writer::new();
    let (key, set) = (writer.key_step(), writer.set_step("headers", "x-from", "postern"));
    writer.route("users", vec![key], vec![set]);
    writer.consumer("mobile", vec![7; 32], &["apps"]);
    writer.plan
}

fn string(wire: &Wire, text: &str) -> usize {
    wire.strings.iter().position(|known| known == text).unwrap()
}

fn check(spoil: impl FnOnce(&mut Wire), expect: &str) {
    let mut wire = plan();
    spoil(&mut wire);
    let error = Plan::load(&wire.encode_to_vec()).expect_err("the plan must be refused");
    assert_eq!(error.to_string(), expect);
}

fn request_step(wire: &mut Wire) -> &mut postern_proto::plan::v1::Step {
    &mut wire.chains[0].request.as_mut().unwrap().steps[0]
}

#[test]
fn loads_a_good_plan() {
    let plan = std::sync::Arc::new(Plan::load(&plan().encode_to_vec()).unwrap());
    assert_eq!((plan.label(), plan.routes()), ("r1", 1));
    assert!(Run::request(&plan, "users", &Health::default()).is_some());
    assert!(Run::request(&plan, "unknown", &Health::default()).is_none());
}

#[test]
fn refuses_an_empty_plan() {
    check(|wire| *wire = Wire::default(), "plan format 0 is not supported, this engine loads formats 3 to 4");
}

#[test]
fn refuses_a_default_chain_that_is_not_there() {
    check(|wire| wire.default_chain = 2, "default chain: chain 1 does not exist, there are 1");
}

#[test]
fn refuses_a_source_that_is_not_there() {
    let source = || Some(postern_proto::plan::v1::Source { mesh: 99, ..Default::default() });
    check(
        |wire| wire.chains[0].request.as_mut().unwrap().steps[0].source = source(),
        "chain 0: request: step `apiKeyAuth`: string 99 does not exist, there are 8",
    );
}

#[test]
fn refuses_a_later_format() {
    let not = |format: u32| format!("plan format {format} is not supported, this engine loads formats 3 to {FORMAT}");
    check(|wire| wire.format = FORMAT + 1, &not(FORMAT + 1));
    check(|wire| wire.format = 2, &not(2));
}

#[test]
fn refuses_bytes_that_are_no_plan() {
    let error = Plan::load(b"\xff\xff not a plan").expect_err("refused");
    assert!(error.to_string().starts_with("the plan cannot be decoded: "), "{error}");
}

#[test]
fn refuses_a_policy_that_it_does_not_know() {
    check(
        |wire| request_step(wire).policy = None,
        "chain 0: request: step `apiKeyAuth`: a policy that this engine does not know",
    );
}

#[test]
fn refuses_a_policy_in_a_phase_where_it_cannot_run() {
    check(
        |wire| wire.chains[0].response = wire.chains[0].request.clone(),
        "chain 0: response: step `apiKeyAuth`: the policy cannot run in this phase",
    );
}

#[test]
fn refuses_a_failure_mode_that_it_does_not_know() {
    check(
        |wire| request_step(wire).on_failure = 9,
        "chain 0: request: step `apiKeyAuth`: failure mode 9 does not exist",
    );
}

#[test]
fn refuses_indexes_that_point_nowhere() {
    check(|wire| request_step(wire).name = 99, "chain 0: request: string 99 does not exist, there are 8");
    check(
        |wire| request_step(wire).when = 4,
        "chain 0: request: step `apiKeyAuth`: expression 3 does not exist, there are 0",
    );
    check(|wire| wire.routes[0].chain = 1, "route `users`: chain 1 does not exist, there are 1");
    check(
        |wire| {
            let agent = AgentPolicy { agents: vec![5], ..Default::default() };
            request_step(wire).policy = Some(step::Policy::Agent(agent));
        },
        "chain 0: request: step `apiKeyAuth`: agent 5 does not exist, there are 0",
    );
}

#[test]
fn refuses_a_route_that_is_there_twice() {
    check(
        |wire| {
            let Route { name, chain } = wire.routes[0];
            wire.routes.push(Route { name, chain });
        },
        "route `users` is there twice",
    );
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
    let steal = |wire: &mut Wire| {
        wire.strings.push("thief".into());
        let name = u32::try_from(wire.strings.len() - 1).unwrap();
        wire.consumers.push(Consumer { name, ..wire.consumers[0].clone() });
    };
    check(steal, "consumer `thief`: API key of consumer `thief` is there twice");
}

#[test]
fn refuses_two_consumers_of_one_name() {
    let twice = |wire: &mut Wire| wire.consumers.push(Consumer { name: wire.consumers[0].name, ..Default::default() });
    check(twice, "consumer `mobile`: consumer `mobile` is there twice");
}

#[test]
fn refuses_a_limit_that_would_divide_by_zero() {
    check(
        |wire| request_step(wire).policy = Some(step::Policy::RateLimit(RateLimit::default())),
        "chain 0: request: step `apiKeyAuth`: `interval_ns` must be between 1 and 31622400000000000, but is 0",
    );
}

#[test]
fn refuses_header_names_that_would_change_the_request_line() {
    for name in ["", ":path", "host", "X-Upper", "a b", "naïve"] {
        let expect =
            format!("chain 0: request: step `apiKeyAuth`: `{}` is not a valid header name", name.escape_debug());
        check(
            |wire| {
                let index = string(wire, "x-api-key");
                wire.strings[index] = name.into();
            },
            &expect,
        );
    }
}

#[test]
fn refuses_header_values_that_would_split_a_header() {
    check(
        |wire| {
            let index = string(wire, "postern");
            wire.strings[index] = "a\r\nx-evil: 1".into();
        },
        "chain 0: response: step `headers`: `a\\r\\nx-evil: 1` is not a valid header value",
    );
}

#[test]
fn refuses_edits_of_what_frames_a_message_or_a_connection() {
    let edit = |name: &'static str, remove: bool| {
        move |wire: &mut postern_proto::plan::v1::Plan| {
            wire.strings.push(name.to_owned());
            let name = u32::try_from(wire.strings.len() - 1).unwrap();
            let value = postern_proto::plan::v1::HeaderValue { name, value: 0 };
            let (set, remove) = if remove { (vec![], vec![name]) } else { (vec![value], vec![]) };
            let headers = postern_proto::plan::v1::Headers { set, remove, ..Default::default() };
            request_step(wire).policy = Some(step::Policy::Headers(headers));
        }
    };
    let place = "chain 0: request: step `apiKeyAuth`: ";
    let framing = "it frames a message or a connection, which only the proxy may do";
    check(edit("content-length", false), &format!("{place}header `content-length` cannot be edited: {framing}"));
    check(edit("transfer-encoding", true), &format!("{place}header `transfer-encoding` cannot be edited: {framing}"));
    let pseudo = "a pseudo-header is part of the message itself";
    check(edit(":path", false), &format!("{place}header `:path` cannot be edited: {pseudo}"));
}
