//! Parses text into the crate's syntax tree, and converts its positions to columns. Macros are not expanded; `lower`
//! handles them.

use cel::{Env, IdedExpr, ParseError, common::ast::SourceInfo};
use postern_base::diagnostic::quote;

use super::ExpressionError;

/// A syntax tree, and its text.
pub(super) struct Parsed<'t> {
    pub(super) root: IdedExpr,
    text: &'t str,
    source: SourceInfo,
}

impl<'t> Parsed<'t> {
    pub(super) fn parse(text: &'t str) -> Result<Self, ExpressionError> {
        if text.trim().is_empty() {
            return Err(ExpressionError::new(1, "the expression is empty"));
        }
        let parser = Env::default().with_optional_support(false).parser().enable_ident_escape_syntax(true);
        match parser.parse_with_source_info(text) {
            Ok((root, source)) => Ok(Self { root, text, source }),
            // Only the first error, since later ones mostly follow from it.
            Err(errors) => Err(errors.errors.first().map_or_else(
                || ExpressionError::new(1, "the expression cannot be parsed"),
                |error| ExpressionError::new(column_of(text, error.pos), describe(error)),
            )),
        }
    }

    /// The column of a node's own token: the sign of an operator, the `(` of a call, the `.` of a selection.
    pub(super) fn column(&self, id: u64) -> usize {
        self.offset(id).map_or(1, |offset| characters(self.text.get(..offset).unwrap_or_default()))
    }

    /// The column of a function's name. `id` is the node of its `(`.
    pub(super) fn name_column(&self, id: u64) -> usize {
        let before = self.offset(id).and_then(|offset| self.text.get(..offset)).unwrap_or_default();
        let name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        characters(before.trim_end().trim_end_matches(name))
    }

    fn offset(&self, id: u64) -> Option<usize> {
        usize::try_from(self.source.offset_for(id)?.0).ok()
    }
}

/// The column after a text, in characters.
fn characters(before: &str) -> usize {
    before.chars().count() + 1
}

/// The column in the whole text, from a line and a column in it that both start at 1.
fn column_of(text: &str, (line, column): (isize, isize)) -> usize {
    let lines = usize::try_from(line).unwrap_or(1).saturating_sub(1);
    let before: usize = text.split_inclusive('\n').take(lines).map(|line| line.chars().count()).sum();
    (before + usize::try_from(column).unwrap_or(1)).clamp(1, characters(text))
}

/// A parser's error as a message for users.
fn describe(error: &ParseError) -> String {
    let message = error.msg.strip_prefix("Syntax error: ").unwrap_or(&error.msg);
    if let Some(token) = message.strip_prefix("token recognition error at: ") {
        let token = unquote(token);
        return match token.chars().next() {
            Some('\'' | '"') => "a string that has no end, or an escape that is not known".to_owned(),
            _ => format!("unexpected {}", quote(token)),
        };
    }
    if message.contains("'<EOF>'") {
        return "the expression ends too early".to_owned();
    }
    for start in ["mismatched input ", "extraneous input ", "no viable alternative at input "] {
        if let Some(rest) = message.strip_prefix(start) {
            return format!("unexpected {}", quote(unquote(rest.split(" expecting ").next().unwrap_or(rest))));
        }
    }
    match &error.source {
        Some(source) => format!("{message}: {source}"),
        None => message.to_owned(),
    }
}

fn unquote(token: &str) -> &str {
    token.strip_prefix('\'').and_then(|token| token.strip_suffix('\'')).unwrap_or(token)
}
