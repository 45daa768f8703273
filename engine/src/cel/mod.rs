//! CEL conditions: loads the expressions that the control plane lowered, and evaluates them over attributes that a
//! host supplies. Meaning follows the CEL language definition (github.com/google/cel-spec, `doc/langdef.md`).
//!
//! There is no parser here: text never reaches the engine. Whatever an expression does is bounded, by its depth at
//! load and by the request's budget at each evaluation.
//!
//! The modules stand in the order of a value's way: [`attribute`] → [`load`](Expression::load) (`node`) → `evaluate` →
//! operators and functions on [`Value`]s.

pub mod attribute;
mod budget;
mod calendar;
mod call;
mod convert;
mod error;
mod evaluate;
mod expression;
mod format;
mod function;
mod key;
mod least;
mod load;
mod node;
mod number;
mod operator;
mod pattern;
mod text;
mod time;
mod value;

pub use attribute::{Attribute, AttributeError, Attributes, NoAttributes};
pub use error::{ErrorKind, EvaluationError};
pub use expression::Expression;
pub use format::{double as format_double, duration as format_duration, timestamp as format_timestamp};
pub use function::{arity, name};
pub use key::Key;
pub use load::{LoadError, MAX_DEPTH, MAX_NODES, MAX_TEXT};
pub use pattern::Pattern;
pub use time::{Duration, Timestamp};
pub use value::{Map, Type, Value};
