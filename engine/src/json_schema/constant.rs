//! Values that a schema names, and how JSON values compare: numbers by what they are worth, objects whatever the order of
//! their members.

use std::cmp::Ordering;

use super::decimal::Decimal;
use crate::json::{self, Limits, Object};

/// What a document is once it is read.
pub(crate) type Value<'a> = json::Value<'a, &'a str>;

const LIMITS: Limits = Limits { depth: 32, values: 10_000 };
/// How many bytes of text are compared for one step.
const BYTES_A_STEP: usize = 64;

/// A value that a schema names.
#[derive(Debug)]
pub(crate) enum Constant {
    Null,
    Bool(bool),
    Number(Decimal<'static>),
    String(Box<str>),
    Array(Vec<Constant>),
    Object(Vec<(Box<str>, Constant)>),
}

impl Constant {
    /// Reads one JSON value.
    pub(crate) fn read(text: &str) -> Option<Self> {
        json::parse_exact(text.as_bytes(), LIMITS).ok().map(Self::of)
    }

    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(truth),
            Value::Number(text) => Self::Number(Decimal::read(text).into_owned()),
            Value::String(text) => Self::String(text.into()),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::of).collect()),
            Value::Object(members) => {
                Self::Object(members.into_iter().map(|(name, value)| (name.into(), Self::of(value))).collect())
            }
        }
    }

    /// Whether a value is this one. It looks at no more than this one has.
    pub(crate) fn equals(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(one), Value::Bool(other)) => one == other,
            (Self::Number(one), Value::Number(other)) => *one == Decimal::read(other),
            (Self::String(one), Value::String(other)) => **one == **other,
            (Self::Array(items), Value::Array(others)) => {
                items.len() == others.len() && items.iter().zip(others).all(|(one, other)| one.equals(other))
            }
            (Self::Object(members), Value::Object(others)) => {
                let same = |((name, one), (other_name, other)): (&(Box<str>, Self), (&str, &Value<'_>))| {
                    **name == *other_name && one.equals(other)
                };
                members.len() == others.len() && members.iter().zip(others.iter()).all(same)
            }
            _ => false,
        }
    }

    /// How many values it is made of.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Array(items) => items.iter().fold(1, |sum, item| sum.saturating_add(item.weight())),
            Self::Object(members) => members.iter().fold(1, |sum, (_, value)| sum.saturating_add(value.weight())),
            _ => 1,
        }
    }
}

/// An order of all values, in which only equal ones are equal. `work` counts what it costs.
pub(crate) fn compare(one: &Value<'_>, other: &Value<'_>, work: &mut usize) -> Ordering {
    *work = work.saturating_add(1);
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => {
            *work = work.saturating_add(one.len().saturating_add(other.len()) / BYTES_A_STEP);
            Decimal::read(one).cmp(&Decimal::read(other))
        }
        (Value::String(one), Value::String(other)) => compare_text(one, other, work),
        (Value::Array(items), Value::Array(others)) => {
            first_difference(items.iter().zip(others).map(|(one, other)| compare(one, other, work)))
                .unwrap_or(items.len().cmp(&others.len()))
        }
        (Value::Object(members), Value::Object(others)) => compare_objects(members, others, work),
        _ => rank(one).cmp(&rank(other)),
    }
}

fn compare_objects(members: &Object<'_, &str>, others: &Object<'_, &str>, work: &mut usize) -> Ordering {
    let pairs = members.iter().zip(others.iter());
    let compared = pairs.map(|((name, value), (other_name, other))| {
        compare_text(name, other_name, work).then_with(|| compare(value, other, work))
    });
    first_difference(compared).unwrap_or(members.len().cmp(&others.len()))
}

fn compare_text(one: &str, other: &str, work: &mut usize) -> Ordering {
    *work = work.saturating_add(one.len().min(other.len()) / BYTES_A_STEP);
    one.cmp(other)
}

fn first_difference(mut compared: impl Iterator<Item = Ordering>) -> Option<Ordering> {
    compared.find(|ordering| ordering.is_ne())
}

fn rank(value: &Value<'_>) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(one: &str, other: &str, equal: bool) {
        let limits = Limits { depth: 8, values: 100 };
        let [left, right] = [one, other].map(|text| json::parse_exact(text.as_bytes(), limits).unwrap());
        assert_eq!(compare(&left, &right, &mut 0).is_eq(), equal, "{one} and {other}");
        assert_eq!(compare(&right, &left, &mut 0), compare(&left, &right, &mut 0).reverse(), "{one} and {other}");
        assert_eq!(Constant::read(one).unwrap().equals(&right), equal, "{one} and {other}");
    }

    #[test]
    fn compares_values_by_what_they_are() {
        check("1", "1.0", true);
        check("1", "true", false);
        check("0", "false", false);
        check("[]", "{}", false);
        check("null", "null", true);
        check("\"1\"", "1", false);
        check("[1,[2]]", "[1.0,[20e-1]]", true);
        check("[1,2]", "[2,1]", false);
        check("[1]", "[1,1]", false);
        check(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, true);
        check(r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false);
        check(r#"{"a":1}"#, r#"{"b":1}"#, false);
        check(r#""\u0061""#, r#""a""#, true);
    }
}
