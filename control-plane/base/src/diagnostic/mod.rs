//! Errors in a user's input with file, line, column and field: the only form in which errors of resources are reported.
//! Also the parts that messages share: quotes, suggestions, field paths. It does not know what resources or documents
//! are.

mod nearest;
mod path;

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::{
    nearest::{one_of, suggestion, suggestion_or_all},
    path::{Path, after_field, push_field, push_item, split_item},
};

/// The longest quote of a user's input in a message, in characters.
const LONGEST_QUOTE: usize = 80;

/// One error in a user's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Diagnostic {
    /// The file, as the user knows it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The resource, such as "RoutePolicy `users-api`"; the kind alone if it has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The field in the resource, such as `spec.request[0].params.header`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong: lower case, no full stop, user input in backticks.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        for part in [&self.resource, &self.field].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// All errors of a bundle: at least one, sorted by file, line and column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error, JsonSchema)]
#[serde(transparent)]
#[error("{}", self.lines())]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// `Ok` if nothing was found, else all errors in order.
    pub fn reject(mut found: Vec<Diagnostic>) -> Result<(), Self> {
        found.sort();
        found.dedup();
        if found.is_empty() { Ok(()) } else { Err(Self(found)) }
    }

    /// The errors of both lists, sorted, each once.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        let mut all: Vec<_> = self.into_iter().chain(others).collect();
        all.sort();
        all.dedup();
        Self(all)
    }

    /// The errors, by file, line and column.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    fn lines(&self) -> String {
        let lines: Vec<_> = self.0.iter().map(Diagnostic::to_string).collect();
        lines.join("\n")
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// User input in backticks, with control characters escaped, and cut if it is too long.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("`");
    for character in text.chars().take(LONGEST_QUOTE) {
        if character.is_control() {
            quoted.extend(character.escape_default());
        } else {
            quoted.push(character);
        }
    }
    if text.chars().nth(LONGEST_QUOTE).is_some() {
        quoted.push('…');
    }
    quoted.push('`');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostic(file: &str, line: usize, column: usize) -> Diagnostic {
        let message = "unknown field".to_owned();
        Diagnostic { file: file.to_owned(), line, column, resource: None, field: None, message }
    }

    #[test]
    fn shows_place_resource_field_and_message() {
        let full = Diagnostic {
            resource: Some("RoutePolicy `users-api`".to_owned()),
            field: Some("spec.request[0].params.header".to_owned()),
            ..diagnostic("policies/users.yaml", 12, 9)
        };
        let expect = "policies/users.yaml:12:9: RoutePolicy `users-api`: spec.request[0].params.header: unknown field";
        assert_eq!(full.to_string(), expect);
    }

    #[test]
    fn leaves_absent_parts_out() {
        assert_eq!(diagnostic("a.yaml", 1, 2).to_string(), "a.yaml:1:2: unknown field");
        let json = serde_json::to_string(&diagnostic("a.yaml", 1, 2)).unwrap();
        assert_eq!(json, r#"{"file":"a.yaml","line":1,"column":2,"message":"unknown field"}"#);
    }

    #[test]
    fn sorts_by_file_line_and_column() {
        let found = vec![diagnostic("b", 1, 1), diagnostic("a", 10, 1), diagnostic("a", 2, 9), diagnostic("a", 2, 3)];
        let shown = Diagnostics::reject(found).unwrap_err().to_string();
        assert_eq!(shown, "a:2:3: unknown field\na:2:9: unknown field\na:10:1: unknown field\nb:1:1: unknown field");
    }

    #[test]
    fn is_no_error_when_nothing_was_found() {
        assert_eq!(Diagnostics::reject(Vec::new()), Ok(()));
    }

    #[test]
    fn quotes_input_safely() {
        assert_eq!(quote("a b"), "`a b`");
        assert_eq!(quote("a\u{1b}[31m\n"), r"`a\u{1b}[31m\n`");
        assert_eq!(quote(&"é".repeat(81)), format!("`{}…`", "é".repeat(80)));
    }
}
