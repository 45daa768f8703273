//! The state of reading: how strict it is, and the faults so far.

use postern_base::diagnostic::Path;
use serde_json::Value as Json;

use super::{Fault, Faults, Unknown};

/// Reads one JSON value and collects faults. What its methods return is valid only if there are none.
pub(super) struct Reader {
    pub(super) unknown: Unknown,
    faults: Vec<Fault>,
}

impl Reader {
    /// A reader without faults.
    pub(super) fn new(unknown: Unknown) -> Self {
        Self { unknown, faults: Vec::new() }
    }

    /// The value, or all faults if there are any.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Faults> {
        if self.faults.is_empty() { Ok(value) } else { Err(Faults(self.faults)) }
    }

    /// Records a fault at a path.
    pub(super) fn fault(&mut self, path: &Path<'_>, message: impl Into<String>) {
        self.faults.push(Fault { path: path.to_string(), message: message.into() });
    }

    /// Records a fault: a value of another type was expected at a path.
    pub(super) fn expected(&mut self, what: &str, json: &Json, path: &Path<'_>) {
        self.fault(path, format!("expected {what}, found {}", describe(json)));
    }
}

/// The type of a value in the words of an error message.
pub(super) fn describe(json: &Json) -> &'static str {
    match json {
        Json::Null => "nothing",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "a mapping",
    }
}
