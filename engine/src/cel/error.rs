//! Why an evaluation has no value. No message repeats request data: it could be a credential.

use std::{fmt, sync::Arc};

use super::{
    attribute::{Attribute, AttributeError},
    value::{Type, Value},
};

/// What a function or operator makes of its operands. `None` if it has no overload for their types.
pub(super) type Overload = Result<Option<Value>, ErrorKind>;

/// An error and where in the user's text it arose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct EvaluationError {
    column: u32,
    kind: ErrorKind,
}

impl EvaluationError {
    /// The column in characters, from 1; 0 if unknown.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Whether the evaluation costs more than it may. Then it must stop: no other operand can make up for that.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, ErrorKind::TooCostly | ErrorKind::TooLarge)
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// A map has no such key. The key is there if the expression itself names it.
    #[error("no such key{}", Quoted(.0))]
    NoSuchKey(Option<Arc<str>>),
    /// A function does not take values of these types.
    #[error("{} is not defined for {}", function, Types(types))]
    NoSuchOverload {
        /// The function's or operator's name in messages.
        function: &'static str,
        /// The types of its arguments.
        types: Vec<Type>,
    },
    /// A result does not fit its type.
    #[error("{} overflow", .0.name())]
    Overflow(Type),
    /// An integer was divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The remainder of a division by zero.
    #[error("modulus by zero")]
    ModulusByZero,
    /// There is no such element of a list or character of a string.
    #[error("index out of range")]
    OutOfRange,
    /// A map literal repeats a key.
    #[error("a key is there twice")]
    RepeatedKey,
    /// A map literal has a key of a type that cannot be one.
    #[error("{} cannot be a key of a map", .0.name())]
    NotAKey(Type),
    /// A value cannot be converted.
    #[error("this {} cannot be converted to {}", from.name(), to.name())]
    Conversion {
        /// The type that it has.
        from: Type,
        /// The type to convert it to.
        to: Type,
    },
    /// A regular expression that cannot be compiled.
    #[error("not a regular expression that can be used here")]
    Pattern,
    /// An attribute has no value.
    #[error("`{}` {error}", attribute.name())]
    Attribute {
        /// The attribute.
        attribute: Attribute,
        /// Why it has no value.
        error: AttributeError,
    },
    /// An entry of an attribute has no value.
    #[error("`{}` of `{}` {error}", key.escape_debug(), attribute.name())]
    Member {
        /// The attribute.
        attribute: Attribute,
        /// The entry's key.
        key: Arc<str>,
        /// Why it has no value.
        error: AttributeError,
    },
    /// The result is not a truth value, as it should be.
    #[error("the result is {}, not true or false", article(*.0))]
    NotBool(Type),
    /// The evaluation took more steps than it may.
    #[error("the evaluation takes too long")]
    TooCostly,
    /// The evaluation made more bytes than it may.
    #[error("the evaluation makes too much data")]
    TooLarge,
}

impl ErrorKind {
    pub(super) fn at(self, column: u32) -> EvaluationError {
        EvaluationError { column, kind: self }
    }
}

/// The type's name with its article.
fn article(of: Type) -> String {
    let article = if of == Type::Int { "an" } else { "a" };
    format!("{article} {}", of.name())
}

struct Quoted<'a>(&'a Option<Arc<str>>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |key| write!(f, " `{}`", key.escape_debug()))
    }
}

struct Types<'a>(&'a [Type]);

impl fmt::Display for Types<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.0.iter().enumerate() {
            let joint = if index == 0 { "" } else { " and " };
            write!(f, "{joint}{}", one.name())?;
        }
        Ok(())
    }
}
