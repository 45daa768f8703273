//! What reading the YAML of a file gives: documents, and what is wrong with them.

use super::tree::{Node, Position};

/// What one file holds.
pub struct Parsed {
    /// The documents that could be read to their end, without the empty ones.
    pub documents: Vec<Document>,
    /// Why reading stopped before the end of the file, with all faults of the document in which it stopped;
    /// empty if the whole file was read.
    pub broken: Vec<Fault>,
    /// How many values it has, with aliases expanded; of [`MAX_NODES`](super::MAX_NODES).
    pub nodes: usize,
    /// How many bytes of text it has, with aliases expanded; of [`MAX_TEXT`](super::MAX_TEXT).
    pub text: usize,
}

/// One document of a file.
pub struct Document {
    /// All of it.
    pub root: Node,
    /// What is wrong with the document as YAML; the tree leaves it out.
    pub faults: Vec<Fault>,
}

/// An error that concerns YAML, not what it means.
#[derive(Debug)]
pub struct Fault {
    /// Where it is.
    pub at: Position,
    /// The field that it stands in, if any.
    pub field: Option<String>,
    /// What is wrong.
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
