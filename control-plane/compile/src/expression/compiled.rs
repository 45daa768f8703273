//! A compiled expression, with what the engine knows of it once it is loaded.

use postern_base::diagnostic::quote;
use postern_engine::cel::{Attribute, Expression, LoadError, Type};
use postern_proto::plan::v1::{
    self as wire,
    expression::{Constant, constant, node},
};

use super::ExpressionError;

/// An expression that the engine has loaded.
#[derive(Debug)]
pub struct Compiled {
    /// Its form in a plan.
    pub wire: wire::Expression,
    /// Its static type, if that is known.
    of: Option<Type>,
    attributes: Box<[Attribute]>,
    least_cost: u64,
}

impl Compiled {
    /// Loads an expression as the filter does.
    pub(super) fn load(wire: wire::Expression, of: Option<Type>) -> Result<Self, ExpressionError> {
        let loaded = Expression::load(&wire).map_err(|error| refused(&wire, &error))?;
        Ok(Self { wire, of, attributes: loaded.attributes().into(), least_cost: loaded.least_cost() })
    }

    /// An error if it cannot be a condition: its type is known, and not bool.
    pub(super) fn check_condition(&self) -> Result<(), ExpressionError> {
        match self.of {
            Some(of) if of != Type::Bool => {
                let message = format!("expected an expression of type {}, found {}", Type::Bool.name(), of.name());
                Err(ExpressionError::new(1, message))
            }
            _ => Ok(()),
        }
    }

    /// Whether it can read an attribute or an entry of it, in whatever spelling.
    pub fn reads(&self, attribute: Attribute) -> bool {
        self.attributes.contains(&attribute)
    }

    /// Whether it reads an attribute without asking first whether there is one (`has`).
    pub fn presumes(&self, attribute: Attribute) -> bool {
        let attribute = i32::from(attribute.wire());
        let reads = |kind: &node::Kind| matches!(kind, node::Kind::Attribute(number) if *number == attribute);
        self.kinds().any(reads) && !self.asks_for(attribute)
    }

    /// Whether it asks if there is such an attribute (`has`).
    pub fn asks_whether(&self, attribute: Attribute) -> bool {
        self.asks_for(attribute.wire().into())
    }

    fn asks_for(&self, attribute: i32) -> bool {
        self.kinds().any(|kind| matches!(kind, node::Kind::HasAttribute(number) if *number == attribute))
    }

    fn kinds(&self) -> impl Iterator<Item = &node::Kind> {
        self.wire.nodes.iter().filter_map(|node| node.kind.as_ref())
    }

    /// The fewest steps after which it can have a value.
    pub fn least_cost(&self) -> u64 {
        self.least_cost
    }

    /// Its value for every request. `None` if it is not a constant, or not a bool.
    pub fn always(&self) -> Option<bool> {
        match self.wire.nodes.last()?.kind.as_ref()? {
            node::Kind::Constant(Constant { kind: Some(constant::Kind::Bool(value)) }) => Some(*value),
            _ => None,
        }
    }
}

/// An error of the engine's loader as an error in the user's text.
fn refused(expression: &wire::Expression, error: &LoadError) -> ExpressionError {
    if let LoadError::Pattern { node, pattern, error } = error {
        let column = expression.nodes.get(*node).map_or(1, |node| node.column);
        let message = format!("{} is not a regular expression that can be used: {error}", quote(pattern));
        return ExpressionError::new(usize::try_from(column).unwrap_or(1), message);
    }
    ExpressionError::new(1, error.to_string())
}
