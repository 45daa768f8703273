//! The loaded form of an expression: a tree whose every part was checked.

use std::sync::Arc;

use postern_proto::plan::v1::expression::{Function, Macro};

use super::{attribute::Attribute, key::Key, pattern::Pattern, value::Value};

/// A node and where the user wrote it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) column: u32,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Constant(Value),
    Attribute(Attribute),
    HasAttribute(Attribute),
    Member(Attribute, Arc<str>),
    HasMember(Attribute, Arc<str>),
    /// A field of a map. The field is kept as a key, so that a lookup allocates nothing.
    Select(Box<Node>, Key),
    Has(Box<Node>, Key),
    List(Box<[Node]>),
    Map(Box<[(Node, Node)]>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    /// `matches` with a pattern that is known.
    Matches(Box<Node>, Pattern),
    /// Any other function: all arguments are evaluated first.
    Call(Function, Box<[Node]>),
    Comprehension(Box<Comprehension>),
    /// The variable of an enclosing comprehension, by how many comprehensions are in between.
    Variable(usize),
}

#[derive(Debug)]
pub(super) struct Comprehension {
    pub(super) kind: Macro,
    pub(super) range: Node,
    /// The filter of a `map` with three arguments.
    pub(super) filter: Option<Node>,
    pub(super) body: Node,
}
