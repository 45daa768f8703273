//! A loaded expression: what its users see.

use postern_proto::plan::v1 as wire;

use super::{
    attribute::{Attribute, Attributes},
    error::{ErrorKind, EvaluationError},
    evaluate::Evaluation,
    load::{LoadError, load},
    node::Node,
    value::Value,
};

/// A CEL expression that was checked whole and can be evaluated any number of times.
#[derive(Debug)]
pub struct Expression {
    root: Node,
    attributes: Box<[Attribute]>,
}

impl Expression {
    /// Loads an expression, whole or not at all.
    pub fn load(wire: &wire::Expression) -> Result<Self, LoadError> {
        let (root, attributes) = load(wire)?;
        Ok(Self { root, attributes })
    }

    /// The attributes that it can read, each once, in order.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// Its value over these attributes.
    pub fn evaluate(&self, attributes: &impl Attributes) -> Result<Value, EvaluationError> {
        Evaluation::new(attributes).value(&self.root)
    }

    /// Whether it holds. A value that is neither true nor false is an error.
    pub fn test(&self, attributes: &impl Attributes) -> Result<bool, EvaluationError> {
        match self.evaluate(attributes)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(ErrorKind::NotBool(other.value_type()).at(self.root.column)),
        }
    }
}
