//! What reading goes by, and what it finds wrong.

use postern_base::diagnostic::Path;
use serde_json::Value as Json;

use super::{Fault, Faults, Unknown};

/// Reads one JSON value, and collects what is wrong with it. What it returns counts only if nothing is.
pub(super) struct Reader {
    pub(super) unknown: Unknown,
    faults: Vec<Fault>,
}

impl Reader {
    /// One that has found nothing wrong yet.
    pub(super) fn new(unknown: Unknown) -> Self {
        Self { unknown, faults: Vec::new() }
    }

    /// What was read; all faults if anything is wrong.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Faults> {
        if self.faults.is_empty() { Ok(value) } else { Err(Faults(self.faults)) }
    }

    /// Notes what is wrong at a path.
    pub(super) fn fault(&mut self, path: &Path<'_>, message: impl Into<String>) {
        self.faults.push(Fault { path: path.to_string(), message: message.into() });
    }

    /// Notes that something of another type stands at a path.
    pub(super) fn expected(&mut self, what: &str, json: &Json, path: &Path<'_>) {
        self.fault(path, format!("expected {what}, found {}", describe(json)));
    }
}

/// How an error names a value.
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
