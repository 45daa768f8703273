//! What a request may cost, in steps. Every way in which a request can cause work exhausts the budget, fails its step,
//! and leaves the rest to later steps.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use common::{Driver, Writer};
use postern_engine::{Decision, Plan, Verdict, budget::STEPS};
use postern_proto::plan::v1::{
    self as wire,
    expression::{Attribute, Call, Comprehension, Constant, Function, Macro, Member, Node, constant, node},
    step::Policy,
};
use prost::Message;

const EXHAUSTED: Option<(u16, &str)> = Some((500, "budget_exhausted"));

fn expression(kinds: Vec<node::Kind>) -> wire::Expression {
    wire::Expression { nodes: kinds.into_iter().map(|kind| Node { kind: Some(kind), column: 1 }).collect() }
}

fn text(text: &str) -> node::Kind {
    node::Kind::Constant(Constant { kind: Some(constant::Kind::String(text.into())) })
}

/// `request.headers['x-a'].matches(pattern)`.
fn matches(pattern: &str) -> wire::Expression {
    let header = Member { attribute: Attribute::RequestHeaders.into(), key: "x-a".into() };
    let call = Call { function: Function::Matches.into(), arguments: vec![0, 1] };
    expression(vec![node::Kind::Member(header), text(pattern), node::Kind::Call(call)])
}

/// A `validate` step of `count` rules with this expression.
fn rules(writer: &mut Writer, count: usize, rule: wire::Expression) -> wire::Step {
    writer.plan.expressions.push(rule);
    let expression = writer.plan.expressions.len().try_into().unwrap();
    let rule = wire::validate::Rule { expression, message: writer.string("no") };
    writer.step("validate", Policy::Validate(wire::Validate { rules: vec![rule; count], status: 400 }))
}

fn decide(steps: Vec<wire::Step>, writer: &mut Writer, headers: &[(&str, &[u8])]) -> Option<(u16, &'static str)> {
    writer.route("r", steps, vec![]);
    denial(&Driver::request(headers).run(&writer.load(), "r").unwrap())
}

fn denial(decision: &Decision) -> Option<(u16, &'static str)> {
    match &decision.verdict {
        Verdict::Deny(response) | Verdict::Respond(response) => Some((response.status, decision.reason.unwrap())),
        Verdict::Continue(_) => None,
    }
}

#[test]
fn a_rewrite_looks_at_no_path_that_is_too_long() {
    let check = |length: usize, expect| {
        let mut writer = Writer::new();
        let (pattern, to) = (writer.string("(a|b|ab)*c"), writer.string("/"));
        let to = vec![wire::RewritePart { part: Some(wire::rewrite_part::Part::Text(to)) }];
        let path = Some(wire::rewrite::Path::Regex(wire::RegexRewrite { pattern, to }));
        let step = writer.step("rewrite", Policy::Rewrite(wire::Rewrite { path, ..Default::default() }));
        let path = ["/", &"ab".repeat(length / 2)].concat();
        assert_eq!(decide(vec![step], &mut writer, &[(":path", path.as_bytes())]), expect, "{length}");
    };
    check(100, Some((404, "path_unmatched")));
    check(8_000, EXHAUSTED);
    check(59_000, Some((414, "path_too_long")));
}

#[test]
fn all_rules_of_a_chain_share_one_budget() {
    let check = |count: usize, length: usize, expect| {
        let mut writer = Writer::new();
        let step = rules(&mut writer, count, matches("^[a-z]+$"));
        assert_eq!(decide(vec![step], &mut writer, &[("x-a", "a".repeat(length).as_bytes())]), expect, "{count}");
    };
    check(1, 2_000, None);
    check(10, 2_000, EXHAUSTED);
    check(10, 200, None);
    check(1, 59_000, EXHAUSTED);
}

#[test]
fn rules_of_several_steps_share_it_too() {
    let mut writer = Writer::new();
    let steps: Vec<_> = (0..10).map(|_| rules(&mut writer, 1, matches("^[a-z]+$"))).collect();
    assert_eq!(decide(steps, &mut writer, &[("x-a", "a".repeat(2_000).as_bytes())]), EXHAUSTED);
}

/// A long pattern is charged for its states before it is searched, so the search is never started.
#[test]
fn a_pattern_that_does_not_fit_costs_nothing() {
    let mut writer = Writer::new();
    let mut dear = rules(&mut writer, 1, matches("(a?){200}b"));
    dear.on_failure = wire::OnFailure::Continue.into();
    let cheap = rules(&mut writer, 1, matches("^[a-z]+$"));
    assert_eq!(decide(vec![dear, cheap], &mut writer, &[("x-a", "a".repeat(2_000).as_bytes())]), None);
}

/// With `onFailure: continue` a failed step is skipped. Later steps still decide, and fail closed.
#[test]
fn a_later_step_decides_with_what_is_left() {
    let spend_all = |writer: &mut Writer| {
        let mut steps: Vec<_> = (0..12).map(|_| rules(writer, 1, matches("^[a-z]+$"))).collect();
        steps.iter_mut().for_each(|step| step.on_failure = wire::OnFailure::Continue.into());
        steps
    };
    let header = "a".repeat(2_000);
    let headers: &[(&str, &[u8])] = &[("x-a", header.as_bytes())];
    let mut writer = Writer::new();
    let mut steps = spend_all(&mut writer);
    steps.push(writer.key_step());
    assert_eq!(decide(steps, &mut writer, headers), Some((401, "key_missing")));
    let mut writer = Writer::new();
    let mut steps = spend_all(&mut writer);
    steps.push(rules(&mut writer, 1, matches("^[a-z]+$")));
    assert_eq!(decide(steps, &mut writer, headers), EXHAUSTED);
}

#[test]
fn a_step_in_shadow_mode_takes_nothing_from_the_others() {
    let mut writer = Writer::new();
    let shadow = wire::Step { shadow: true, ..rules(&mut writer, 12, matches("^[a-z]+$")) };
    let enforced = rules(&mut writer, 4, matches("^[a-z]+$"));
    assert_eq!(decide(vec![shadow, enforced], &mut writer, &[("x-a", "a".repeat(2_000).as_bytes())]), None);
}

#[test]
fn a_response_goes_on_from_what_its_request_left() {
    let check = |request: usize, expect| {
        let mut writer = Writer::new();
        let steps = (0..request).map(|_| rules(&mut writer, 1, matches("^[a-z]+$"))).collect();
        let mut mark = writer.set_step("mark", "x-b", "1");
        mark.when = writer.plan.expressions.len().try_into().unwrap();
        writer.route("r", steps, vec![mark]);
        let header = "a".repeat(2_000);
        let (request, response) = Driver::request(&[("x-a", header.as_bytes())]).run_both(&writer.load(), "r");
        assert_eq!((denial(&request), denial(&response.unwrap())), (None, expect));
    };
    check(1, None);
    check(4, EXHAUSTED);
}

fn schema_step(writer: &mut Writer, schema: wire::Schema) -> wire::Step {
    let content_types = vec![writer.string("application/json")];
    let policy = wire::JsonSchema { schemas: vec![schema], content_types, status: 400, ..Default::default() };
    writer.step("jsonSchema", Policy::JsonSchema(policy))
}

fn check_body(writer: &mut Writer, step: wire::Step, body: Vec<u8>) -> Option<(u16, &'static str)> {
    let request = Some(wire::Steps { steps: vec![step], unsupported: vec![] });
    writer.chain("r", wire::Chain { request, body_limit: 1 << 20, ..Default::default() });
    let mut driver = Driver { body, ..Driver::request(&[("content-type", b"application/json")]) };
    denial(&driver.run(&writer.load(), "r").unwrap())
}

#[test]
fn a_pattern_of_a_schema_is_charged_for_the_whole_text() {
    let check = |pattern: &str, length: usize, expect| {
        let mut writer = Writer::new();
        let text = wire::TextRules { patterns: vec![writer.string(pattern)], ..Default::default() };
        let step = schema_step(&mut writer, wire::Schema { text: Some(text), ..Default::default() });
        let body = format!("\"{}\"", "a".repeat(length)).into_bytes();
        assert_eq!(check_body(&mut writer, step, body), expect, "{pattern} {length}");
    };
    check("^([a-c]?[a-d]?){30}e?", 1_000, EXHAUSTED);
    check("^([a-c]?[a-d]?){30}e?", 250_000, EXHAUSTED);
    check("^a", 8_000, None);
    check("^[a-z]*$", 4_000, None);
}

/// A body adds to the budget what reading it costs, whatever its size. Sorting it is not linear, and exhausts the
/// budget.
#[test]
fn a_large_body_may_be_read_but_not_sorted() {
    let ones = || ["[1", &",1".repeat(400_000), "]"].concat().into_bytes();
    let mut writer = Writer::new();
    let step = schema_step(&mut writer, wire::Schema { types: 1 << 3, ..Default::default() });
    assert_eq!(check_body(&mut writer, step, ones()), None);
    let mut writer = Writer::new();
    let array = Some(wire::ArrayRules { unique: true, ..Default::default() });
    let step = schema_step(&mut writer, wire::Schema { array, ..Default::default() });
    assert_eq!(check_body(&mut writer, step, ones()), EXHAUSTED);
}

/// A number of many digits is compared with each of many short ones: both sides are charged.
#[test]
fn a_long_number_among_short_ones_runs_out() {
    let mut writer = Writer::new();
    let array = Some(wire::ArrayRules { unique: true, ..Default::default() });
    let step = schema_step(&mut writer, wire::Schema { array, ..Default::default() });
    let numbers: Vec<_> = (0..2_000).map(|number: u32| number.to_string()).collect();
    let body = format!("[{},{}]", "9".repeat(20_000), numbers.join(",")).into_bytes();
    assert_eq!(check_body(&mut writer, step, body), EXHAUSTED);
}

/// DER: a tag, a length and contents.
fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let size = contents.len();
    let length = match size {
        0..128 => vec![u8::try_from(size).unwrap()],
        _ => [&[0x82][..], &u16::try_from(size).unwrap().to_be_bytes()].concat(),
    };
    [&[tag][..], &length, contents].concat()
}

/// A key that made no signature. Any odd number of its size will do.
fn rsa_4096(algorithm: wire::SignatureAlgorithm, seed: u8) -> wire::VerificationKey {
    let modulus = [&[0, 0xf1][..], &[seed; 510], &[0x0f]].concat();
    let key = der(0x30, &[der(2, &modulus), der(2, &[1, 0, 1])].concat());
    let oid = [der(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]), der(5, &[])].concat();
    let info = der(0x30, &[der(0x30, &oid), der(3, &[&[0][..], &key].concat())].concat());
    let material = Some(wire::verification_key::Material::Rsa(info));
    wire::VerificationKey { id: 0, algorithms: vec![algorithm.into()], material }
}

/// The decision on a token without `kid` that none of the keys signed, and how often the host was asked.
fn try_keys(algorithm: wire::SignatureAlgorithm, keys: u8, word: Option<bool>) -> (Option<(u16, &'static str)>, usize) {
    let mut writer = Writer::new();
    let [empty, joe, header, jwt] = ["", "joe", "x-token", ""].map(|text| writer.string(text));
    let keys = (1..=keys).map(|seed| rsa_4096(algorithm, seed)).collect();
    writer.plan.issuers.push(wire::Issuer { name: joe, issuer: joe, keys, ..Default::default() });
    let policy = wire::JwtValidation {
        issuers: vec![0],
        source: Some(wire::jwt_validation::Source::Header(header)),
        scheme: empty,
        unexpiring: true,
        max_size: 8_192,
        types: vec![jwt],
        ..Default::default()
    };
    let step = writer.step("jwtValidation", Policy::JwtValidation(policy));
    writer.route("r", vec![step], vec![]);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let name = if algorithm == wire::SignatureAlgorithm::Ps256 { "PS256" } else { "RS256" };
    let head = part(&format!(r#"{{"alg":"{name}"}}"#));
    let token = [head, part(r#"{"iss":"joe"}"#), URL_SAFE_NO_PAD.encode([1; 512])].join(".");
    let words = vec![word; 8];
    let mut driver = Driver { words, ..Driver::request(&[("x-token", token.as_bytes())]) };
    let decision = driver.run(&writer.load(), "r").unwrap();
    (denial(&decision), driver.signatures)
}

#[test]
fn one_key_is_always_tried_and_eight_large_ones_never_all() {
    use wire::SignatureAlgorithm::{Ps256, Rs256};
    let wrong = Some((401, "signature_wrong"));
    assert_eq!(try_keys(Ps256, 1, None), (wrong, 0));
    assert_eq!(try_keys(Ps256, 8, None), (EXHAUSTED, 0));
    assert_eq!(try_keys(Rs256, 1, None), (wrong, 1));
    // The host checks the first, cannot tell, and the engine's own check of the second is more than there is.
    assert_eq!(try_keys(Rs256, 8, None), (EXHAUSTED, 2));
    assert_eq!(try_keys(Rs256, 2, Some(false)), (wrong, 2));
    assert_eq!(try_keys(Rs256, 8, Some(false)).0, EXHAUSTED);
}

fn refusal(writer: &Writer) -> String {
    Plan::load(&writer.plan.encode_to_vec()).unwrap_err().to_string()
}

/// `[…].map(x, […].map(y, … ))`, of `depth` lists of 64 elements.
fn nested(depth: u32) -> wire::Expression {
    let list = || {
        let elements = (0..64).map(|number| Constant { kind: Some(constant::Kind::Int(number)) }).collect::<Vec<_>>();
        elements.into_iter().map(node::Kind::Constant)
    };
    let mut kinds = vec![node::Kind::Variable(0)];
    for _ in 0..depth {
        let body = u32::try_from(kinds.len() - 1).unwrap();
        let first = u32::try_from(kinds.len()).unwrap();
        kinds.extend(list());
        let elements = (first..first + 64).collect();
        kinds.push(node::Kind::List(wire::expression::List { elements }));
        let range = u32::try_from(kinds.len() - 1).unwrap();
        kinds.push(node::Kind::Comprehension(Comprehension { r#macro: Macro::Map.into(), range, body, filter: None }));
    }
    expression(kinds)
}

#[test]
fn refuses_to_load_what_can_only_ever_run_out() {
    let mut writer = Writer::new();
    let step = rules(&mut writer, 1, nested(2));
    writer.route("r", vec![step], vec![]);
    assert!(Plan::load(&writer.plan.encode_to_vec()).is_ok());
    let mut writer = Writer::new();
    let step = rules(&mut writer, 1, nested(3));
    writer.route("r", vec![step.clone()], vec![]);
    let message = refusal(&writer);
    assert!(message.starts_with("chain 0: request: step `validate`: it takes "), "{message}");
    assert!(message.ends_with(" steps or more, and a request has 100000: it can only ever fail"), "{message}");
    // A step with a condition need not run, and one that reads a body may be paid for by it.
    writer.plan.chains[0].request =
        Some(wire::Steps { steps: vec![wire::Step { shadow: true, ..step }], unsupported: vec![] });
    assert!(Plan::load(&writer.plan.encode_to_vec()).is_ok());
}

/// `expensive || true`: the expensive side may fail at once, and then the other decides. The fuzz target `expression`
/// found that.
#[test]
fn loads_what_the_other_side_of_an_or_can_pay_for() {
    let mut dear = nested(3).nodes;
    let size = u32::try_from(dear.len()).unwrap();
    let push = |nodes: &mut Vec<Node>, kind| nodes.push(Node { kind: Some(kind), column: 1 });
    let call = |function: Function, arguments| node::Kind::Call(Call { function: function.into(), arguments });
    push(&mut dear, call(Function::Size, vec![size - 1]));
    push(&mut dear, node::Kind::Constant(Constant { kind: Some(constant::Kind::Int(0)) }));
    push(&mut dear, call(Function::Greater, vec![size, size + 1]));
    push(&mut dear, node::Kind::Constant(Constant { kind: Some(constant::Kind::Bool(true)) }));
    push(&mut dear, call(Function::Or, vec![size + 2, size + 3]));
    let mut writer = Writer::new();
    let step = rules(&mut writer, 1, wire::Expression { nodes: dear });
    writer.route("r", vec![step], vec![]);
    assert!(Plan::load(&writer.plan.encode_to_vec()).is_ok());
}

#[test]
fn refuses_a_chain_whose_steps_together_cost_too_much() {
    let mut writer = Writer::new();
    let step = rules(&mut writer, 1, nested(2));
    writer.route("r", vec![step; 40], vec![]);
    assert!(refusal(&writer).contains("it can only ever fail"));
}

/// `a: allOf [b, b]`, `b: allOf [c, c]`, …
#[test]
fn refuses_a_schema_that_doubles() {
    let check = |depth: u32, expect: bool| {
        let mut writer = Writer::new();
        let both = |index: u32| wire::Schema { all_of: vec![index + 2, index + 2], ..Default::default() };
        let mut schemas: Vec<_> = (0..depth).map(both).collect();
        schemas.push(wire::Schema::default());
        let content_types = vec![writer.string("application/json")];
        let policy = wire::JsonSchema { schemas, content_types, status: 400, ..Default::default() };
        let step = writer.step("jsonSchema", Policy::JsonSchema(policy));
        let request = Some(wire::Steps { steps: vec![step], unsupported: vec![] });
        writer.chain("r", wire::Chain { request, body_limit: 1_000, ..Default::default() });
        assert_eq!(Plan::load(&writer.plan.encode_to_vec()).is_ok(), expect, "{depth}");
    };
    check(10, true);
    check(20, false);
}

/// A plan can set a larger budget.
#[test]
fn a_plan_says_what_a_request_may_cost() {
    let mut writer = Writer::new();
    writer.plan.steps = 10 * STEPS;
    let step = rules(&mut writer, 10, matches("^[a-z]+$"));
    writer.route("r", vec![step], vec![]);
    let plan: Arc<Plan> = writer.load();
    let header = "a".repeat(2_000);
    assert_eq!(denial(&Driver::request(&[("x-a", header.as_bytes())]).run(&plan, "r").unwrap()), None);
}
