//! Builds trees from the nodes that the parser reports, with all aliases expanded. Refuses keys that are repeated or
//! not strings, and limits depth and size, because a few lines of aliases can expand to more than fits into memory.

use std::{
    collections::HashMap,
    mem::{replace, take},
};

use super::{
    document::{Document, Fault, Parsed},
    tree::{Key, Node, Position, Value},
};
use crate::diagnostic::{push_field, push_item, quote};

const MAX_DEPTH: usize = 64;
/// The largest number of values in one file, with aliases expanded.
pub const MAX_NODES: usize = 1_000_000;
/// The largest number of bytes of text in one file, with aliases expanded.
pub const MAX_TEXT: usize = 64 * 1024 * 1024;

/// Builds the documents of one file, node by node.
#[derive(Default)]
pub(super) struct Builder {
    documents: Vec<Document>,
    /// The faults of the current document so far.
    faults: Vec<Fault>,
    root: Option<Node>,
    open: Vec<Open>,
    /// Anchored nodes by the parser's number, which is unique in a file. 0 stands for "no anchor".
    anchors: HashMap<usize, Node>,
    /// The number of values built so far, including the copies that are kept for anchors.
    nodes: usize,
    text: usize,
}

/// A list or mapping whose end has not been reached.
struct Open {
    at: Position,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, lines: HashMap<String, usize>, next: Next },
}

/// The role of the next node of a mapping.
enum Next {
    Key,
    ValueOf(Key),
    /// The value of a refused key.
    Ignored,
}

impl Builder {
    /// The documents built so far. `stopped` is the fault that ended the reading, if one did.
    pub(super) fn finish(mut self, stopped: Option<Fault>) -> Parsed {
        self.faults.extend(stopped);
        Parsed { documents: self.documents, broken: self.faults, nodes: self.nodes, text: self.text }
    }

    pub(super) fn end_document(&mut self) {
        self.anchors.clear();
        let faults = take(&mut self.faults);
        let root = self.root.take().filter(|root| !matches!(root.value, Value::Null) || !faults.is_empty());
        self.documents.extend(root.map(|root| Document { root, faults }));
    }

    pub(super) fn open_list(&mut self, at: Position, anchor: usize) -> Result<(), Fault> {
        self.open(at, anchor, Content::List(Vec::new()))
    }

    pub(super) fn open_map(&mut self, at: Position, anchor: usize) -> Result<(), Fault> {
        self.open(at, anchor, Content::Map { entries: Vec::new(), lines: HashMap::new(), next: Next::Key })
    }

    fn open(&mut self, at: Position, anchor: usize, content: Content) -> Result<(), Fault> {
        self.grow(at, Extent { nodes: 1, text: 0, height: 1 })?;
        self.open.push(Open { at, anchor, content });
        Ok(())
    }

    /// Ends the innermost list or mapping.
    pub(super) fn close(&mut self) -> Result<(), Fault> {
        let Some(Open { at, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        self.place(Node { at, value }, anchor)
    }

    pub(super) fn scalar(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        self.grow(node.at, Extent::of(&node))?;
        self.place(node, anchor)
    }

    pub(super) fn alias(&mut self, at: Position, anchor: usize) -> Result<(), Fault> {
        let Some(named) = self.anchors.get(&anchor) else {
            let inside = self.open.iter().any(|open| open.anchor == anchor);
            let cause = if inside { "stands inside the value that it names" } else { "names nothing in this document" };
            return Err(self.fault(at, format!("alias {cause}")));
        };
        self.grow(at, Extent::of(named))?;
        let value = self.anchors.get(&anchor).map_or(Value::Null, |named| named.value.clone());
        self.place(Node { at, value }, 0)
    }

    /// Whether the next node is the key of a mapping.
    pub(super) fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Map { next: Next::Key, .. }, .. }))
    }

    /// Reports a fault in a key. The key's value will be ignored.
    pub(super) fn refuse_key(&mut self, at: Position, message: impl Into<String>) {
        if let Some(Open { content: Content::Map { next, .. }, .. }) = self.open.last_mut() {
            *next = Next::Ignored;
        }
        self.refuse(at, message);
    }

    /// Reports a fault of the current document. Reading continues.
    pub(super) fn refuse(&mut self, at: Position, message: impl Into<String>) {
        let fault = self.fault(at, message);
        self.faults.push(fault);
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        if anchor != 0 {
            self.grow(node.at, Extent { height: 0, ..Extent::of(&node) })?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, lines, next }) => match replace(next, Next::Key) {
                Next::ValueOf(key) => entries.push((key, node)),
                Next::Ignored => {}
                Next::Key => match key(node, lines) {
                    Ok(key) => *next = Next::ValueOf(key),
                    Err((at, message)) => self.refuse_key(at, message),
                },
            },
        }
        Ok(())
    }

    /// Counts a part of the tree against the limits. An error if one is exceeded.
    fn grow(&mut self, at: Position, part: Extent) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(part.nodes);
        self.text = self.text.saturating_add(part.text);
        if self.open.len() + part.height > MAX_DEPTH {
            return Err(self.fault(at, format!("nested more than {MAX_DEPTH} deep")));
        }
        if self.nodes > MAX_NODES {
            return Err(self.fault(at, format!("more than {MAX_NODES} values, with aliases expanded")));
        }
        if self.text > MAX_TEXT {
            return Err(self.fault(at, format!("more than {MAX_TEXT} bytes of text, with aliases expanded")));
        }
        Ok(())
    }

    fn fault(&self, at: Position, message: impl Into<String>) -> Fault {
        let mut field = String::new();
        for open in &self.open {
            field = match &open.content {
                Content::List(items) => push_item(field, items.len()),
                Content::Map { next: Next::ValueOf(key), .. } => push_field(field, &key.name),
                Content::Map { .. } => field,
            };
        }
        Fault { at, field: (!field.is_empty()).then_some(field), message: message.into() }
    }
}

/// The node as a key of a mapping, or where and why it is refused. `lines` has the mapping's keys so far.
fn key(node: Node, lines: &mut HashMap<String, usize>) -> Result<Key, (Position, String)> {
    let Node { at, value } = node;
    let name = match value {
        Value::Text(name) => name,
        other => {
            let hint = if other.is_scalar() { ": put it in quotes" } else { "" };
            return Err((at, format!("expected a string as key, found {}{hint}", other.describe())));
        }
    };
    if let Some(first) = lines.get(&name) {
        return Err((at, format!("duplicate key {}: first on line {first}", quote(&name))));
    }
    lines.insert(name.clone(), at.line);
    Ok(Key { at, name })
}

/// The share of the limits that a part of the tree uses.
#[derive(Default)]
struct Extent {
    nodes: usize,
    text: usize,
    /// The depth of nested lists and mappings.
    height: usize,
}

impl Extent {
    fn of(node: &Node) -> Self {
        let mut extent = Self { nodes: 1, text: 0, height: 0 };
        match &node.value {
            Value::List(items) => items.iter().for_each(|item| extent.include(&Self::of(item))),
            Value::Map(entries) => entries.iter().for_each(|(key, value)| {
                extent.include(&Self { nodes: 1, text: key.name.len(), height: 0 });
                extent.include(&Self::of(value));
            }),
            Value::Text(text) => extent.text = text.len(),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {}
        }
        extent.height += usize::from(!node.value.is_scalar());
        extent
    }

    fn include(&mut self, part: &Self) {
        self.nodes = self.nodes.saturating_add(part.nodes);
        self.text = self.text.saturating_add(part.text);
        self.height = self.height.max(part.height);
    }
}
