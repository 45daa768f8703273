//! JSON Schema: any schema that a plan can hold, against any body. It is decided, the same twice, within the budget of a request,
//! and what is not text is never admitted.

#![cfg_attr(fuzzing, no_main)]

use std::sync::Arc;

use postern_engine::{Ask, Inputs, Plan, Run, Turn, Verdict, agent::Health, host::Alone};
use postern_fuzz::{Script, common::Writer, cost};
use postern_proto::plan::v1::{
    self as wire, ArrayRules, JsonSchema, NumberRules, ObjectRules, Schema, TextRules,
    number_rules::Bound,
    object_rules::{Dependency, Property},
    step::Policy,
};
use prost::Message as _;

postern_fuzz::target!(run: run, seeds: seeds);

/// Names, patterns, numbers and values, as far as schemas have them.
const STRINGS: [&str; 16] = [
    "a",
    "b",
    "",
    "^a+$",
    "(a|b)*c",
    "0",
    "1",
    "0.01",
    "-3",
    "1e3",
    "null",
    "[1]",
    "{\"a\":1.0}",
    "\"a\"",
    "true",
    "7",
];

fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let mut writer = Writer::new();
    let strings: Vec<_> = STRINGS.iter().map(|text| writer.string(text)).collect();
    let count = script.below(6) + 1;
    let schemas = (0..count).map(|_| schema(&mut script, count, &strings)).collect();
    let content_types = vec![writer.string("application/json")];
    let policy =
        Policy::JsonSchema(JsonSchema { schemas, content_types, allow_empty: false, status: 400, most_errors: 5 });
    let step = wire::Step { name: writer.string("schema"), policy: Some(policy), ..Default::default() };
    writer.route("r", vec![step], vec![]);
    let Ok(plan) = Plan::load(&writer.plan.encode_to_vec()) else { return };
    let plan = Arc::new(plan);
    let body = script.rest();
    cost::start();
    let reason = decide(&plan, body);
    cost::check(1, plan.steps(), body.len());
    assert_eq!(reason, decide(&plan, body));
    assert!(reason.is_some() || (!body.is_empty() && str::from_utf8(body).is_ok()), "it was admitted");
}

/// Why a body is refused.
fn decide(plan: &Arc<Plan>, body: &[u8]) -> Option<&'static str> {
    let mut run = Run::request(plan, "r", &Health::default())?;
    loop {
        match run.advance(&mut Alone::default()) {
            Turn::Ask(Ask::Inputs(_)) => {
                let mut inputs = Inputs::default();
                inputs.request_headers = [("content-type", "application/json")].into_iter().collect();
                inputs.body = body.to_vec();
                run.give(inputs);
            }
            Turn::Ask(other) => return Some(Box::leak(format!("{other:?}").into_boxed_str())),
            Turn::Done => {
                let decision = run.take_decision();
                assert!(matches!(decision.verdict, Verdict::Continue(_)) == decision.reason.is_none());
                return decision.reason;
            }
        }
    }
}

fn schema(script: &mut Script<'_>, count: usize, strings: &[u32]) -> Schema {
    let mut schema = Schema::default();
    for _ in 0..script.below(5) {
        let mut one = || script.index(count).saturating_add(1);
        match one() {
            _ if script.below(24) == 0 => schema.always = Some(script.flag()),
            1 => schema.types = u32::from(script.byte() & 127),
            2 => schema.values.push(script.pick(strings, 0)),
            3 => schema.object = Some(object(script, count, strings)),
            4 => schema.array = Some(array(script, count)),
            5 => schema.number = Some(number(script, strings)),
            _ => applicator(script, count, strings, &mut schema),
        }
    }
    schema
}

fn applicator(script: &mut Script<'_>, count: usize, strings: &[u32], schema: &mut Schema) {
    let index = script.index(count).saturating_add(1);
    match script.below(8) {
        0 => schema.all_of.push(index),
        1 => schema.any_of.extend([index, script.index(count).saturating_add(1)]),
        2 => schema.one_of.extend([index, script.index(count).saturating_add(1)]),
        3 => schema.not = index,
        4 => (schema.r#if, schema.then, schema.r#else) = (index, script.index(count) + 1, script.index(count) + 1),
        5 => schema.reference = index,
        _ => {
            let (least, most) = (Some(u32::from(script.byte() & 3)), script.flag().then_some(4));
            let format = i32::from(script.byte() % 6);
            schema.text = Some(TextRules { least, most, patterns: vec![script.pick(strings, 0)], format });
        }
    }
}

fn object(script: &mut Script<'_>, count: usize, strings: &[u32]) -> ObjectRules {
    let mut property = || Property { name: script.pick(strings, 0), schema: script.index(count).saturating_add(1) };
    let (properties, patterns, dependent_schemas) = (vec![property(), property()], vec![property()], vec![property()]);
    ObjectRules {
        properties,
        patterns,
        dependent_schemas,
        additional: script.index(count),
        names: script.index(count),
        required: vec![script.pick(strings, 0)],
        least: None,
        most: script.flag().then_some(3),
        dependent_required: vec![Dependency { name: script.pick(strings, 0), required: vec![script.pick(strings, 0)] }],
    }
}

fn array(script: &mut Script<'_>, count: usize) -> ArrayRules {
    ArrayRules {
        prefix: vec![script.index(count).saturating_add(1)],
        items: script.index(count),
        contains: script.index(count),
        contains_least: script.flag().then_some(2),
        contains_most: script.flag().then_some(3),
        least: None,
        most: None,
        unique: script.flag(),
    }
}

fn number(script: &mut Script<'_>, strings: &[u32]) -> NumberRules {
    let mut bound = || Bound { number: script.pick(strings, 0), exclusive: script.flag() };
    let (least, most) = (vec![bound()], vec![bound()]);
    NumberRules { least, most, multiple_of: vec![script.pick(strings, 0)] }
}

fn seeds() -> Vec<Vec<u8>> {
    let bodies: [&[u8]; 6] = [
        br#"{"a":[1,2.50,{"b":"c"}],"b":null}"#,
        b"[[[[[[[[[[1]]]]]]]]]]",
        b"[1,1.0,true,\"a\",\"\\u0061\"]",
        b"1e999",
        b"{\"a\":1,\"a\":2}",
        b"\"\xff\"",
    ];
    let scripts = (0..24_u8).map(|kind| [[kind; 7], [kind.wrapping_mul(37); 7], [kind.wrapping_add(90); 7]].concat());
    scripts.zip(bodies.iter().cycle()).map(|(script, body)| [&script, *body].concat()).collect()
}
