//! A loaded expression, as its users see it.

use postern_proto::plan::v1 as wire;

use super::{
    attribute::{Attribute, Attributes},
    error::{ErrorKind, EvaluationError},
    evaluate::Evaluation,
    least::least,
    load::{LoadError, load},
    node::Node,
    value::Value,
};
use crate::budget::Budget;

/// A CEL expression that was checked when it was loaded, and can be evaluated any number of times.
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

    /// The fewest steps after which it can have a value.
    pub fn least_cost(&self) -> u64 {
        least(&self.root)
    }

    /// Evaluates it over these attributes, within a budget.
    pub fn evaluate(&self, attributes: &impl Attributes, budget: &Budget) -> Result<Value, EvaluationError> {
        Evaluation::new(attributes, budget).value(&self.root)
    }

    /// Evaluates it as a condition. A value that is neither true nor false is an error.
    pub fn test(&self, attributes: &impl Attributes, budget: &Budget) -> Result<bool, EvaluationError> {
        match self.evaluate(attributes, budget)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(ErrorKind::NotBool(other.value_type()).at(self.root.column)),
        }
    }
}
