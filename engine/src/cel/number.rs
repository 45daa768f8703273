//! Numbers of the three types on one line (langdef, "Numbers"), and arithmetic that never wraps.

use std::cmp::Ordering;

use super::{
    error::ErrorKind,
    key::Key,
    value::{Type, Value},
};

/// 2⁶³ and 2⁶⁴: the first doubles past the integers.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

/// The arithmetic operators on two numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Arithmetic {
    pub(super) fn ints(self, one: i64, other: i64) -> Result<i64, ErrorKind> {
        let result = match self {
            Self::Add => one.checked_add(other),
            Self::Subtract => one.checked_sub(other),
            Self::Multiply => one.checked_mul(other),
            Self::Divide if other == 0 => return Err(ErrorKind::DivisionByZero),
            Self::Divide => one.checked_div(other),
            Self::Modulo if other == 0 => return Err(ErrorKind::ModulusByZero),
            Self::Modulo => one.checked_rem(other),
        };
        result.ok_or(ErrorKind::Overflow(Type::Int))
    }

    pub(super) fn uints(self, one: u64, other: u64) -> Result<u64, ErrorKind> {
        let result = match self {
            Self::Add => one.checked_add(other),
            Self::Subtract => one.checked_sub(other),
            Self::Multiply => one.checked_mul(other),
            Self::Divide if other == 0 => return Err(ErrorKind::DivisionByZero),
            Self::Divide => one.checked_div(other),
            Self::Modulo if other == 0 => return Err(ErrorKind::ModulusByZero),
            Self::Modulo => one.checked_rem(other),
        };
        result.ok_or(ErrorKind::Overflow(Type::Uint))
    }

    /// IEEE 754: nothing fails. There is no modulo of doubles.
    pub(super) fn doubles(self, one: f64, other: f64) -> Option<f64> {
        match self {
            Self::Add => Some(one + other),
            Self::Subtract => Some(one - other),
            Self::Multiply => Some(one * other),
            Self::Divide => Some(one / other),
            Self::Modulo => None,
        }
    }
}

/// The order of two values whose types have one. `None` inside if one of them is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Comparison(pub(super) Option<Ordering>);

/// Compares two numbers; `None` if one is not a number. Compared with a double, an integer past 2⁵³ is rounded to a
/// double, as the conformance tests of the language have it (`not_lt_dyn_int_big_lossy_double`).
pub(super) fn compare(one: &Value, other: &Value) -> Option<Comparison> {
    let order = match (one, other) {
        (Value::Int(one), Value::Int(other)) => Some(one.cmp(other)),
        (Value::Uint(one), Value::Uint(other)) => Some(one.cmp(other)),
        (Value::Double(one), Value::Double(other)) => one.partial_cmp(other),
        (Value::Int(one), Value::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
        (Value::Uint(one), Value::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
        (Value::Int(one), Value::Double(other)) => (*one as f64).partial_cmp(other),
        (Value::Uint(one), Value::Double(other)) => (*one as f64).partial_cmp(other),
        (Value::Double(one), Value::Int(other)) => one.partial_cmp(&(*other as f64)),
        (Value::Double(one), Value::Uint(other)) => one.partial_cmp(&(*other as f64)),
        _ => return None,
    };
    Some(Comparison(order))
}

impl Key {
    /// The key that equals a value. A double without a fraction finds an integer.
    pub(super) fn equal_to(value: &Value) -> Option<Self> {
        match value {
            Value::Double(value) => integer(*value),
            _ => Self::from_value(value),
        }
    }
}

/// The integer key that equals a double; `None` with a fraction or out of range.
fn integer(double: f64) -> Option<Key> {
    if double.trunc() != double {
        None
    } else if (-INT_END..INT_END).contains(&double) {
        Some(Key::Int(double as i64))
    } else if (0.0..UINT_END).contains(&double) {
        Some(Key::Uint(double as u64))
    } else {
        None
    }
}

/// Converts towards zero; `None` if out of range. The least integer is out of range too (conformance test
/// `double_int_min_range`).
pub(super) fn double_to_int(double: f64) -> Option<i64> {
    (double > -INT_END && double < INT_END).then_some(double as i64)
}

/// Converts towards zero; `None` if out of range.
pub(super) fn double_to_uint(double: f64) -> Option<u64> {
    (double > -1.0 && double < UINT_END).then_some(double as u64)
}
