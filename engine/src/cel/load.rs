//! From the plan's form to a tree. Every index, number, count and size is checked here, so that evaluation checks none.

use std::{collections::BTreeSet, sync::Arc};

use postern_proto::plan::v1::{
    self as wire,
    expression::{self as parts, Function, Macro, constant, node},
};

use super::{
    attribute::Attribute,
    function,
    key::Key,
    node::{Comprehension, Kind, Node},
    pattern::Pattern,
    time::{Duration, Timestamp},
    value::{Map, Type, Value},
};

/// How deeply an expression may nest.
pub const MAX_DEPTH: usize = 64;
/// How many nodes an expression may have.
pub const MAX_NODES: usize = 2_048;
/// How many bytes the constants of an expression may have together.
pub const MAX_TEXT: usize = 64 << 10;

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// There is nothing to evaluate.
    #[error("the expression is empty")]
    Empty,
    /// There is more of something than is allowed.
    #[error("the expression has more than {limit} {what}")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// The most that is allowed.
        limit: usize,
    },
    /// A node refers to one that does not exist, comes later, or belongs to another node.
    #[error("node {node}: node {child} cannot be part of it")]
    Child {
        /// The node.
        node: usize,
        /// The index that it refers to.
        child: u32,
    },
    /// Something is newer than this engine.
    #[error("node {node}: {what} {number} is not known to this engine")]
    Unknown {
        /// The node.
        node: usize,
        /// What is unknown: a function, an attribute.
        what: &'static str,
        /// The number that stands for it.
        number: i32,
    },
    /// Something is wrong with a node by itself.
    #[error("node {node}: {what}")]
    Malformed {
        /// The node.
        node: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A regular expression that cannot be compiled.
    #[error("node {node}: `{}` is not a regular expression that can be used: {error}", pattern.escape_debug())]
    Pattern {
        /// The node.
        node: usize,
        /// The pattern.
        pattern: Arc<str>,
        /// Why it cannot be compiled.
        error: String,
    },
    /// A node that nothing refers to.
    #[error("node {0} is part of nothing")]
    Loose(usize),
    /// A variable outside of the comprehension that it belongs to.
    #[error("a variable has no comprehension around it")]
    Unbound,
}

/// Loads an expression: its root, and what it can read.
pub(super) fn load(wire: &wire::Expression) -> Result<(Node, Box<[Attribute]>), LoadError> {
    if wire.nodes.len() > MAX_NODES {
        return Err(LoadError::TooLarge { what: "nodes", limit: MAX_NODES });
    }
    let mut loader = Loader::default();
    for node in &wire.nodes {
        let loaded = loader.node(node)?;
        loader.loaded.push(Some(loaded));
    }
    let root = loader.loaded.pop().flatten().ok_or(LoadError::Empty)?;
    if let Some(loose) = loader.loaded.iter().position(Option::is_some) {
        return Err(LoadError::Loose(loose));
    }
    if root.free > 0 {
        return Err(LoadError::Unbound);
    }
    Ok((root.node, loader.attributes.into_iter().collect()))
}

/// A subtree with what its parent must know of it.
struct Subtree {
    node: Node,
    depth: usize,
    /// How many enclosing variables it uses.
    free: usize,
}

#[derive(Default)]
struct Loader {
    /// The loaded nodes; each is taken out by its parent.
    loaded: Vec<Option<Subtree>>,
    attributes: BTreeSet<Attribute>,
    text: usize,
    /// The depth of the deepest child of the node that is being loaded, and the most variables that a child uses.
    depth: usize,
    free: usize,
}

impl Loader {
    fn node(&mut self, wire: &parts::Node) -> Result<Subtree, LoadError> {
        (self.depth, self.free) = (0, 0);
        let kind = match wire.kind.as_ref().ok_or_else(|| self.malformed("of a kind that is not known"))? {
            node::Kind::Constant(constant) => Kind::Constant(self.constant(constant)?),
            node::Kind::Attribute(number) => Kind::Attribute(self.attribute(*number)?),
            node::Kind::HasAttribute(number) => Kind::HasAttribute(self.attribute(*number)?),
            node::Kind::Member(member) => self.member(member).map(|(of, key)| Kind::Member(of, key))?,
            node::Kind::HasMember(member) => self.member(member).map(|(of, key)| Kind::HasMember(of, key))?,
            node::Kind::Select(select) => self.select(select).map(|(of, field)| Kind::Select(of, field))?,
            node::Kind::Has(select) => self.select(select).map(|(of, field)| Kind::Has(of, field))?,
            node::Kind::List(list) => self.list(list)?,
            node::Kind::Map(map) => self.map(map)?,
            node::Kind::Call(call) => self.call(call)?,
            node::Kind::Comprehension(comprehension) => self.comprehension(comprehension)?,
            node::Kind::Variable(variable) => self.variable(*variable)?,
        };
        let depth = self.depth.saturating_add(1);
        if depth > MAX_DEPTH {
            return Err(LoadError::TooLarge { what: "levels", limit: MAX_DEPTH });
        }
        Ok(Subtree { node: Node { column: wire.column, kind }, depth, free: self.free })
    }

    fn malformed(&self, what: &'static str) -> LoadError {
        LoadError::Malformed { node: self.loaded.len(), what }
    }

    fn unknown(&self, what: &'static str, number: i32) -> LoadError {
        LoadError::Unknown { node: self.loaded.len(), what, number }
    }

    /// Takes a node that was loaded before, and that no other node has taken.
    fn child(&mut self, index: u32) -> Result<Node, LoadError> {
        self.take(index, 0)
    }

    /// Like [`Self::child`], for a node inside of this number of new variables.
    fn take(&mut self, index: u32, variables: usize) -> Result<Node, LoadError> {
        let error = LoadError::Child { node: self.loaded.len(), child: index };
        let slot = usize::try_from(index).ok().and_then(|index| self.loaded.get_mut(index));
        let subtree = slot.and_then(Option::take).ok_or(error)?;
        self.depth = self.depth.max(subtree.depth);
        self.free = self.free.max(subtree.free.saturating_sub(variables));
        Ok(subtree.node)
    }

    fn children(&mut self, indexes: &[u32]) -> Result<Box<[Node]>, LoadError> {
        indexes.iter().map(|index| self.child(*index)).collect()
    }

    /// Counts text or bytes that stay in memory.
    fn count(&mut self, size: usize) -> Result<(), LoadError> {
        self.text = self.text.saturating_add(size);
        if self.text > MAX_TEXT {
            return Err(LoadError::TooLarge { what: "bytes of constants", limit: MAX_TEXT });
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<Arc<str>, LoadError> {
        self.count(text.len())?;
        Ok(text.into())
    }

    fn constant(&mut self, constant: &parts::Constant) -> Result<Value, LoadError> {
        Ok(match constant.kind.as_ref().ok_or_else(|| self.malformed("a constant of a type that is not known"))? {
            constant::Kind::Null(_) => Value::Null,
            constant::Kind::Bool(value) => Value::Bool(*value),
            constant::Kind::Int(value) => Value::Int(*value),
            constant::Kind::Uint(value) => Value::Uint(*value),
            constant::Kind::Double(value) => Value::Double(*value),
            constant::Kind::String(text) => Value::String(self.text(text)?),
            constant::Kind::Bytes(bytes) => {
                self.count(bytes.len())?;
                Value::from(bytes.as_slice())
            }
            constant::Kind::Timestamp(point) => Timestamp::new(point.seconds, point.nanoseconds)
                .map(Value::Timestamp)
                .ok_or_else(|| self.malformed("a timestamp out of range"))?,
            constant::Kind::Duration(span) => Value::Duration(Duration::from_nanoseconds(*span)),
        })
    }

    fn attribute(&mut self, number: i32) -> Result<Attribute, LoadError> {
        let attribute = Attribute::from_wire(number).ok_or_else(|| self.unknown("attribute", number))?;
        self.attributes.insert(attribute);
        Ok(attribute)
    }

    fn member(&mut self, member: &parts::Member) -> Result<(Attribute, Arc<str>), LoadError> {
        let attribute = self.attribute(member.attribute)?;
        if attribute.value_type() != Type::Map {
            return Err(self.malformed("an entry of an attribute that is no map"));
        }
        Ok((attribute, self.text(&member.key)?))
    }

    fn select(&mut self, select: &parts::Select) -> Result<(Box<Node>, Key), LoadError> {
        let operand = self.child(select.operand)?;
        Ok((Box::new(operand), Key::String(self.text(&select.field)?)))
    }

    /// Loads a list. A list of constants is a constant, and is built once.
    fn list(&mut self, list: &parts::List) -> Result<Kind, LoadError> {
        let elements = self.children(&list.elements)?;
        let constants: Option<Arc<[Value]>> = elements.iter().map(constant_of).collect();
        Ok(constants.map_or(Kind::List(elements), |values| Kind::Constant(Value::List(values))))
    }

    /// Loads a map. A map of constants is a constant, unless a key is wrong: that is an error of the evaluation.
    fn map(&mut self, map: &parts::Map) -> Result<Kind, LoadError> {
        if map.keys.len() != map.values.len() {
            return Err(self.malformed("a map with more keys than values, or less"));
        }
        let entries: Box<[(Node, Node)]> = map
            .keys
            .iter()
            .zip(&map.values)
            .map(|(key, value)| Ok((self.child(*key)?, self.child(*value)?)))
            .collect::<Result<_, LoadError>>()?;
        Ok(constant_map(&entries).map_or(Kind::Map(entries), |map| Kind::Constant(map.into())))
    }

    fn call(&mut self, call: &parts::Call) -> Result<Kind, LoadError> {
        let known = Function::try_from(call.function).ok().filter(|function| *function != Function::Unspecified);
        let function = known.ok_or_else(|| self.unknown("function", call.function))?;
        if !function::arity(function).contains(&call.arguments.len()) {
            return Err(self.malformed("a function with too many arguments, or too few"));
        }
        let arguments = self.children(&call.arguments)?;
        match function {
            Function::And => self.array(arguments).map(Kind::And),
            Function::Or => self.array(arguments).map(Kind::Or),
            Function::Conditional => self.array(arguments).map(Kind::Conditional),
            Function::Matches => self.matches(arguments),
            _ => Ok(Kind::Call(function, arguments)),
        }
    }

    fn array<const SIZE: usize>(&self, nodes: Box<[Node]>) -> Result<Box<[Node; SIZE]>, LoadError> {
        nodes.try_into().map_err(|_| self.malformed("an operator with too many operands, or too few"))
    }

    fn matches(&mut self, arguments: Box<[Node]>) -> Result<Kind, LoadError> {
        let [subject, pattern] = *self.array::<2>(arguments)?;
        let Kind::Constant(Value::String(text)) = &pattern.kind else {
            return Ok(Kind::Call(Function::Matches, Box::new([subject, pattern])));
        };
        let compiled = Pattern::compile(text);
        let refused = |error| LoadError::Pattern { node: self.loaded.len(), pattern: Arc::clone(text), error };
        Ok(Kind::Matches(Box::new(subject), compiled.map_err(refused)?))
    }

    fn comprehension(&mut self, wire: &parts::Comprehension) -> Result<Kind, LoadError> {
        let known = Macro::try_from(wire.r#macro).ok().filter(|kind| *kind != Macro::Unspecified);
        let kind = known.ok_or_else(|| self.unknown("macro", wire.r#macro))?;
        if wire.filter.is_some() && kind != Macro::Map {
            return Err(self.malformed("a filter that is not of `map`"));
        }
        let range = self.child(wire.range)?;
        let filter = wire.filter.map(|filter| self.take(filter, 1)).transpose()?;
        let body = self.take(wire.body, 1)?;
        Ok(Kind::Comprehension(Box::new(Comprehension { kind, range, filter, body })))
    }

    fn variable(&mut self, variable: u32) -> Result<Kind, LoadError> {
        let outwards = usize::try_from(variable).map_err(|_| LoadError::Unbound)?;
        self.free = outwards.checked_add(1).ok_or(LoadError::Unbound)?;
        Ok(Kind::Variable(outwards))
    }
}

fn constant_of(node: &Node) -> Option<Value> {
    match &node.kind {
        Kind::Constant(value) => Some(value.clone()),
        _ => None,
    }
}

fn constant_map(entries: &[(Node, Node)]) -> Option<Map> {
    let mut map = Map::default();
    for (key, value) in entries {
        let key = constant_of(key).and_then(|key| Key::from_value(&key))?;
        if !map.insert(key, constant_of(value)?) {
            return None;
        }
    }
    Some(map)
}
