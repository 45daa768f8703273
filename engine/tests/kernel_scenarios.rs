//! The worked scenarios of the policy kernel document, named after its sections; docs/rules.md has its rules. The
//! driver plays the agents: it answers the engine's questions from a script.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod common;

use std::sync::Arc;

use common::{Driver, Writer};
use postern_engine::{
    Decision, Inputs, Plan, Response, Run, Turn, Verdict,
    agent::{CallError, Health, Instruction, Outcome, Reply},
    run::Cause,
};
use postern_proto::plan::v1::{
    Answer, Chain, Expression, HeaderValue, OnFailure, Step, Steps,
    expression::{Attribute, Call, Constant, Function, Member, Node, constant, node},
};

fn set(name: &str, value: &str) -> Instruction {
    Instruction::SetHeader(name.into(), value.into())
}

fn allowed(instructions: Vec<Instruction>) -> Result<Reply, CallError> {
    Ok(Reply { instructions, ..Reply::default() })
}

fn denied(response: Response) -> Result<Reply, CallError> {
    let instructions = vec![Instruction::Respond(response)];
    Ok(Reply { outcome: Outcome::Denied, instructions, ..Reply::default() })
}

fn run(plan: &Arc<Plan>, healthy: &[bool], replies: Vec<Result<Reply, CallError>>) -> (Decision, Driver) {
    let mut driver = Driver { healthy: healthy.to_vec(), replies, ..Driver::request(&[]) };
    let decision = driver.run(plan, "route").unwrap();
    (decision, driver)
}

fn calls(driver: &Driver) -> Vec<String> {
    let call = |call: &postern_engine::agent::Call| {
        let policies: Vec<_> = call.policies.iter().map(|policy| &*policy.name).collect();
        format!("{}: {}", call.name, policies.join(" "))
    };
    driver.calls.iter().map(call).collect()
}

fn edits(decision: &Decision) -> Vec<String> {
    let Verdict::Continue(edits) = &decision.verdict else { panic!("{decision:?}") };
    edits.headers().map(|edit| format!("{}={}", edit.name, edit.values.join(","))).collect()
}

fn refusal(decision: &Decision) -> (u16, &str, String) {
    let Verdict::Deny(response) = &decision.verdict else { panic!("{decision:?}") };
    let body = String::from_utf8(response.body.clone()).unwrap();
    (response.status, decision.reason.unwrap(), body)
}

/// Agents by name, and a chain of policies with the agents that support each.
fn plan(agents: &[&str], policies: &[(&str, &[u32])]) -> Writer {
    let mut writer = Writer::new();
    for agent in agents {
        writer.agent(agent, false);
    }
    let steps = policies.iter().map(|(policy, agents)| writer.agent_step(policy, agents)).collect();
    writer.route("route", steps, vec![]);
    writer
}

fn steps(writer: &mut Writer) -> &mut Vec<Step> {
    &mut writer.plan.chains[0].request.as_mut().unwrap().steps
}

#[test]
fn section_6_2_maps_policies_to_agents_in_the_order_of_the_chain() {
    let writer = plan(
        &["auth-agent", "rate-limiter-agent"],
        &[("apiKeyAuth", &[0]), ("rateLimit", &[1]), ("jwtValidation", &[0])],
    );
    let (decision, driver) = run(&writer.load(), &[], vec![allowed(vec![]), allowed(vec![]), allowed(vec![])]);
    assert!(matches!(decision.verdict, Verdict::Continue(_)));
    assert_eq!(
        calls(&driver),
        ["auth-agent: apiKeyAuth", "rate-limiter-agent: rateLimit", "auth-agent: jwtValidation"]
    );
}

#[test]
fn section_6_4_asks_one_agent_for_consecutive_policies_at_once() {
    let writer = plan(
        &["auth-agent", "rate-limiter"],
        &[("auth1", &[0]), ("auth2", &[0]), ("rateLimit", &[1]), ("auth3", &[0])],
    );
    let (_, driver) = run(&writer.load(), &[], vec![allowed(vec![]), allowed(vec![]), allowed(vec![])]);
    assert_eq!(calls(&driver), ["auth-agent: auth1 auth2", "rate-limiter: rateLimit", "auth-agent: auth3"]);
}

#[test]
fn section_6_4_prefers_a_healthy_agent() {
    let writer = plan(&["first", "second"], &[("auth", &[0, 1])]);
    let (_, driver) = run(&writer.load(), &[false, true], vec![allowed(vec![])]);
    assert_eq!(calls(&driver), ["second: auth"]);
}

#[test]
fn section_6_5_scenario_1_runs_the_full_chain_when_all_agents_are_healthy() {
    let writer =
        plan(&["auth-agent", "rate-limiter"], &[("apiKeyAuth", &[0]), ("rateLimit", &[1]), ("jwtValidation", &[0])]);
    let replies = vec![allowed(vec![set("x-a", "1")]), allowed(vec![]), allowed(vec![set("x-b", "2")])];
    let (decision, driver) = run(&writer.load(), &[true, true], replies);
    assert_eq!(edits(&decision), ["x-a=1", "x-b=2"]);
    assert_eq!(driver.calls.len(), 3);
}

/// A chain with `auditLog`, which nobody supports. The control plane notes that in the plan.
fn with_unsupported_policy() -> Writer {
    let mut writer = plan(&["auth-agent"], &[("jwtValidation", &[0]), ("roleCheck", &[0])]);
    let name = writer.string("auditLog");
    writer.plan.chains[0].request.as_mut().unwrap().unsupported.push(name);
    writer
}

#[test]
fn section_6_5_scenario_2_answers_500_when_no_agent_supports_a_policy() {
    let (decision, driver) = run(&with_unsupported_policy().load(), &[], vec![]);
    let expect = r#"{"error": "Policy configuration error", "code": "POLICY_NOT_SUPPORTED"}"#;
    assert_eq!(refusal(&decision), (500, "policy_not_supported", expect.to_owned()));
    let Verdict::Deny(response) = &decision.verdict else { panic!("denied") };
    for (name, value) in [("content-type", "application/json"), ("x-policy-error", "configuration")] {
        assert!(response.headers.contains(&(name.into(), value.into())), "{name}: {:?}", response.headers);
    }
    assert_eq!(decision.step.as_deref(), Some("auditLog"));
    assert!(driver.calls.is_empty(), "the entire chain is skipped");
}

#[test]
fn section_6_5_scenario_3_answers_503_when_an_agent_is_unhealthy() {
    let writer = plan(&["auth-agent", "transform-agent"], &[("auth", &[0]), ("transform", &[1])]);
    let (decision, driver) = run(&writer.load(), &[true, false], vec![]);
    let expect = r#"{"error": "Policy service temporarily unavailable", "code": "AGENT_UNAVAILABLE"}"#;
    assert_eq!(refusal(&decision), (503, "agent_unavailable", expect.to_owned()));
    let Verdict::Deny(response) = &decision.verdict else { panic!("denied") };
    for (name, value) in [("retry-after", "30"), ("content-type", "application/json"), ("x-policy-error", "temporary")]
    {
        assert!(response.headers.contains(&(name.into(), value.into())), "{name}: {:?}", response.headers);
    }
    assert!(driver.calls.is_empty(), "the entire chain is skipped");
}

#[test]
fn section_6_5_scenario_4_answers_503_when_all_agents_of_a_policy_are_unhealthy() {
    let writer = plan(&["auth-agent-1", "auth-agent-2", "encrypt-agent"], &[("auth", &[0, 1]), ("encrypt", &[2])]);
    let (decision, driver) = run(&writer.load(), &[false, false, true], vec![]);
    assert_eq!(refusal(&decision).0, 503);
    assert!(driver.calls.is_empty());
    let (decision, _) = run(&writer.load(), &[false, true, true], vec![allowed(vec![]), allowed(vec![])]);
    assert!(matches!(decision.verdict, Verdict::Continue(_)), "one that recovers is enough");
}

#[test]
fn section_6_5_scenario_5_lets_an_unknown_route_pass() {
    let writer = plan(&[], &[]);
    assert!(Driver::request(&[]).run(&writer.load(), "unknown").is_none());
}

#[test]
fn section_6_5_applies_to_the_response_chain_by_itself() {
    let mut writer = Writer::new();
    let agent = writer.agent("auth-agent", false);
    let audit = writer.string("auditLog");
    let request = Some(Steps { steps: vec![writer.agent_step("auth", &[agent])], unsupported: vec![] });
    let response = Some(Steps { steps: vec![], unsupported: vec![audit] });
    writer.chain("route", Chain { request, response, ..Default::default() });
    let mut driver = Driver { replies: vec![allowed(vec![])], ..Driver::request(&[]) };
    let (request, response) = driver.run_both(&writer.load(), "route");
    assert!(matches!(request.verdict, Verdict::Continue(_)));
    assert_eq!(refusal(&response.unwrap()).0, 500);

    // The same for an agent that only the response needs.
    let mut writer = Writer::new();
    let [healthy, unhealthy] = ["auth-agent", "audit-agent"].map(|name| writer.agent(name, false));
    let request = vec![writer.agent_step("auth", &[healthy])];
    let response = vec![writer.agent_step("mark", &[healthy]), writer.agent_step("audit", &[unhealthy])];
    writer.route("route", request, response);
    let mut driver = Driver { healthy: vec![true, false], replies: vec![allowed(vec![])], ..Driver::request(&[]) };
    let (request, response) = driver.run_both(&writer.load(), "route");
    assert!(matches!(request.verdict, Verdict::Continue(_)));
    assert_eq!(refusal(&response.unwrap()).0, 503);
    assert_eq!(calls(&driver), ["auth-agent: auth"], "no step of the response has run");
}

#[test]
fn section_6_3_the_response_phase_calls_agents_in_the_order_of_its_chain() {
    let mut writer = Writer::new();
    let [one, two] = ["one", "two"].map(|name| writer.agent(name, false));
    let response = vec![
        writer.agent_step("first", &[one]),
        writer.agent_step("second", &[two]),
        writer.agent_step("third", &[one]),
    ];
    writer.route("route", vec![], response);
    let replies = [("x-1", "a"), ("x-2", "b"), ("x-1", "c")].map(|(name, value)| allowed(vec![set(name, value)]));
    let mut driver = Driver { replies: replies.to_vec(), ..Driver::request(&[]) };
    let (_, response) = driver.run_both(&writer.load(), "route");
    assert_eq!(calls(&driver), ["one: first", "two: second", "one: third"]);
    assert_eq!(edits(&response.unwrap()), ["x-1=c", "x-2=b"]);
}

#[test]
fn section_4_3_both_answers_can_be_configured() {
    let mut writer = with_unsupported_policy();
    let header = HeaderValue { name: writer.string("content-type"), value: writer.string("text/plain") };
    let body = writer.string("Server configuration error.");
    writer.plan.policy_not_supported = Some(Answer { status: 501, headers: vec![header], body });
    let (decision, _) = run(&writer.load(), &[], vec![]);
    assert_eq!(refusal(&decision), (501, "policy_not_supported", "Server configuration error.".to_owned()));
    let Verdict::Deny(response) = &decision.verdict else { panic!("denied") };
    assert_eq!(response.headers, [("content-type".into(), "text/plain".into())], "and no default ones");

    let mut writer = plan(&["a"], &[("auth", &[0])]);
    let body = writer.string("Service maintenance.");
    writer.plan.agent_unavailable = Some(Answer { status: 599, headers: vec![], body });
    let (decision, _) = run(&writer.load(), &[false], vec![]);
    assert_eq!(refusal(&decision), (599, "agent_unavailable", "Service maintenance.".to_owned()));
}

#[test]
fn section_8_1_agent_timeout_continues_or_denies_by_fail_open() {
    for (fail_open, expect) in [(true, "verdict=allow failed=auth:agent_timeout"), (false, "verdict=deny")] {
        let mut writer = plan(&["agent"], &[("auth", &[0])]);
        writer.plan.agents[0].fail_open = fail_open;
        let (decision, _) = run(&writer.load(), &[], vec![Err(CallError::Timeout)]);
        assert!(decision.account("r", "route").starts_with(expect), "{decision:?}");
    }
}

#[test]
fn section_8_1_invalid_agent_response_denies_with_500() {
    let (decision, _) = run(&plan(&["agent"], &[("auth", &[0])]).load(), &[], vec![Err(CallError::Invalid)]);
    assert_eq!((refusal(&decision).0, refusal(&decision).1), (500, "agent_answer_invalid"));
}

#[test]
fn section_8_1_policy_failure_depends_on_on_failure() {
    for (on_failure, expect) in [
        (OnFailure::Deny, "verdict=deny step=first reason=agent_failed"),
        (OnFailure::Continue, "verdict=allow failed=first:agent_failed"),
        (OnFailure::SkipRemaining, "verdict=allow skipped=first:agent_failed"),
    ] {
        let mut writer = plan(&["agent", "other"], &[("first", &[0]), ("second", &[1])]);
        steps(&mut writer)[0].on_failure = on_failure.into();
        let failed = Ok(Reply { outcome: Outcome::Failed, ..Reply::default() });
        let (decision, driver) = run(&writer.load(), &[], vec![failed, allowed(vec![])]);
        assert!(decision.account("r", "route").starts_with(expect), "{decision:?}");
        assert_eq!(driver.calls.len(), if on_failure == OnFailure::Continue { 2 } else { 1 });
    }
}

#[test]
fn section_8_2_agent_that_fails_mid_chain_leaves_earlier_results() {
    for (on_failure, expect) in
        [(OnFailure::Continue, vec!["x-1=a", "x-3=c"]), (OnFailure::SkipRemaining, vec!["x-1=a"])]
    {
        let mut writer = plan(&["one", "two", "three"], &[("p1", &[0]), ("p2", &[1]), ("p3", &[2])]);
        steps(&mut writer)[1].on_failure = on_failure.into();
        let replies = vec![allowed(vec![set("x-1", "a")]), Err(CallError::Unreachable), allowed(vec![set("x-3", "c")])];
        let (decision, _) = run(&writer.load(), &[], replies);
        assert_eq!(edits(&decision), expect);
    }
}

#[test]
fn section_8_2_denial_after_a_mid_chain_failure_applies_nothing() {
    let mut writer = plan(&["one", "two"], &[("p1", &[0]), ("p2", &[1])]);
    steps(&mut writer)[1].on_failure = OnFailure::Deny.into();
    let replies = vec![allowed(vec![set("x-1", "a")]), Err(CallError::Timeout)];
    let (decision, _) = run(&writer.load(), &[], replies);
    assert_eq!((refusal(&decision).0, refusal(&decision).1), (503, "agent_timeout"));
}

#[test]
fn section_8_2_an_invalid_answer_goes_by_on_failure() {
    for (on_failure, expect) in [
        (OnFailure::Deny, "verdict=deny step=first reason=agent_answer_invalid"),
        (OnFailure::Continue, "verdict=allow failed=first:agent_answer_invalid"),
        (OnFailure::SkipRemaining, "verdict=allow skipped=first:agent_answer_invalid"),
    ] {
        let mut writer = plan(&["agent", "other"], &[("first", &[0]), ("second", &[1])]);
        steps(&mut writer)[0].on_failure = on_failure.into();
        let (decision, driver) = run(&writer.load(), &[], vec![Err(CallError::Invalid), allowed(vec![])]);
        assert!(decision.account("r", "route").starts_with(expect), "{decision:?}");
        assert_eq!(driver.calls.len(), if on_failure == OnFailure::Continue { 2 } else { 1 });
    }
}

/// The document uses `onFailure` of the first policy of a group, which could lose a denial that a user wrote.
#[test]
fn section_8_2_a_failed_group_goes_by_its_strictest_policy() {
    use OnFailure::{Continue, Deny, SkipRemaining, Unspecified};
    for (first, second, expect) in [
        (Continue, Deny, "verdict=deny step=p1 reason=agent_timeout"),
        (Deny, Continue, "verdict=deny step=p1 reason=agent_timeout"),
        (SkipRemaining, Unspecified, "verdict=deny step=p1 reason=agent_timeout"),
        (SkipRemaining, Continue, "verdict=allow failed=p1:agent_timeout"),
        (Continue, Continue, "verdict=allow failed=p1:agent_timeout"),
        (SkipRemaining, SkipRemaining, "verdict=allow skipped=p1:agent_timeout"),
    ] {
        let mut writer = plan(&["one", "two"], &[("p1", &[0]), ("p2", &[0]), ("p3", &[1])]);
        steps(&mut writer)[0].on_failure = first.into();
        steps(&mut writer)[1].on_failure = second.into();
        let replies = vec![Err(CallError::Timeout), allowed(vec![set("x-3", "c")])];
        let (decision, driver) = run(&writer.load(), &[], replies);
        let account = decision.account("r", "route");
        assert!(account.starts_with(expect), "{first:?} {second:?}: {account}");
        let goes_on = account.contains(" failed=");
        let expect: &[&str] = if goes_on { &["one: p1 p2", "two: p3"] } else { &["one: p1 p2"] };
        assert_eq!(calls(&driver), expect, "{first:?} {second:?}");
    }
}

#[test]
fn section_9_1_last_instruction_wins_and_the_conflict_is_counted() {
    let writer = plan(&["agent1", "agent2"], &[("p1", &[0]), ("p2", &[1])]);
    let replies = vec![allowed(vec![set("x-user-id", "123")]), allowed(vec![set("x-user-id", "456")])];
    let (decision, _) = run(&writer.load(), &[], replies);
    assert_eq!(edits(&decision), ["x-user-id=456"]);
    assert!(decision.account("r", "route").contains(" conflicts=1 "), "{decision:?}");
}

#[test]
fn section_9_1_removal_drops_earlier_sets() {
    let writer = plan(&["agent1", "agent2"], &[("p1", &[0]), ("p2", &[1])]);
    let replies = vec![allowed(vec![set("x-a", "1")]), allowed(vec![Instruction::RemoveHeader("x-a".into())])];
    let (decision, _) = run(&writer.load(), &[], replies);
    assert_eq!(edits(&decision), ["x-a="]);
}

#[test]
fn section_9_1_last_body_wins_and_metadata_is_merged() {
    let writer = plan(&["agent1", "agent2"], &[("p1", &[0]), ("p2", &[1])]);
    let reply = |body: &str, key: &str| {
        let metadata = [(key.to_owned(), "v".to_owned()), ("both".to_owned(), key.to_owned())].into();
        Ok(Reply { instructions: vec![Instruction::SetBody(body.into())], metadata, ..Reply::default() })
    };
    let (decision, _) = run(&writer.load(), &[], vec![reply("first", "one"), reply("last", "two")]);
    let Verdict::Continue(edits) = &decision.verdict else { panic!("continued") };
    assert_eq!(edits.body(), Some(&b"last"[..]));
}

/// `metadata[key] == value`.
fn metadata_is(key: &str, value: &str) -> Expression {
    let member = node::Kind::Member(Member { attribute: Attribute::Metadata.into(), key: key.into() });
    let text = node::Kind::Constant(Constant { kind: Some(constant::Kind::String(value.into())) });
    let equal = node::Kind::Call(Call { function: Function::Equal.into(), arguments: vec![0, 1] });
    Expression { nodes: [member, text, equal].map(|kind| Node { kind: Some(kind), column: 1 }).into() }
}

#[test]
fn section_9_1_metadata_of_all_agents_is_merged_and_the_last_value_of_a_key_wins() {
    let reply = |entries: &[(&str, &str)]| {
        let metadata = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Ok(Reply { metadata, ..Reply::default() })
    };
    for (key, value, runs) in [("one", "1", true), ("two", "2", true), ("both", "last", true), ("both", "first", false)]
    {
        let mut writer = plan(&["agent1", "agent2"], &[("p1", &[0]), ("p2", &[1])]);
        writer.plan.expressions.push(metadata_is(key, value));
        let mut mark = writer.set_step("mark", "x-mark", "a");
        mark.when = 1;
        steps(&mut writer).push(mark);
        let replies = vec![reply(&[("one", "1"), ("both", "first")]), reply(&[("two", "2"), ("both", "last")])];
        let (decision, _) = run(&writer.load(), &[], replies);
        let expect: &[&str] = if runs { &["x-mark=a"] } else { &[] };
        assert_eq!(edits(&decision), expect, "{key} {value}");
    }
}

/// The line about a chain that cannot run.
fn notice(plan: &Arc<Plan>, healthy: &[bool]) -> (Option<Cause>, String) {
    let mut run = Run::request(plan, "route", &Health::new(healthy.to_vec())).unwrap();
    assert!(matches!(run.advance(&mut Driver::request(&[])), Turn::Done));
    let decision = run.take_decision();
    (Cause::of(&decision), run.notice(&decision, 7).unwrap())
}

#[test]
fn section_6_5_names_in_a_line_what_nobody_supports() {
    let (cause, line) = notice(&with_unsupported_policy().load(), &[]);
    assert_eq!(cause, Some(Cause::PolicyNotSupported));
    assert_eq!(
        line,
        r#"{"message":"policy not supported by any agent","route":"route","unsupported_policies":["auditLog"],"available_agents":["auth-agent"],"error_type":"POLICY_NOT_SUPPORTED","response_status":500,"action":"IMMEDIATE_RESPONSE","retry_after":null,"suppressed":7}"#
    );
}

#[test]
fn section_6_5_names_in_a_line_the_agents_that_are_not_healthy() {
    let writer = plan(&["good", "one", "two"], &[("auth", &[0]), ("transform", &[2, 1]), ("sign", &[2])]);
    let (cause, line) = notice(&writer.load(), &[true, false, false]);
    assert_eq!(cause, Some(Cause::AgentUnavailable));
    assert_eq!(
        line,
        r#"{"message":"all supporting agents unhealthy","route":"route","affected_policies":["transform","sign"],"unhealthy_agents":["one","two"],"error_type":"AGENT_UNAVAILABLE","response_status":503,"action":"IMMEDIATE_RESPONSE","retry_after":"30","suppressed":7}"#
    );
}

#[test]
fn section_6_5_has_no_line_for_a_chain_that_ran() {
    let mut writer = Writer::new();
    let key = writer.key_step();
    writer.route("route", vec![key], vec![]);
    let plan = writer.load();
    let mut run = Run::request(&plan, "route", &Health::default()).unwrap();
    let mut driver = Driver::request(&[]);
    let needs = run.foresee();
    assert!(!needs.is_empty());
    run.give(Inputs::default());
    assert!(matches!(run.advance(&mut driver), Turn::Done));
    let decision = run.take_decision();
    assert_eq!((decision.reason, run.notice(&decision, 0)), (Some("key_missing"), None));
}

#[test]
fn section_9_1_short_circuits_on_denial() {
    let writer = plan(&["agent1", "agent2", "agent3"], &[("p1", &[0]), ("p2", &[1]), ("p3", &[2])]);
    let response = Response { status: 403, headers: vec![], body: b"no".to_vec() };
    let (decision, driver) = run(&writer.load(), &[], vec![allowed(vec![set("x-1", "a")]), denied(response.clone())]);
    assert_eq!(decision.verdict, Verdict::Deny(response));
    assert_eq!(decision.step.as_deref(), Some("p2"));
    assert_eq!(driver.calls.len(), 2, "the third agent is not asked");
}
