//! The checked form of an expression, and its encoding in a plan.

use postern_engine::cel::{Attribute, MAX_NODES, Type, Value};
use postern_proto::plan::v1::{
    self as wire,
    expression::{self as parts, Function, Macro, constant, node},
};

/// A part of an expression, with its column, and its type if that is known statically.
pub(super) struct Term {
    pub(super) column: usize,
    pub(super) of: Option<Type>,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Constant(Value),
    Attribute(Attribute),
    HasAttribute(Attribute),
    Member(Attribute, String),
    HasMember(Attribute, String),
    Select(Box<Term>, String),
    Has(Box<Term>, String),
    List(Vec<Term>),
    Map(Vec<(Term, Term)>),
    Call(Function, Vec<Term>),
    Comprehension(Box<Comprehension>),
    /// A variable, by the number of comprehensions between it and its own.
    Variable(usize),
}

pub(super) struct Comprehension {
    pub(super) kind: Macro,
    pub(super) range: Term,
    pub(super) filter: Option<Term>,
    pub(super) body: Term,
}

impl Term {
    pub(super) fn new(column: usize, of: Option<Type>, kind: Kind) -> Self {
        Self { column, of, kind }
    }

    pub(super) fn constant(column: usize, value: Value) -> Self {
        Self::new(column, Some(value.value_type()), Kind::Constant(value))
    }

    /// The string, if this is a string literal.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Constant(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn to_wire(&self) -> wire::Expression {
        let mut writer = Writer::default();
        writer.term(self);
        wire::Expression { nodes: writer.nodes }
    }
}

/// Writes nodes after the nodes that they refer to. Stops beyond the engine's limit, whose loader then refuses the
/// expression.
#[derive(Default)]
struct Writer {
    nodes: Vec<parts::Node>,
}

impl Writer {
    fn push(&mut self, column: usize, kind: node::Kind) -> u32 {
        if self.nodes.len() <= MAX_NODES {
            let column = u32::try_from(column).unwrap_or(0);
            self.nodes.push(parts::Node { kind: Some(kind), column });
        }
        u32::try_from(self.nodes.len()).map_or(u32::MAX, |count| count.saturating_sub(1))
    }

    fn terms(&mut self, terms: &[Term]) -> Vec<u32> {
        terms.iter().map(|term| self.term(term)).collect()
    }

    fn term(&mut self, term: &Term) -> u32 {
        let kind = match &term.kind {
            Kind::Constant(value) => return self.value(term.column, value),
            Kind::Attribute(attribute) => node::Kind::Attribute(attribute.wire().into()),
            Kind::HasAttribute(attribute) => node::Kind::HasAttribute(attribute.wire().into()),
            Kind::Member(attribute, key) => node::Kind::Member(member(*attribute, key)),
            Kind::HasMember(attribute, key) => node::Kind::HasMember(member(*attribute, key)),
            Kind::Select(operand, field) => node::Kind::Select(self.select(operand, field)),
            Kind::Has(operand, field) => node::Kind::Has(self.select(operand, field)),
            Kind::List(elements) => node::Kind::List(parts::List { elements: self.terms(elements) }),
            Kind::Map(entries) => {
                let pairs = entries.iter().map(|(key, value)| (self.term(key), self.term(value)));
                let (keys, values) = pairs.unzip();
                node::Kind::Map(parts::Map { keys, values })
            }
            Kind::Call(function, arguments) => {
                let arguments = self.terms(arguments);
                node::Kind::Call(parts::Call { function: (*function).into(), arguments })
            }
            Kind::Comprehension(comprehension) => self.comprehension(comprehension),
            Kind::Variable(outwards) => node::Kind::Variable(u32::try_from(*outwards).unwrap_or(u32::MAX)),
        };
        self.push(term.column, kind)
    }

    fn select(&mut self, operand: &Term, field: &str) -> parts::Select {
        parts::Select { operand: self.term(operand), field: field.to_owned() }
    }

    fn comprehension(&mut self, comprehension: &Comprehension) -> node::Kind {
        node::Kind::Comprehension(parts::Comprehension {
            r#macro: comprehension.kind.into(),
            range: self.term(&comprehension.range),
            filter: comprehension.filter.as_ref().map(|filter| self.term(filter)),
            body: self.term(&comprehension.body),
        })
    }

    fn value(&mut self, column: usize, value: &Value) -> u32 {
        let kind = match value {
            Value::Null => constant::Kind::Null(true),
            Value::Bool(value) => constant::Kind::Bool(*value),
            Value::Int(value) => constant::Kind::Int(*value),
            Value::Uint(value) => constant::Kind::Uint(*value),
            Value::Double(value) => constant::Kind::Double(*value),
            Value::String(text) => constant::Kind::String(text.to_string()),
            Value::Bytes(bytes) => constant::Kind::Bytes(bytes.to_vec()),
            Value::Timestamp(point) => constant::Kind::Timestamp(parts::Timestamp {
                seconds: point.seconds(),
                nanoseconds: point.nanoseconds(),
            }),
            Value::Duration(span) => constant::Kind::Duration(span.nanoseconds()),
            Value::List(elements) => {
                let elements = elements.iter().map(|element| self.value(column, element)).collect();
                return self.push(column, node::Kind::List(parts::List { elements }));
            }
            Value::Map(map) => {
                let entries = map.iter();
                let pairs =
                    entries.map(|(key, value)| (self.value(column, &key.to_value()), self.value(column, value)));
                let (keys, values) = pairs.unzip();
                return self.push(column, node::Kind::Map(parts::Map { keys, values }));
            }
        };
        self.push(column, node::Kind::Constant(parts::Constant { kind: Some(kind) }))
    }
}

fn member(attribute: Attribute, key: &str) -> parts::Member {
    parts::Member { attribute: attribute.wire().into(), key: key.to_owned() }
}
