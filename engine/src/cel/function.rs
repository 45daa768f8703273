//! What is known of functions without running them: their names and how many arguments they take.

use std::ops::RangeInclusive;

use postern_proto::plan::v1::expression::Function;

/// How many arguments a function takes, a receiver included.
pub const fn arity(function: Function) -> RangeInclusive<usize> {
    use Function as F;
    match function {
        F::Unspecified => 0..=0,
        F::Conditional => 3..=3,
        F::And | F::Or | F::Add | F::Subtract | F::Multiply | F::Divide | F::Modulo => 2..=2,
        F::Equal | F::NotEqual | F::Less | F::LessOrEqual | F::Greater | F::GreaterOrEqual | F::In | F::Index => 2..=2,
        F::StartsWith | F::EndsWith | F::Contains | F::Matches | F::CharAt => 2..=2,
        F::Split | F::Substring | F::IndexOf => 2..=3,
        F::Replace => 3..=4,
        F::Not | F::Negate | F::Size | F::LowerAscii | F::UpperAscii | F::Trim => 1..=1,
        F::Bool | F::Int | F::Uint | F::Double | F::String | F::Bytes | F::Timestamp | F::Duration => 1..=1,
        F::GetFullYear | F::GetMonth | F::GetDate | F::GetDayOfMonth | F::GetDayOfWeek | F::GetDayOfYear => 1..=1,
        F::GetHours | F::GetMinutes | F::GetSeconds | F::GetMilliseconds => 1..=1,
    }
}

/// What a user writes for it: an operator's sign or a function's name.
pub const fn name(function: Function) -> &'static str {
    use Function as F;
    match function {
        F::Unspecified => "?",
        F::And => "&&",
        F::Or => "||",
        F::Not => "!",
        F::Conditional => "? :",
        F::Negate | F::Subtract => "-",
        F::Add => "+",
        F::Multiply => "*",
        F::Divide => "/",
        F::Modulo => "%",
        F::Equal => "==",
        F::NotEqual => "!=",
        F::Less => "<",
        F::LessOrEqual => "<=",
        F::Greater => ">",
        F::GreaterOrEqual => ">=",
        F::In => "in",
        F::Index => "[ ]",
        F::Size => "size",
        F::StartsWith => "startsWith",
        F::EndsWith => "endsWith",
        F::Contains => "contains",
        F::Matches => "matches",
        F::LowerAscii => "lowerAscii",
        F::UpperAscii => "upperAscii",
        F::Trim => "trim",
        F::Split => "split",
        F::Replace => "replace",
        F::Substring => "substring",
        F::IndexOf => "indexOf",
        F::CharAt => "charAt",
        F::Bool => "bool",
        F::Int => "int",
        F::Uint => "uint",
        F::Double => "double",
        F::String => "string",
        F::Bytes => "bytes",
        F::Timestamp => "timestamp",
        F::Duration => "duration",
        F::GetFullYear => "getFullYear",
        F::GetMonth => "getMonth",
        F::GetDate => "getDate",
        F::GetDayOfMonth => "getDayOfMonth",
        F::GetDayOfWeek => "getDayOfWeek",
        F::GetDayOfYear => "getDayOfYear",
        F::GetHours => "getHours",
        F::GetMinutes => "getMinutes",
        F::GetSeconds => "getSeconds",
        F::GetMilliseconds => "getMilliseconds",
    }
}
