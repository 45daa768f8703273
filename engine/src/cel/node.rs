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
    /// The field as a key, so that a lookup makes nothing.
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
    /// The variable of the enclosing comprehension that is so many further out.
    Variable(usize),
}

#[derive(Debug)]
pub(super) struct Comprehension {
    pub(super) kind: Macro,
    pub(super) range: Node,
    /// Only of `map`.
    pub(super) filter: Option<Node>,
    pub(super) body: Node,
}
