//! Expressions: any bytes as one, and well-formed ones of any meaning, over attributes of any content. Evaluation ends,
//! says the same twice, and reads nothing that the expression does not declare.

#![cfg_attr(fuzzing, no_main)]

use std::{cell::RefCell, sync::Arc};

use postern_engine::{
    budget::{Budget, STEPS},
    cel::{Attribute, AttributeError, Attributes, Expression, Key, Map, Timestamp, Type, Value},
};
use postern_fuzz::{Script, cost, expressions, plans};
use postern_proto::plan::v1 as wire;
use prost::Message as _;

postern_fuzz::target!(run: run, seeds: seeds);

/// The first byte says how the expression is written: as a script, or encoded, behind a script for the attributes.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    if script.flag() {
        let expression = expressions::scripted(&mut script);
        evaluate(&expression, &mut script);
    } else {
        let size = usize::from(script.byte());
        let mut attributes = Script::new(script.bytes(size));
        if let Ok(expression) = wire::Expression::decode(script.rest()) {
            evaluate(&expression, &mut attributes);
        }
    }
}

fn evaluate(wire: &wire::Expression, script: &mut Script<'_>) {
    let expression = match Expression::load(wire) {
        Ok(expression) => expression,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let given = Given::new(script);
    cost::start();
    let value = expression.evaluate(&given, &Budget::default());
    cost::check(1, STEPS, 0);
    if value.is_ok() {
        assert!(meter_of(&expression, &given) >= expression.least_cost(), "it costs less than the least");
    }
    let again = expression.evaluate(&given, &Budget::default());
    assert_eq!(
        value.as_ref().map(Value::value_type).map_err(ToString::to_string),
        again.as_ref().map(Value::value_type).map_err(ToString::to_string),
    );
    match (value, expression.test(&given, &Budget::default())) {
        (Ok(Value::Bool(value)), test) => assert_eq!(test.ok(), Some(value)),
        (_, test) => assert!(test.is_err()),
    }
    let undeclared = |asked: &&Attribute| !expression.attributes().contains(asked);
    assert_eq!(given.asked.borrow().iter().find(undeclared), None);
}

/// What an evaluation takes of a budget.
fn meter_of(expression: &Expression, given: &Given) -> u64 {
    let budget = Budget::default();
    let _ = expression.evaluate(given, &budget);
    STEPS - budget.left()
}

/// Attributes from a script. Each has its type, or an error.
struct Given {
    texts: Vec<String>,
    number: i64,
    absent: u8,
    map: Map,
    asked: RefCell<Vec<Attribute>>,
}

impl Given {
    fn new(script: &mut Script<'_>) -> Self {
        let number = script.number().cast_signed();
        let absent = script.byte();
        let texts: Vec<_> = (0..script.below(4)).map(|_| script.text()).collect();
        let mut map = Map::default();
        for (place, key) in
            ["x-user", "x-kind", "a", ""].into_iter().chain(texts.iter().map(String::as_str)).enumerate()
        {
            if script.flag() {
                let text = || texts.get(place % texts.len().max(1)).map_or("", String::as_str);
                let _ = map.insert(Key::String(key.into()), Value::String(text().into()));
            }
        }
        Self { texts, number, absent, map, asked: RefCell::default() }
    }

    fn text(&self, attribute: Attribute) -> Arc<str> {
        let place = (attribute as usize) % self.texts.len().max(1);
        self.texts.get(place).map_or("", String::as_str).into()
    }
}

impl Attributes for Given {
    fn attribute(&self, attribute: Attribute) -> Result<Value, AttributeError> {
        self.asked.borrow_mut().push(attribute);
        if attribute.value_type() != Type::Map && attribute as u8 % 8 == self.absent % 32 {
            return Err(if self.absent > 127 { AttributeError::Absent } else { AttributeError::NotUtf8 });
        }
        Ok(match attribute.value_type() {
            Type::Bool => Value::Bool(self.number % 2 == 0),
            Type::Int => Value::Int(self.number),
            Type::Bytes => Value::Bytes(self.text(attribute).as_bytes().into()),
            Type::Map => Value::Map(self.map.clone().into()),
            Type::List => Value::List(self.texts.iter().map(|text| Value::String(text.as_str().into())).collect()),
            Type::Timestamp => {
                Timestamp::new(self.number, 7).map(Value::Timestamp).ok_or(AttributeError::Unavailable)?
            }
            _ => Value::String(self.text(attribute)),
        })
    }

    fn member(&self, attribute: Attribute, key: &str) -> Result<Option<Value>, AttributeError> {
        self.asked.borrow_mut().push(attribute);
        Ok(self.map.get(&Key::String(key.into())).cloned())
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let written = [plans::path_starts_with("/a"), plans::query_contains("b=1"), plans::has_kind(), plans::user()];
    let encoded =
        |expression: &wire::Expression| [b"\0\x0c\x07\x01\x02\x03/ab\x03b=1", &expression.encode_to_vec()[..]].concat();
    // A node each, from a stack of literals.
    let scripted = |kind: u8| [&[1, 8, 0, 2, 1, 0, 8, 2, b'a', b'b', 0, 2, 5, kind, kind], &[kind; 24][..]].concat();
    written.iter().map(encoded).chain((0..106).map(scripted)).collect()
}
