//! Claims as values, found by name or path.

use std::sync::Arc;

use crate::{
    cel::{Key, Map, Value},
    json::{self, Limits, Number, Object},
    text::json::quote,
};

/// The limits on a token's claims.
pub(super) const LIMITS: Limits = Limits { depth: 16, values: 2048 };

const SECOND: u64 = 1_000_000_000;
/// About how many bytes of memory a value with its name takes, without its text.
const ENTRY: usize = 96;

/// The path of a claim: the claim of exactly this name or, if there is none, the member that its parts between dots
/// lead to.
#[derive(Debug, Clone)]
pub(crate) struct ClaimPath {
    whole: Key,
    first: Key,
    rest: Vec<Key>,
}

impl ClaimPath {
    pub(crate) fn new(path: &str) -> Self {
        let mut parts = path.split('.').map(Key::from);
        Self { whole: path.into(), first: parts.next().unwrap_or_else(|| "".into()), rest: parts.collect() }
    }

    /// The claim's value. `None` if it is absent or null.
    pub(crate) fn find<'a>(&self, claims: &'a Map) -> Option<&'a Value> {
        let nested = || {
            self.rest.iter().try_fold(claims.get(&self.first)?, |value, name| match value {
                Value::Map(members) => members.get(name),
                _ => None,
            })
        };
        claims.get(&self.whole).or_else(nested).filter(|value| !matches!(value, Value::Null))
    }
}

impl ClaimPath {
    /// Like [`Self::find`], in claims that were not converted to values.
    pub(crate) fn find_in<'a, 'b>(&self, claims: &'b Object<'a>) -> Option<&'b json::Value<'a>> {
        let nested = || {
            self.rest.iter().try_fold(claims.get(text(&self.first))?, |value, name| match value {
                json::Value::Object(members) => members.get(text(name)),
                _ => None,
            })
        };
        claims.get(text(&self.whole)).or_else(nested).filter(|value| !matches!(value, json::Value::Null))
    }
}

fn text(key: &Key) -> &str {
    match key {
        Key::String(text) => text,
        _ => "",
    }
}

/// Converts claims to the values of expressions.
pub(super) fn convert(object: Object<'_>) -> Map {
    // Each name is there once, and they come in order: the map is built in one go.
    object.into_iter().map(|(name, value)| (Key::String(name.into()), convert_value(value))).collect()
}

fn convert_value(value: json::Value<'_>) -> Value {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(truth) => Value::Bool(truth),
        json::Value::Number(Number::Int(number)) => Value::Int(number),
        json::Value::Number(Number::Uint(number)) => Value::Uint(number),
        json::Value::Number(Number::Double(number)) => Value::Double(number),
        json::Value::String(text) => Value::String(text.into()),
        json::Value::Array(items) => Value::List(items.into_iter().map(convert_value).collect()),
        json::Value::Object(members) => Value::from(convert(members)),
    }
}

/// About how much memory the claims take.
pub(super) fn weight(claims: &Map) -> usize {
    claims.iter().map(|(_, value)| weight_of(value)).fold(ENTRY, usize::saturating_add)
}

fn weight_of(value: &Value) -> usize {
    let within = match value {
        Value::String(text) => text.len(),
        Value::List(items) => items.iter().map(weight_of).fold(0, usize::saturating_add),
        Value::Map(members) => weight(members),
        _ => 0,
    };
    within.saturating_add(ENTRY)
}

/// A NumericDate (RFC 7519, section 2) in nanoseconds since 1970. A time before 1970 is 0; a time out of range is the
/// largest one. `None` if it is not a number.
pub(super) fn time(value: &json::Value<'_>) -> Option<u64> {
    match value {
        json::Value::Number(Number::Int(seconds)) => {
            Some(u64::try_from(*seconds).unwrap_or_default().saturating_mul(SECOND))
        }
        json::Value::Number(Number::Uint(seconds)) => Some(seconds.saturating_mul(SECOND)),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        json::Value::Number(Number::Double(seconds)) => Some((seconds * 1e9) as u64),
        _ => None,
    }
}

/// Whether `aud` (RFC 7519, section 4.1.3: one or several) names one of these; `None` if it is not of its form.
pub(super) fn names_one_of(audience: &json::Value<'_>, audiences: &[Arc<str>]) -> Option<bool> {
    let is_one = |text: &str| audiences.iter().any(|audience| **audience == *text);
    match audience {
        json::Value::String(text) => Some(is_one(text)),
        json::Value::Array(items) => items.iter().try_fold(false, |found, item| match item {
            json::Value::String(text) => Some(found || is_one(text)),
            _ => None,
        }),
        _ => None,
    }
}

/// A claim as text for a header: text as it is, everything else as JSON.
pub(super) fn header_text(value: &json::Value<'_>) -> String {
    match value {
        json::Value::String(text) => text.as_ref().to_owned(),
        other => {
            let mut text = String::new();
            write_json(other, &mut text);
            text
        }
    }
}

fn write_json(value: &json::Value<'_>, text: &mut String) {
    match value {
        json::Value::Null => text.push_str("null"),
        json::Value::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
        json::Value::Number(Number::Int(number)) => text.push_str(&number.to_string()),
        json::Value::Number(Number::Uint(number)) => text.push_str(&number.to_string()),
        json::Value::Number(Number::Double(number)) => text.push_str(&number.to_string()),
        json::Value::String(string) => text.push_str(&quote(string)),
        json::Value::Array(items) => write_members(items.iter().map(|item| (None, item)), ['[', ']'], text),
        json::Value::Object(members) => {
            write_members(members.iter().map(|(name, value)| (Some(name), value)), ['{', '}'], text);
        }
    }
}

fn write_members<'a, 'b: 'a>(
    members: impl Iterator<Item = (Option<&'a str>, &'a json::Value<'b>)>,
    [open, close]: [char; 2],
    text: &mut String,
) {
    text.push(open);
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            text.push(',');
        }
        if let Some(name) = name {
            text.push_str(&quote(name));
            text.push(':');
        }
        write_json(value, text);
    }
    text.push(close);
}
