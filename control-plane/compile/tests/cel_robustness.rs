//! No input makes the parser, the loader or the evaluator panic or run without bound.

#![allow(clippy::unwrap_used, reason = "test code")]

mod cel_generator;

use std::cell::Cell;

use cel_generator::{INPUT, expression};
use postern_compile::expression::{Environment, Input, compile};
use postern_engine::{
    budget::Budget,
    cel::{Expression, NoAttributes},
};
use postern_proto::plan::v1::Expression as Wire;
use proptest::{
    collection::vec,
    prelude::any,
    sample::{Index, select},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use prost::Message;

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Loads and evaluates bytes. Returns whether they loaded; errors are allowed, panics are not.
fn survives(bytes: &[u8], input: &Input) -> bool {
    let Ok(wire) = Wire::decode(bytes) else { return false };
    let Ok(expression) = Expression::load(&wire) else { return false };
    let _ = expression.evaluate(input, &Budget::default());
    let _ = expression.test(&NoAttributes, &Budget::default());
    true
}

#[test]
fn survives_damaged_expressions() {
    let input = Input::from_json(&serde_json::from_str(INPUT).unwrap()).unwrap();
    let seeds: Vec<_> = (0..40_u8)
        .map(|seed| {
            expression(&(0..60).map(|index: u8| index.wrapping_mul(37) ^ seed.wrapping_mul(101)).collect::<Vec<_>>())
        })
        .filter_map(|text| compile(&text, Environment::Request).ok())
        .map(|compiled| compiled.wire.encode_to_vec())
        .collect();
    assert!(seeds.len() > 10, "only {} expressions to damage", seeds.len());
    let damage = vec((any::<Index>(), any::<u8>()), 1..6);
    let loaded = Cell::new(0);
    runner(20_000)
        .run(&(select(seeds), damage), |(mut bytes, damage)| {
            for (place, byte) in damage {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                }
            }
            loaded.set(loaded.get() + u32::from(survives(&bytes, &input)));
            Ok(())
        })
        .unwrap();
    assert!(loaded.get() > 500, "only {} damaged expressions loaded", loaded.get());
}

#[test]
fn survives_random_bytes() {
    runner(5_000)
        .run(&vec(any::<u8>(), 0..200), |bytes| {
            survives(&bytes, &Input::default());
            Ok(())
        })
        .unwrap();
}

#[test]
fn survives_random_text() {
    let words = [
        "a",
        "request",
        ".",
        "method",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        "\"",
        "b'x'",
        "1",
        "1u",
        ".5",
        "-",
        "!",
        "+",
        "*",
        "/",
        "%",
        "<",
        ">=",
        "==",
        "&&",
        "||",
        "?",
        ":",
        ",",
        " in ",
        "has",
        "all",
        "map",
        "x",
        "\\",
        "\n",
        "é",
        "0x",
        "e9",
        "r'",
        "\u{0}",
        "//",
        "'''",
        "true",
        "null",
        "`",
        "@",
        "$",
        "matches",
        "timestamp",
    ];
    runner(600)
        .run(&vec(select(words.to_vec()), 0..40), |words| {
            if let Ok(compiled) = compile(&words.concat(), Environment::Response) {
                survives(&compiled.wire.encode_to_vec(), &Input::default());
            }
            Ok(())
        })
        .unwrap();
}
