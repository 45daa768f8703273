//! The result of reading a YAML file: documents, and their faults.

use super::tree::{Node, Position};

/// The documents and faults of one file.
pub struct Parsed {
    /// The documents that were read to their end, except empty ones.
    pub documents: Vec<Document>,
    /// If reading stopped before the end of the file: the cause, and all faults of the document in which it stopped.
    /// Empty if the whole file was read.
    pub broken: Vec<Fault>,
    /// The number of values, with aliases expanded; at most [`MAX_NODES`](super::MAX_NODES).
    pub nodes: usize,
    /// The bytes of text, with aliases expanded; at most [`MAX_TEXT`](super::MAX_TEXT).
    pub text: usize,
}

/// One document of a file.
pub struct Document {
    /// The root of the tree.
    pub root: Node,
    /// The faults of the document as YAML. The tree does not have the parts in question.
    pub faults: Vec<Fault>,
}

/// An error in the YAML itself, as opposed to its meaning.
#[derive(Debug)]
pub struct Fault {
    /// The position of the error.
    pub at: Position,
    /// The path of the field that contains it, if any.
    pub field: Option<String>,
    /// What is wrong: lower case, no full stop, user input in backticks.
    pub message: String,
}

impl Fault {
    pub(super) fn at_byte(bytes: &[u8], index: usize, message: impl Into<String>) -> Self {
        let before = String::from_utf8_lossy(bytes.get(..index).unwrap_or_default());
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { at: Position { line, column }, field: None, message: message.into() }
    }
}
