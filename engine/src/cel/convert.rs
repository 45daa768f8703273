//! Conversions between types (langdef, "Types and Conversions"). `Ok(None)` says that there is no such conversion.

use std::sync::Arc;

use super::{
    budget::Budget,
    error::{ErrorKind, Overload},
    format,
    number::{double_to_int, double_to_uint},
    time::{Duration, Timestamp},
    value::{Type, Value},
};

/// Converts a value to a type.
pub(super) fn convert(value: &Value, to: Type, budget: &mut Budget<'_>) -> Overload {
    if value.value_type() == to && to != Type::List && to != Type::Map && to != Type::Null {
        return Ok(Some(value.clone()));
    }
    if let Value::String(text) = value {
        budget.read(text.len())?;
    }
    let converted = match to {
        Type::Bool => to_bool(value),
        Type::Int => to_int(value),
        Type::Uint => to_uint(value),
        Type::Double => to_double(value),
        Type::String => return to_string(value, budget),
        Type::Bytes => return to_bytes(value, budget),
        Type::Timestamp => to_timestamp(value),
        Type::Duration => to_duration(value),
        Type::Null | Type::List | Type::Map => None,
    };
    // The inner `None` is a value that the type cannot hold.
    converted.map(|result| result.ok_or(ErrorKind::Conversion { from: value.value_type(), to })).transpose()
}

fn to_bool(value: &Value) -> Option<Option<Value>> {
    let Value::String(text) = value else { return None };
    Some(match text.as_ref() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
        _ => None,
    })
}

fn to_int(value: &Value) -> Option<Option<Value>> {
    let result = match value {
        Value::Uint(value) => i64::try_from(*value).ok(),
        Value::Double(value) => double_to_int(*value),
        Value::String(text) => text.parse().ok(),
        Value::Timestamp(value) => Some(value.seconds()),
        _ => return None,
    };
    Some(result.map(Value::Int))
}

fn to_uint(value: &Value) -> Option<Option<Value>> {
    let result = match value {
        Value::Int(value) => u64::try_from(*value).ok(),
        Value::Double(value) => double_to_uint(*value),
        Value::String(text) => text.parse().ok(),
        _ => return None,
    };
    Some(result.map(Value::Uint))
}

fn to_double(value: &Value) -> Option<Option<Value>> {
    let result = match value {
        Value::Int(value) => Some(*value as f64),
        Value::Uint(value) => Some(*value as f64),
        Value::String(text) => text.parse().ok(),
        _ => return None,
    };
    Some(result.map(Value::Double))
}

fn to_string(value: &Value, budget: &mut Budget<'_>) -> Overload {
    let text = match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => format::double(*value),
        Value::Timestamp(value) => format::timestamp(*value),
        Value::Duration(value) => format::duration(*value),
        Value::Bytes(bytes) => {
            budget.make(bytes.len())?;
            let error = ErrorKind::Conversion { from: Type::Bytes, to: Type::String };
            let text = std::str::from_utf8(bytes).map_err(|_| error)?;
            return Ok(Some(Value::from(text)));
        }
        _ => return Ok(None),
    };
    budget.make(text.len())?;
    Ok(Some(Value::from(text)))
}

fn to_bytes(value: &Value, budget: &mut Budget<'_>) -> Overload {
    let Value::String(text) = value else { return Ok(None) };
    budget.make(text.len())?;
    Ok(Some(Value::Bytes(Arc::from(text.as_bytes()))))
}

fn to_timestamp(value: &Value) -> Option<Option<Value>> {
    let result = match value {
        Value::String(text) => Timestamp::parse(text),
        Value::Int(seconds) => Timestamp::new(*seconds, 0),
        _ => return None,
    };
    Some(result.map(Value::Timestamp))
}

fn to_duration(value: &Value) -> Option<Option<Value>> {
    let Value::String(text) = value else { return None };
    Some(Duration::parse(text).map(Value::Duration))
}
