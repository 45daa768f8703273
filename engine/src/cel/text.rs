//! Functions on strings. Positions and sizes count code points.

use std::sync::Arc;

use super::{budget::Budget, error::ErrorKind, value::Value};
use crate::budget::meter::work;

/// The `limit` of `split` and `replace` as a count; `None` if there is no limit.
fn bound(limit: Option<i64>) -> Option<usize> {
    limit.and_then(|limit| usize::try_from(limit).ok())
}

/// The byte offset of a code point; the end of the text has a position too.
fn place(text: &str, position: i64) -> Result<usize, ErrorKind> {
    let position = usize::try_from(position).map_err(|_| ErrorKind::OutOfRange)?;
    let starts = text.char_indices().map(|(start, _)| start).chain([text.len()]);
    starts.into_iter().nth(position).ok_or(ErrorKind::OutOfRange)
}

fn count(text: &str) -> Value {
    Value::Int(i64::try_from(text.chars().count()).unwrap_or(i64::MAX))
}

pub(super) fn size(text: &str) -> Value {
    count(text)
}

pub(super) fn char_at(text: &str, position: i64) -> Result<Value, ErrorKind> {
    let start = place(text, position)?;
    let found: String = text.get(start..).unwrap_or_default().chars().take(1).collect();
    Ok(Value::from(found))
}

pub(super) fn substring(text: &str, start: i64, end: Option<i64>, budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    let start = place(text, start)?;
    let end = end.map_or(Ok(text.len()), |end| place(text, end))?;
    let part = text.get(start..end).ok_or(ErrorKind::OutOfRange)?;
    budget.make(part.len())?;
    Ok(Value::from(part))
}

/// The first position of `part` from `offset` on, or -1.
pub(super) fn index_of(text: &str, part: &str, offset: Option<i64>) -> Result<Value, ErrorKind> {
    let start = place(text, offset.unwrap_or(0))?;
    let found = text.get(start..).and_then(|tail| tail.find(part));
    Ok(match found.and_then(|found| text.get(..start.saturating_add(found))) {
        Some(before) => count(before),
        None => Value::Int(-1),
    })
}

pub(super) fn ascii_case(text: &str, case: fn(&str) -> String, budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    budget.make(text.len())?;
    Ok(Value::from(case(text)))
}

pub(super) fn trim(text: &str, budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    let trimmed = text.trim();
    budget.make(trimmed.len())?;
    Ok(Value::from(trimmed))
}

/// Splits a text. An empty separator splits it into code points.
pub(super) fn split(
    text: &str,
    separator: &str,
    limit: Option<i64>,
    budget: &mut Budget<'_>,
) -> Result<Value, ErrorKind> {
    budget.spend(text.len())?;
    budget.make(text.len())?;
    work(text.len() / 8);
    let pieces = if separator.is_empty() { text.chars().count() } else { text.matches(separator).count() };
    let limit = bound(limit);
    budget.make_elements(limit.unwrap_or(usize::MAX).min(pieces.saturating_add(1)))?;
    let parts: Vec<&str> = match (limit, separator.is_empty()) {
        (Some(0), _) => Vec::new(),
        (Some(limit), false) => text.splitn(limit, separator).collect(),
        (None, false) => text.split(separator).collect(),
        (limit, true) => split_characters(text, limit.unwrap_or(usize::MAX)),
    };
    Ok(Value::List(parts.into_iter().map(Value::from).collect()))
}

fn split_characters(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let last = parts.len().saturating_add(1) >= limit;
        let size = if last { rest.len() } else { first.len_utf8() };
        let Some((part, after)) = rest.split_at_checked(size) else { break };
        parts.push(part);
        rest = after;
    }
    parts
}

pub(super) fn replace(
    text: &str,
    part: &str,
    by: &str,
    limit: Option<i64>,
    budget: &mut Budget<'_>,
) -> Result<Value, ErrorKind> {
    budget.spend(text.len().saturating_mul(2))?;
    work(text.len() / 8);
    let limit = bound(limit).unwrap_or(usize::MAX);
    let matches = text.matches(part).count().min(limit);
    budget.make(text.len().saturating_add(matches.saturating_mul(by.len())))?;
    Ok(Value::from(text.replacen(part, by, limit)))
}

pub(super) fn concatenate(one: &str, other: &str, budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    budget.make(one.len().saturating_add(other.len()))?;
    Ok(Value::String([one, other].concat().into()))
}

pub(super) fn concatenate_bytes(one: &[u8], other: &[u8], budget: &mut Budget<'_>) -> Result<Value, ErrorKind> {
    budget.make(one.len().saturating_add(other.len()))?;
    Ok(Value::Bytes([one, other].concat().into()))
}

pub(super) fn concatenate_lists(
    one: &Arc<[Value]>,
    other: &[Value],
    budget: &mut Budget<'_>,
) -> Result<Value, ErrorKind> {
    budget.make_elements(one.len().saturating_add(other.len()))?;
    Ok(Value::List(one.iter().chain(other).cloned().collect()))
}
