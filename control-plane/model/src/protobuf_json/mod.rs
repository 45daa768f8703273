//! Canonical protobuf JSON for Envoy's messages, both ways, with `google.protobuf.Any` at any depth.
//!
//! Reading goes straight from JSON to the wire format. All faults are reported at once, each with its path. Equal input
//! gives equal bytes, because fields are written in the order of their numbers and maps in that of their keys. It knows
//! messages by their descriptors (`descriptors`), and not what they mean to Envoy.

mod descriptors;
mod message;
mod reader;
mod scalar;
mod well_known;
mod wire;
mod write;

#[cfg(test)]
mod tests;

use std::fmt;

use envoy_types::pb::google::protobuf::Any;
use postern_base::diagnostic::Path;
use prost::{Message, Name};
use serde_json::Value as Json;

pub use write::{WriteError, write};
pub use write::{dynamic, write_dynamic};

use self::reader::Reader;

/// How unknown fields and unknown enum names are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Refused, so that a user's misspelling is found.
    Refused,
    /// Ignored, since a peer may be newer.
    Ignored,
}

/// One fault in some JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The path, such as `filter_chains[0].filters`. Empty for the root.
    pub path: String,
    /// What is wrong: lower case, no full stop, user input in backticks.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.message)
    }
}

/// All faults in some JSON: at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(Fault::to_string).collect::<Vec<_>>().join("; "))]
pub struct Faults(pub Vec<Fault>);

/// Reads a message of the type in its `@type`, or returns all faults.
pub fn read_any(json: &Json, unknown: Unknown) -> Result<Any, Faults> {
    read_any_at(json, &Path::Root, unknown)
}

/// Like [`read_any`], for a message inside a larger document: `path` is its path there.
pub(crate) fn read_any_at(json: &Json, path: &Path<'_>, unknown: Unknown) -> Result<Any, Faults> {
    let mut reader = Reader::new(unknown);
    let any = reader.any(json, path);
    reader.finish(any)
}

/// Reads a message of type `M`, or returns all faults.
pub fn read<M: Message + Name + Default>(json: &Json, unknown: Unknown) -> Result<M, Faults> {
    let mut reader = Reader::new(unknown);
    let bytes = match descriptors::message(&M::full_name()) {
        Some(descriptor) => reader.message(&descriptor, json, &Path::Root),
        None => {
            reader.fault(&Path::Root, format!("no descriptor of `{}`", M::full_name()));
            Vec::new()
        }
    };
    let bytes = reader.finish(bytes)?;
    M::decode(bytes.as_slice())
        .map_err(|error| Faults(vec![Fault { path: String::new(), message: format!("cannot be decoded: {error}") }]))
}
