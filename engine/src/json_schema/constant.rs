//! Values that a schema names, and how JSON values compare: numbers by value, objects regardless of the order of their
//! members.

use std::cmp::Ordering;

use super::decimal::Decimal;
use crate::budget::{Budget, Exhausted, meter::work, steps};
use crate::json::{self, Limits, Object};

/// A value of a document, with numbers as they are written.
pub(crate) type Value<'a> = json::Value<'a, &'a str>;

/// The cost of comparing two values that are neither lists nor objects.
const COMPARISON: u64 = 3;
const LIMITS: Limits = Limits { depth: 32, values: 10_000 };

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

    /// Whether a value is this one.
    pub(crate) fn equals(&self, value: &Value<'_>, budget: &Budget) -> Result<bool, Exhausted> {
        budget.spend(1)?;
        work(1);
        Ok(match (self, value) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(one), Value::Bool(other)) => one == other,
            (Self::Number(one), Value::Number(other)) => {
                budget.read(other.len())?;
                *one == Decimal::read(other)
            }
            (Self::String(one), Value::String(other)) if one.len() == other.len() => {
                budget.read(one.len())?;
                **one == **other
            }
            (Self::Array(items), Value::Array(others)) if items.len() == others.len() => {
                return all(items.iter().zip(others), |(one, other)| one.equals(other, budget));
            }
            (Self::Object(members), Value::Object(others)) if members.len() == others.len() => {
                return all(members.iter().zip(others.iter()), |((name, one), (other_name, other))| {
                    budget.read(name.len())?;
                    Ok(**name == *other_name && one.equals(other, budget)?)
                });
            }
            _ => false,
        })
    }
}

/// Whether a test holds for all items. It stops at the first for which it does not.
fn all<T>(
    mut items: impl Iterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool, Exhausted>,
) -> Result<bool, Exhausted> {
    items.try_fold(true, |fits, item| Ok(fits && holds(item)?))
}

/// The most that it costs to compare each of these values with another of them once: the values inside them, and their
/// text. A comparison ends with the shorter of two texts, but reads both of two numbers.
pub(crate) fn weight(items: &[Value<'_>]) -> u64 {
    let number = steps(longest_number(items) / 8);
    let each = COMPARISON.saturating_add(number);
    items.iter().map(|item| weight_of(item, each)).fold(0, u64::saturating_add)
}

fn weight_of(value: &Value<'_>, each: u64) -> u64 {
    let text = |text: &str| steps(text.len() / 8);
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(string) => text(string),
        Value::Array(items) => items.iter().map(|item| weight_of(item, each)).fold(0, u64::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| weight_of(value, each).saturating_add(text(name)))
            .fold(0, u64::saturating_add),
    };
    within.saturating_add(each)
}

fn longest_number(items: &[Value<'_>]) -> usize {
    let of = |value: &Value<'_>| match value {
        Value::Number(text) => text.len(),
        Value::Array(items) => longest_number(items),
        Value::Object(members) => {
            members.iter().map(|(_, value)| longest_number(std::slice::from_ref(value))).max().unwrap_or(0)
        }
        _ => 0,
    };
    items.iter().map(of).max().unwrap_or(0)
}

/// An order of all values, in which only equal ones are equal.
pub(crate) fn compare(one: &Value<'_>, other: &Value<'_>) -> Ordering {
    work(1);
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => Decimal::read(one).cmp(&Decimal::read(other)),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Array(items), Value::Array(others)) => {
            first_difference(items.iter().zip(others).map(|(one, other)| compare(one, other)))
                .unwrap_or(items.len().cmp(&others.len()))
        }
        (Value::Object(members), Value::Object(others)) => compare_objects(members, others),
        _ => rank(one).cmp(&rank(other)),
    }
}

fn compare_objects(members: &Object<'_, &str>, others: &Object<'_, &str>) -> Ordering {
    let pairs = members.iter().zip(others.iter());
    let compared =
        pairs.map(|((name, value), (other_name, other))| name.cmp(other_name).then_with(|| compare(value, other)));
    first_difference(compared).unwrap_or(members.len().cmp(&others.len()))
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
        assert_eq!(compare(&left, &right).is_eq(), equal, "{one} and {other}");
        assert_eq!(compare(&right, &left), compare(&left, &right).reverse(), "{one} and {other}");
        assert_eq!(Constant::read(one).unwrap().equals(&right, &Budget::default()), Ok(equal), "{one} and {other}");
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
