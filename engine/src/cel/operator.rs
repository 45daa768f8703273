//! Equality, order, membership, indexing and arithmetic. `Ok(None)` says that there is no such overload.

use std::{cmp::Ordering, sync::Arc};

use super::{
    budget::Budget,
    error::{ErrorKind, Overload},
    key::Key,
    load::MAX_DEPTH,
    number::{self, Arithmetic, Comparison},
    text,
    value::{Map, Type, Value},
};

/// CEL's `==`: numbers by value, other values of unlike types are unequal (langdef, "Equality").
pub(super) fn equal(one: &Value, other: &Value, budget: &mut Budget<'_>) -> Result<bool, ErrorKind> {
    equal_within(one, other, MAX_DEPTH.saturating_mul(2), budget)
}

fn equal_within(one: &Value, other: &Value, depth: usize, budget: &mut Budget<'_>) -> Result<bool, ErrorKind> {
    budget.node()?;
    let deeper = depth.checked_sub(1).ok_or(ErrorKind::TooCostly)?;
    Ok(match (one, other) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::String(one), Value::String(other)) => equal_bytes(one.as_bytes(), other.as_bytes(), budget)?,
        (Value::Bytes(one), Value::Bytes(other)) => equal_bytes(one, other, budget)?,
        (Value::List(one), Value::List(other)) => equal_lists(one, other, deeper, budget)?,
        (Value::Map(one), Value::Map(other)) => equal_maps(one, other, deeper, budget)?,
        (Value::Timestamp(one), Value::Timestamp(other)) => one == other,
        (Value::Duration(one), Value::Duration(other)) => one == other,
        _ => number::compare(one, other) == Some(Comparison(Some(Ordering::Equal))),
    })
}

fn equal_bytes(one: &[u8], other: &[u8], budget: &mut Budget<'_>) -> Result<bool, ErrorKind> {
    budget.read(one.len().min(other.len()))?;
    Ok(one == other)
}

fn equal_lists(one: &[Value], other: &[Value], depth: usize, budget: &mut Budget<'_>) -> Result<bool, ErrorKind> {
    if one.len() != other.len() {
        return Ok(false);
    }
    for (one, other) in one.iter().zip(other) {
        if !equal_within(one, other, depth, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(one: &Map, other: &Map, depth: usize, budget: &mut Budget<'_>) -> Result<bool, ErrorKind> {
    if one.len() != other.len() {
        return Ok(false);
    }
    for (key, value) in one.iter() {
        let Some(counterpart) = other.get(key) else { return Ok(false) };
        if !equal_within(value, counterpart, depth, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares two values, if their types have an order.
pub(super) fn order(one: &Value, other: &Value, budget: &mut Budget<'_>) -> Result<Option<Comparison>, ErrorKind> {
    let ordered = |order| Some(Comparison(Some(order)));
    Ok(match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => ordered(one.cmp(other)),
        (Value::String(one), Value::String(other)) => {
            budget.read(one.len().min(other.len()))?;
            ordered(one.cmp(other))
        }
        (Value::Bytes(one), Value::Bytes(other)) => {
            budget.read(one.len().min(other.len()))?;
            ordered(one.cmp(other))
        }
        (Value::Timestamp(one), Value::Timestamp(other)) => ordered(one.cmp(other)),
        (Value::Duration(one), Value::Duration(other)) => ordered(one.cmp(other)),
        _ => number::compare(one, other),
    })
}

/// `needle in haystack`.
pub(super) fn contains(needle: &Value, haystack: &Value, budget: &mut Budget<'_>) -> Overload {
    match haystack {
        Value::List(elements) => {
            for element in elements.iter() {
                if equal(needle, element, budget)? {
                    return Ok(Some(Value::Bool(true)));
                }
            }
            Ok(Some(Value::Bool(false)))
        }
        Value::Map(map) => {
            lookup(needle, budget)?;
            let found = Key::equal_to(needle).is_some_and(|key| map.get(&key).is_some());
            Ok(Some(Value::Bool(found)))
        }
        _ => Ok(None),
    }
}

/// `container[index]`.
pub(super) fn index(container: &Value, index: &Value, budget: &mut Budget<'_>) -> Overload {
    match container {
        Value::List(elements) => {
            let place = match index {
                Value::Int(_) | Value::Uint(_) | Value::Double(_) => Key::equal_to(index),
                _ => return Ok(None),
            };
            let place = match place {
                Some(Key::Int(place)) => usize::try_from(place).ok(),
                Some(Key::Uint(place)) => usize::try_from(place).ok(),
                _ => None,
            };
            place.and_then(|place| elements.get(place)).cloned().map(Some).ok_or(ErrorKind::OutOfRange)
        }
        Value::Map(map) => {
            lookup(index, budget)?;
            let found = Key::equal_to(index).and_then(|key| map.get(&key).cloned());
            found.map(Some).ok_or(ErrorKind::NoSuchKey(None))
        }
        _ => Ok(None),
    }
}

/// Charges for looking up a key: it is compared with a few others. Call it before.
fn lookup(key: &Value, budget: &mut Budget<'_>) -> Result<(), ErrorKind> {
    match key {
        Value::String(text) => budget.read(text.len()),
        _ => Ok(()),
    }
}

/// Arithmetic on numbers of one type. `+` also joins text, bytes and lists, and `+` and `-` also take timestamps and
/// durations.
pub(super) fn arithmetic(operator: Arithmetic, one: &Value, other: &Value, budget: &mut Budget<'_>) -> Overload {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => operator.ints(*one, *other).map(Value::Int).map(Some),
        (Value::Uint(one), Value::Uint(other)) => operator.uints(*one, *other).map(Value::Uint).map(Some),
        (Value::Double(one), Value::Double(other)) => Ok(operator.doubles(*one, *other).map(Value::Double)),
        _ => match operator {
            Arithmetic::Add => add(one, other, budget),
            Arithmetic::Subtract => subtract(one, other),
            _ => Ok(None),
        },
    }
}

fn add(one: &Value, other: &Value, budget: &mut Budget<'_>) -> Overload {
    match (one, other) {
        (Value::String(one), Value::String(other)) => text::concatenate(one, other, budget).map(Some),
        (Value::Bytes(one), Value::Bytes(other)) => text::concatenate_bytes(one, other, budget).map(Some),
        (Value::List(one), Value::List(other)) => text::concatenate_lists(one, other, budget).map(Some),
        (Value::Timestamp(point), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(point)) => {
            fit(point.plus(*span).map(Value::Timestamp), Type::Timestamp)
        }
        (Value::Duration(one), Value::Duration(other)) => fit(one.plus(*other).map(Value::Duration), Type::Duration),
        _ => Ok(None),
    }
}

fn subtract(one: &Value, other: &Value) -> Overload {
    match (one, other) {
        (Value::Timestamp(one), Value::Timestamp(other)) => fit(one.since(*other).map(Value::Duration), Type::Duration),
        (Value::Timestamp(point), Value::Duration(span)) => {
            fit(span.negated().and_then(|back| point.plus(back)).map(Value::Timestamp), Type::Timestamp)
        }
        (Value::Duration(one), Value::Duration(other)) => fit(one.minus(*other).map(Value::Duration), Type::Duration),
        _ => Ok(None),
    }
}

fn fit(result: Option<Value>, of: Type) -> Overload {
    result.map(Some).ok_or(ErrorKind::Overflow(of))
}

/// `-value`.
pub(super) fn negate(value: &Value) -> Overload {
    match value {
        Value::Int(value) => fit(value.checked_neg().map(Value::Int), Type::Int),
        Value::Double(value) => Ok(Some(Value::Double(-value))),
        _ => Ok(None),
    }
}

/// What a macro iterates over: the elements of a list, the keys of a map.
pub(super) fn elements(range: Value, budget: &mut Budget<'_>) -> Result<Option<Arc<[Value]>>, ErrorKind> {
    Ok(match range {
        Value::List(elements) => Some(elements),
        Value::Map(map) => {
            budget.make_elements(map.len())?;
            Some(map.iter().map(|(key, _)| key.to_value()).collect())
        }
        _ => None,
    })
}
