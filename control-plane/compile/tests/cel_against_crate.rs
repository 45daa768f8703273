//! Compares our evaluation of thousands of generated expressions, well-typed and ill-typed, with that of the crate
//! `cel`. Where the two differ, the CEL language definition (langdef) decides. Every allowed difference is in
//! [`DIFFERENCES`], and any other one fails the test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod cel_generator;

use std::{
    cell::Cell,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use cel::{Context, Env, Value as Theirs, extensions, objects::Key as TheirKey};
use cel_generator::{INPUT, expression};
use postern_compile::expression::{Environment, Input, compile, notation};
use postern_engine::{
    budget::Budget,
    cel::{Expression, Key, Timestamp, Value},
};
use proptest::{
    collection::vec,
    prelude::any,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

/// The number of expressions: some seconds.
const CASES: u32 = 3_000;

/// The result of an evaluation: a value in a form that both have, or the text of an error.
type Evaluated = Result<Value, String>;

fn input() -> Input {
    Input::from_json(&serde_json::from_str(INPUT).unwrap()).unwrap()
}

fn ours(text: &str, input: &Input) -> Evaluated {
    let compiled = compile(text, Environment::Request).map_err(|errors| {
        let first = errors.first().expect("at least one error");
        format!("{CHECKED}{first}")
    })?;
    Expression::load(&compiled.wire).unwrap().evaluate(input, &Budget::default()).map_err(|error| error.to_string())
}

fn environment() -> Arc<Env> {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings).unwrap();
    Arc::new(env)
}

fn theirs(text: &str, env: &Arc<Env>) -> Evaluated {
    let program = env.compile(text).map_err(|error| format!("parse: {error}"))?;
    let mut context = Context::with_env(Arc::clone(env));
    for (name, value) in serde_json::from_str::<serde_json::Map<_, _>>(INPUT).unwrap() {
        context.add_variable_from_value(name, from_json(&value));
    }
    match catch_unwind(AssertUnwindSafe(|| program.execute(&context))) {
        Ok(Ok(value)) => convert(&value),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("panic".to_owned()),
    }
}

/// JSON as [`Input`] reads it.
fn from_json(json: &serde_json::Value) -> Theirs {
    match json {
        serde_json::Value::Number(number) if number.is_u64() => Theirs::Int(number.as_i64().unwrap()),
        serde_json::Value::Array(elements) => Theirs::List(Arc::new(elements.iter().map(from_json).collect())),
        serde_json::Value::Object(entries) => {
            let entries: HashMap<String, Theirs> =
                entries.iter().map(|(key, value)| (key.clone(), from_json(value))).collect();
            entries.into()
        }
        scalar => cel::to_value(scalar).unwrap(),
    }
}

fn convert(value: &Theirs) -> Evaluated {
    Ok(match value {
        Theirs::Null => Value::Null,
        Theirs::Bool(value) => Value::Bool(*value),
        Theirs::Int(value) => Value::Int(*value),
        Theirs::UInt(value) => Value::Uint(*value),
        Theirs::Float(value) => Value::Double(*value),
        Theirs::String(value) => Value::from(value.as_str()),
        Theirs::Bytes(value) => Value::from(value.as_slice()),
        Theirs::Timestamp(value) => {
            Timestamp::new(value.timestamp(), value.timestamp_subsec_nanos()).map(Value::Timestamp).ok_or("range")?
        }
        Theirs::Duration(value) => {
            Value::Duration(postern_engine::cel::Duration::from_nanoseconds(value.num_nanoseconds().ok_or("range")?))
        }
        Theirs::List(elements) => elements.iter().map(convert).collect::<Result<Vec<_>, _>>()?.into(),
        Theirs::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| Ok((convert_key(key), convert(value)?)));
            entries.collect::<Result<postern_engine::cel::Map, String>>()?.into()
        }
        other => return Err(format!("not a value: {other:?}")),
    })
}

fn convert_key(key: &TheirKey) -> Key {
    match key {
        TheirKey::Int(value) => Key::Int(*value),
        TheirKey::Uint(value) => Key::Uint(*value),
        TheirKey::Bool(value) => Key::Bool(*value),
        TheirKey::String(value) => Key::from(value.as_str()),
    }
}

/// Whether two results are the same value, or both errors. NaN equals itself here.
fn agree(one: &Evaluated, other: &Evaluated) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => format!("{one:?}") == format!("{other:?}"),
        (one, other) => one.is_err() && other.is_err(),
    }
}

/// An allowed difference between us and the crate.
struct Difference {
    /// The shortest example.
    expression: &'static str,
    /// The result of the crate.
    cel: &'static str,
    /// Our result.
    ours: &'static str,
    /// The clause that decides; sections are those of the language definition (`doc/langdef.md` of cel-spec).
    clause: &'static str,
    /// Whether a difference can be of this kind, by the expression, our result and theirs.
    covers: fn(&str, &Evaluated, &Evaluated) -> bool,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        expression: "duration('1.5s').getMilliseconds()",
        cel: "1500",
        ours: "500",
        clause: "Date/Time Functions, getMilliseconds: the milliseconds portion; it does not convert the duration",
        covers: |text, _, _| text.contains("getMilliseconds"),
    },
    Difference {
        expression: "timestamp('2000-01-01T00:30:00+01:00').getHours()",
        cel: "0",
        ours: "23",
        clause: "Date/Time Functions: without a time zone, parts of a timestamp are in UTC; a timestamp has no offset",
        covers: |text, _, _| text.contains("+01:00"),
    },
    Difference {
        expression: "duration('1h30mX')",
        cel: "duration('5400s')",
        ours: "error: this string cannot be converted to duration",
        clause: "Types and Conversions, duration(string): a sequence of numbers with units, and nothing else",
        covers: |text, ours, _| text.contains("duration((") && ours.is_err(),
    },
    Difference {
        expression: "dyn(null) in {'a': 1}",
        cel: "error: found no matching overload for '@in' applied to '(null_type, map)'",
        ours: "false",
        clause: "Equality: at run time, values of unlike types are unequal; thus no key equals null",
        covers: |text, _, theirs| text.contains(" in ") && theirs.is_err(),
    },
    Difference {
        expression: "dyn(1) < dyn(0.0 / 0.0)",
        cel: "error: found no matching overload for '_<_' applied to '(int, double)'",
        ours: "false",
        clause: "Ordering and Numbers: int and double have an order; NaN compares false with every number",
        covers: |text, _, theirs| {
            let ordered = [" < ", " <= ", " > ", " >= "].iter().any(|sign| text.contains(sign));
            ordered && (text.contains("0.0") || text.contains("NaN")) && theirs.is_err()
        },
    },
    Difference {
        expression: "uint(-0.5)",
        cel: "error: Error executing function 'uint': unsigned integer overflow",
        ours: "0u",
        clause: "Types and Conversions, uint(double): rounds toward zero, errors if (then) out of range",
        covers: |text, _, theirs| text.contains("uint(") && theirs.is_err(),
    },
    Difference {
        expression: "dyn([1]) + dyn({'a': 2})",
        cel: "[1, 'a']",
        ours: "error: + is not defined for list and map",
        clause: "Arithmetic Operators, addition: list(A) + list(A), and no list with a map",
        covers: |text, ours, _| text.contains(" + ") && ours.as_ref().is_err_and(|error| error.starts_with("+ ")),
    },
    Difference {
        expression: "true || request.method.b",
        cel: "true",
        ours: "error: `request.method` is of type string: it has no field `b`",
        clause: "Gradual Type Checking: what can never be evaluated is an error before anything is",
        covers: |_, ours, _| ours.as_ref().is_err_and(|error| error.starts_with(CHECKED)),
    },
    Difference {
        expression: "string(1e30)",
        cel: "'1000000000000000000000000000000'",
        ours: "'1e+30'",
        clause: "none: string(double) is left open; ours is bounded, and the digits of JSON",
        covers: |text, _, _| {
            let extremes = ["1e308", "1e-7", "9223372036854775808", "1844674407370955161"];
            text.contains("string(") && extremes.iter().any(|number| text.contains(number))
        },
    },
    Difference {
        expression: "{'b': 1, 'a': 2}.map(k, k)",
        cel: EITHER,
        ours: "['a', 'b']",
        clause: "Aggregate Values: maps have no order; ours is that of the keys, and always the same",
        covers: |_, ours, theirs| matches!((ours, theirs), (Ok(ours), Ok(theirs)) if sorted(ours) == sorted(theirs)),
    },
    Difference {
        expression: "'abc'.indexOf('d', 3)",
        cel: "error: Error executing function 'indexOf': index out of range: 3",
        ours: "-1",
        clause: "none: an extension; the end is a position, as it is for substring (conformance test `start_with_max_length`)",
        covers: |text, _, theirs| text.contains("indexOf(") && theirs.is_err(),
    },
    Difference {
        expression: "'abc'.indexOf('', 30)",
        cel: "3",
        ours: "error: index out of range",
        clause: "none: an extension; a position past the end is an error (conformance test `indexof_out_of_range`)",
        covers: |text, ours, _| text.contains("indexOf(") && ours.is_err(),
    },
];

/// The crate's result where it changes from run to run.
const EITHER: &str = "either order";
/// The prefix of our errors from before the evaluation.
const CHECKED: &str = "compile: ";

/// The characters of a value without their order.
fn sorted(value: &Value) -> Vec<char> {
    let mut letters: Vec<_> = format!("{value:?}").chars().collect();
    letters.sort_unstable();
    letters
}

fn show(outcome: &Evaluated) -> String {
    match outcome {
        Ok(value) => notation(value),
        Err(error) => format!("error: {}", error.strip_prefix(CHECKED).unwrap_or(error)),
    }
}

#[test]
fn lists_each_difference_as_it_is() {
    let (input, env) = (input(), environment());
    for row in DIFFERENCES {
        assert_eq!(show(&ours(row.expression, &input)), row.ours, "for `{}` by {}", row.expression, row.clause);
        if row.cel != EITHER {
            assert_eq!(show(&theirs(row.expression, &env)), row.cel, "of the crate, for `{}`", row.expression);
        }
    }
}

#[test]
fn agrees_with_the_crate_on_all_else() {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (input, env) = (input(), environment());
    let (values, differences) = (Cell::new(0_u32), Cell::new(0_u32));
    let compared = runner.run(&vec(any::<u8>(), 0..160), |bytes| {
        let text = expression(&bytes);
        let (ours, theirs) = (ours(&text, &input), theirs(&text, &env));
        values.set(values.get() + u32::from(ours.is_ok()));
        if agree(&ours, &theirs) {
            return Ok(());
        }
        differences.set(differences.get() + 1);
        let known = DIFFERENCES.iter().any(|row| (row.covers)(&text, &ours, &theirs));
        let message = || format!("`{text}`\n  we say   {}\n  cel says {}", show(&ours), show(&theirs));
        if known { Ok(()) } else { Err(TestCaseError::fail(message())) }
    });
    compared.unwrap();
    // Guards against a comparison of nothing: many expressions have values, and few differ.
    assert!(values.get() > CASES / 3, "only {} of {CASES} expressions have a value", values.get());
    assert!(differences.get() < CASES / 50, "{} of {CASES} expressions differ", differences.get());
}
