//! Functions whose arguments are all evaluated first: one arm each. `&&`, `||` and `?:` are not among them.

use std::cmp::Ordering;

use postern_proto::plan::v1::expression::Function;

use super::{
    budget::Budget,
    convert::convert,
    error::{ErrorKind, Overload},
    function,
    number::Arithmetic,
    operator,
    pattern::Pattern,
    text,
    time::{Duration, Timestamp},
    value::{Type, Value},
};
use crate::budget::meter::work;

/// Calls a function.
pub(super) fn call(function: Function, arguments: &[Value], budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    let result = match arguments {
        [value] => unary(function, value, budget)?,
        [one, other] => binary(function, one, other, budget)?,
        [Value::String(text), rest @ ..] => on_text(function, text, rest, budget)?,
        _ => None,
    };
    result.ok_or_else(|| no_overload(function, arguments))
}

pub(super) fn no_overload(function: Function, arguments: &[Value]) -> ErrorKind {
    let types = arguments.iter().map(Value::value_type).collect();
    ErrorKind::NoSuchOverload { function: function::name(function), types }
}

fn unary(function: Function, value: &Value, budget: &mut Budget<'_>) -> Overload {
    use Function as F;
    match function {
        F::Not => Ok(if let Value::Bool(value) = value { Some(Value::Bool(!value)) } else { None }),
        F::Negate => operator::negate(value),
        F::Size => size(value, budget),
        F::Bool => convert(value, Type::Bool, budget),
        F::Int => convert(value, Type::Int, budget),
        F::Uint => convert(value, Type::Uint, budget),
        F::Double => convert(value, Type::Double, budget),
        F::String => convert(value, Type::String, budget),
        F::Bytes => convert(value, Type::Bytes, budget),
        F::Timestamp => convert(value, Type::Timestamp, budget),
        F::Duration => convert(value, Type::Duration, budget),
        _ => match value {
            Value::String(text) => on_text(function, text, &[], budget),
            Value::Timestamp(timestamp) => Ok(part_of_timestamp(function, *timestamp)),
            Value::Duration(duration) => Ok(part_of_duration(function, *duration)),
            _ => Ok(None),
        },
    }
}

fn binary(function: Function, one: &Value, other: &Value, budget: &mut Budget<'_>) -> Overload {
    use Function as F;
    let ordered = |budget: &mut Budget<'_>, holds: fn(Ordering) -> bool| {
        // Nothing stands in any order to NaN.
        let order = operator::order(one, other, budget)?;
        Ok(order.map(|order| Value::Bool(order.0.is_some_and(holds))))
    };
    match function {
        F::Add => operator::arithmetic(Arithmetic::Add, one, other, budget),
        F::Subtract => operator::arithmetic(Arithmetic::Subtract, one, other, budget),
        F::Multiply => operator::arithmetic(Arithmetic::Multiply, one, other, budget),
        F::Divide => operator::arithmetic(Arithmetic::Divide, one, other, budget),
        F::Modulo => operator::arithmetic(Arithmetic::Modulo, one, other, budget),
        F::Equal => operator::equal(one, other, budget).map(Value::Bool).map(Some),
        F::NotEqual => operator::equal(one, other, budget).map(|equal| Some(Value::Bool(!equal))),
        F::Less => ordered(budget, Ordering::is_lt),
        F::LessOrEqual => ordered(budget, Ordering::is_le),
        F::Greater => ordered(budget, Ordering::is_gt),
        F::GreaterOrEqual => ordered(budget, Ordering::is_ge),
        F::In => operator::contains(one, other, budget),
        F::Index => operator::index(one, other, budget),
        _ => match one {
            Value::String(text) => on_text(function, text, std::slice::from_ref(other), budget),
            _ => Ok(None),
        },
    }
}

/// Functions with a string as receiver.
fn on_text(function: Function, subject: &str, rest: &[Value], budget: &mut Budget<'_>) -> Overload {
    use Function as F;
    use Value::{Int, String};
    budget.read(subject.len())?;
    work(subject.len() / 64);
    match (function, rest) {
        (F::StartsWith, [String(part)]) => Ok(Some(Value::Bool(subject.starts_with(part.as_ref())))),
        (F::EndsWith, [String(part)]) => Ok(Some(Value::Bool(subject.ends_with(part.as_ref())))),
        (F::Contains, [String(part)]) => Ok(Some(Value::Bool(subject.contains(part.as_ref())))),
        (F::Matches, [String(pattern)]) => computed_match(subject, pattern, budget).map(Some),
        (F::LowerAscii, []) => text::ascii_case(subject, str::to_ascii_lowercase, budget).map(Some),
        (F::UpperAscii, []) => text::ascii_case(subject, str::to_ascii_uppercase, budget).map(Some),
        (F::Trim, []) => text::trim(subject, budget).map(Some),
        (F::CharAt, [Int(position)]) => text::char_at(subject, *position).map(Some),
        (F::Substring, [Int(start)]) => text::substring(subject, *start, None, budget).map(Some),
        (F::Substring, [Int(start), Int(end)]) => text::substring(subject, *start, Some(*end), budget).map(Some),
        (F::IndexOf, [String(part)]) => text::index_of(subject, part, None).map(Some),
        (F::IndexOf, [String(part), Int(offset)]) => text::index_of(subject, part, Some(*offset)).map(Some),
        (F::Split, [String(by)]) => text::split(subject, by, None, budget).map(Some),
        (F::Split, [String(by), Int(limit)]) => text::split(subject, by, Some(*limit), budget).map(Some),
        (F::Replace, [String(part), String(by)]) => text::replace(subject, part, by, None, budget).map(Some),
        (F::Replace, [String(part), String(by), Int(limit)]) => {
            text::replace(subject, part, by, Some(*limit), budget).map(Some)
        }
        _ => Ok(None),
    }
}

/// A search takes time in proportion to the text and to the pattern.
pub(super) fn matches(subject: &str, pattern: &Pattern, budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    Ok(Value::Bool(pattern.is_match(subject, budget.shared())?))
}

fn computed_match(subject: &str, pattern: &str, budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    let pattern = Pattern::computed(pattern, budget.shared())?.ok_or(ErrorKind::Pattern)?;
    matches(subject, &pattern, budget)
}

fn size(value: &Value, budget: &mut Budget<'_>) -> Overload {
    let count = match value {
        Value::String(text) => {
            budget.read(text.len())?;
            return Ok(Some(text::size(text)));
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::List(elements) => elements.len(),
        Value::Map(map) => map.len(),
        _ => return Ok(None),
    };
    Ok(Some(Value::Int(i64::try_from(count).unwrap_or(i64::MAX))))
}

/// A part of a timestamp, in UTC. Months and days of a month, week or year count from 0, except for `getDate`, which
/// counts from 1.
fn part_of_timestamp(function: Function, timestamp: Timestamp) -> Option<Value> {
    use Function as F;
    let date = timestamp.date();
    let second = timestamp.second_of_day();
    let part = match function {
        F::GetFullYear => date.year,
        F::GetMonth => date.month.saturating_sub(1),
        F::GetDate => date.day,
        F::GetDayOfMonth => date.day.saturating_sub(1),
        // The first of January 1970 was a Thursday.
        F::GetDayOfWeek => timestamp.days().saturating_add(4).rem_euclid(7),
        F::GetDayOfYear => date.day_of_year(),
        F::GetHours => second / 3_600,
        F::GetMinutes => second / 60 % 60,
        F::GetSeconds => second % 60,
        F::GetMilliseconds => i64::from(timestamp.nanoseconds() / 1_000_000),
        _ => return None,
    };
    Some(Value::Int(part))
}

/// A whole duration in a unit. `getMilliseconds` instead returns the milliseconds within the second.
fn part_of_duration(function: Function, duration: Duration) -> Option<Value> {
    use Function as F;
    let seconds = duration.nanoseconds() / 1_000_000_000;
    let part = match function {
        F::GetHours => seconds / 3_600,
        F::GetMinutes => seconds / 60,
        F::GetSeconds => seconds,
        F::GetMilliseconds => duration.nanoseconds() / 1_000_000 % 1_000,
        _ => return None,
    };
    Some(Value::Int(part))
}
