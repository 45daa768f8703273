//! Canonical protobuf JSON for Envoy's messages, both ways, with `google.protobuf.Any` at any depth.
//!
//! Reading goes straight from JSON to the wire format: everything that is wrong is reported at once, each at its path,
//! and equal input has equal bytes, because fields are written in the order of their numbers and maps in that of their
//! keys. It knows the messages by their descriptors (`descriptors`) and nothing of what they mean to Envoy.

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

/// What becomes of fields, and of names of enumerations, that we do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// They are errors: a user's typing error must not go unseen.
    Refused,
    /// They are left out: a peer may be newer than we are.
    Ignored,
}

/// One thing that is wrong with some JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, such as `filter_chains[0].filters`; empty for the whole.
    pub path: String,
    /// What: lower case, no full stop, user input in backticks.
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

/// All that is wrong with some JSON: at least one fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(Fault::to_string).collect::<Vec<_>>().join("; "))]
pub struct Faults(pub Vec<Fault>);

/// Reads a message of a type that its `@type` names.
pub fn read_any(json: &Json, unknown: Unknown) -> Result<Any, Faults> {
    read_any_at(json, &Path::Root, unknown)
}

/// The same for a message that is part of something greater: paths of faults start with `path`.
pub(crate) fn read_any_at(json: &Json, path: &Path<'_>, unknown: Unknown) -> Result<Any, Faults> {
    let mut reader = Reader::new(unknown);
    let any = reader.any(json, path);
    reader.finish(any)
}

/// Reads a message of a type that the caller knows.
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
