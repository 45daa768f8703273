//! Static types. An unknown type fits everywhere.

use postern_engine::cel::{self, Type};
use postern_proto::plan::v1::expression::Function;

use Type::{Bool, Bytes, Double, Duration, Int, List, Map, String, Timestamp, Uint};

/// The types of the arguments, and of the result.
pub(super) type Signature = (&'static [Type], Type);

/// The type of a call's result, or a message if the arguments have wrong types.
pub(super) fn result(function: Function, arguments: &[Option<Type>]) -> Result<Option<Type>, std::string::String> {
    match function {
        Function::Equal | Function::NotEqual => return equality(function, arguments).map(|()| Some(Bool)),
        Function::Conditional => return conditional(arguments),
        Function::In | Function::Index => return container(function, arguments),
        _ => {}
    }
    let fits = |(types, _): &&Signature| {
        types.len() == arguments.len()
            && types.iter().zip(arguments).all(|(one, other)| other.is_none_or(|other| *one == other))
    };
    let mut fitting = signatures(function).iter().filter(fits).map(|(_, result)| *result);
    let first = fitting.next().ok_or_else(|| undefined(function, arguments))?;
    Ok(fitting.all(|other| other == first).then_some(first))
}

/// Checks `in` and `[ ]`, whose container is a list or a map.
fn container(function: Function, arguments: &[Option<Type>]) -> Result<Option<Type>, std::string::String> {
    let (container, index) = match (function, arguments) {
        (Function::Index, [container, index]) => (container, index),
        (_, [_, container]) => (container, &None),
        _ => (&None, &None),
    };
    let holds = container.is_none_or(|of| matches!(of, List | Map));
    let number = index.is_none_or(|of| matches!(of, Int | Uint | Double));
    let key = number || index.is_some_and(|of| matches!(of, String | Bool));
    if holds && if *container == Some(List) { number } else { key } {
        return Ok((function == Function::In).then_some(Bool));
    }
    Err(undefined(function, arguments))
}

/// Checks `==` and `!=`: values of different types are never equal (langdef, "Equality"), so comparing them is an
/// error. Comparing with `null` is allowed.
fn equality(function: Function, arguments: &[Option<Type>]) -> Result<(), std::string::String> {
    let number = |of: Type| matches!(of, Int | Uint | Double);
    match arguments {
        [Some(one), Some(other)] if one != other && !(number(*one) && number(*other)) => {
            if *one == Type::Null || *other == Type::Null {
                return Ok(());
            }
            let (sign, one, other) = (cel::name(function), one.name(), other.name());
            Err(format!("`{sign}` compares {one} with {other}: they are never equal"))
        }
        _ => Ok(()),
    }
}

fn conditional(arguments: &[Option<Type>]) -> Result<Option<Type>, std::string::String> {
    match arguments {
        [Some(condition), ..] if *condition != Bool => {
            Err(format!("the condition of `? :` must be of type bool, not {}", condition.name()))
        }
        [_, then, otherwise] => Ok(then.filter(|_| then == otherwise)),
        _ => Ok(None),
    }
}

fn undefined(function: Function, arguments: &[Option<Type>]) -> std::string::String {
    let types: Vec<_> = arguments.iter().map(|of| of.map_or("any", Type::name)).collect();
    format!("`{}` is not defined for {}", cel::name(function), types.join(" and "))
}

/// The types that a function or operator with fixed types takes and returns. Empty for others.
pub(super) fn signatures(function: Function) -> &'static [Signature] {
    use Function as F;
    match function {
        F::And | F::Or => &[(&[Bool, Bool], Bool)],
        F::Not => &[(&[Bool], Bool)],
        F::Negate => &[(&[Int], Int), (&[Double], Double)],
        F::Add => ADD,
        F::Subtract => SUBTRACT,
        F::Multiply | F::Divide => ARITHMETIC,
        F::Modulo => &[(&[Int, Int], Int), (&[Uint, Uint], Uint)],
        F::Less | F::LessOrEqual | F::Greater | F::GreaterOrEqual => ORDER,
        F::Size => &[(&[String], Int), (&[Bytes], Int), (&[List], Int), (&[Map], Int)],
        F::StartsWith | F::EndsWith | F::Contains | F::Matches => &[(&[String, String], Bool)],
        F::LowerAscii | F::UpperAscii | F::Trim => &[(&[String], String)],
        F::Split => &[(&[String, String], List), (&[String, String, Int], List)],
        F::Replace => &[(&[String, String, String], String), (&[String, String, String, Int], String)],
        F::Substring => &[(&[String, Int], String), (&[String, Int, Int], String)],
        F::IndexOf => &[(&[String, String], Int), (&[String, String, Int], Int)],
        F::CharAt => &[(&[String, Int], String)],
        F::Bool => &[(&[Bool], Bool), (&[String], Bool)],
        F::Int => TO_INT,
        F::Uint => TO_UINT,
        F::Double => TO_DOUBLE,
        F::String => TO_STRING,
        F::Bytes => &[(&[Bytes], Bytes), (&[String], Bytes)],
        F::Timestamp => TO_TIMESTAMP,
        F::Duration => &[(&[Duration], Duration), (&[String], Duration)],
        F::GetFullYear | F::GetMonth | F::GetDate | F::GetDayOfMonth | F::GetDayOfWeek | F::GetDayOfYear => {
            &[(&[Timestamp], Int)]
        }
        F::GetHours | F::GetMinutes | F::GetSeconds | F::GetMilliseconds => &[(&[Timestamp], Int), (&[Duration], Int)],
        F::Unspecified | F::Equal | F::NotEqual | F::Conditional | F::In | F::Index => &[],
    }
}

const ARITHMETIC: &[Signature] = &[(&[Int, Int], Int), (&[Uint, Uint], Uint), (&[Double, Double], Double)];

const ADD: &[Signature] = &[
    (&[Int, Int], Int),
    (&[Uint, Uint], Uint),
    (&[Double, Double], Double),
    (&[String, String], String),
    (&[Bytes, Bytes], Bytes),
    (&[List, List], List),
    (&[Timestamp, Duration], Timestamp),
    (&[Duration, Timestamp], Timestamp),
    (&[Duration, Duration], Duration),
];

const SUBTRACT: &[Signature] = &[
    (&[Int, Int], Int),
    (&[Uint, Uint], Uint),
    (&[Double, Double], Double),
    (&[Timestamp, Timestamp], Duration),
    (&[Timestamp, Duration], Timestamp),
    (&[Duration, Duration], Duration),
];

const ORDER: &[Signature] = &[
    (&[Bool, Bool], Bool),
    (&[Int, Int], Bool),
    (&[Int, Uint], Bool),
    (&[Int, Double], Bool),
    (&[Uint, Int], Bool),
    (&[Uint, Uint], Bool),
    (&[Uint, Double], Bool),
    (&[Double, Int], Bool),
    (&[Double, Uint], Bool),
    (&[Double, Double], Bool),
    (&[String, String], Bool),
    (&[Bytes, Bytes], Bool),
    (&[Timestamp, Timestamp], Bool),
    (&[Duration, Duration], Bool),
];

const TO_INT: &[Signature] = &[(&[Int], Int), (&[Uint], Int), (&[Double], Int), (&[String], Int), (&[Timestamp], Int)];

const TO_UINT: &[Signature] = &[(&[Uint], Uint), (&[Int], Uint), (&[Double], Uint), (&[String], Uint)];

const TO_DOUBLE: &[Signature] = &[(&[Double], Double), (&[Int], Double), (&[Uint], Double), (&[String], Double)];

const TO_STRING: &[Signature] = &[
    (&[String], String),
    (&[Bool], String),
    (&[Int], String),
    (&[Uint], String),
    (&[Double], String),
    (&[Bytes], String),
    (&[Timestamp], String),
    (&[Duration], String),
];

const TO_TIMESTAMP: &[Signature] = &[(&[Timestamp], Timestamp), (&[String], Timestamp), (&[Int], Timestamp)];
