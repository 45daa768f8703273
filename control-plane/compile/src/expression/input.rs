//! Reads attributes from a document such as `request: {method: GET, headers: {x-a: 1}}`, to evaluate expressions
//! without a request.

use std::collections::BTreeMap;

use postern_base::diagnostic::{quote, suggestion};
use postern_engine::cel::{Attribute, AttributeError, Attributes, Key, Map, Timestamp, Type, Value};
use serde_json::Value as Json;

/// The values of attributes. Attributes that the document omits are absent, or empty if they are maps.
#[derive(Debug, Default)]
pub struct Input(BTreeMap<Attribute, Value>);

impl Input {
    /// Reads attributes from nested maps, or returns all errors.
    pub fn from_json(document: &Json) -> Result<Self, Vec<String>> {
        let mut input = Self::default();
        let mut errors = Vec::new();
        input.read("", document, &mut errors);
        if errors.is_empty() { Ok(input) } else { Err(errors) }
    }

    fn read(&mut self, prefix: &str, json: &Json, errors: &mut Vec<String>) {
        let entries = match json {
            Json::Object(entries) => entries,
            Json::Null => return,
            _ => {
                let place = if prefix.is_empty() { "the input" } else { prefix };
                return errors.push(format!("{place}: expected a mapping of attributes"));
            }
        };
        for (key, value) in entries {
            let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            let within = format!("{name}.");
            if let Some(attribute) = Attribute::ALL.iter().copied().find(|attribute| attribute.name() == name) {
                match read_attribute(attribute, value) {
                    Ok(value) => {
                        self.0.insert(attribute, value);
                    }
                    Err(message) => errors.push(format!("{name}: {message}")),
                }
            } else if Attribute::ALL.iter().any(|attribute| attribute.name().starts_with(&within)) {
                self.read(&name, value, errors);
            } else {
                let near = suggestion(&name, Attribute::ALL.iter().map(|attribute| attribute.name()));
                errors.push(format!("unknown attribute {}{near}", quote(&name)));
            }
        }
    }
}

impl Attributes for Input {
    fn attribute(&self, attribute: Attribute) -> Result<Value, AttributeError> {
        match self.0.get(&attribute) {
            Some(value) => Ok(value.clone()),
            None if attribute.value_type() == Type::Map => Ok(Map::default().into()),
            None => Err(AttributeError::Absent),
        }
    }

    fn member(&self, attribute: Attribute, key: &str) -> Result<Option<Value>, AttributeError> {
        match self.attribute(attribute)? {
            Value::Map(map) => Ok(map.get(&Key::from(key)).cloned()),
            _ => Ok(None),
        }
    }
}

fn read_attribute(attribute: Attribute, json: &Json) -> Result<Value, String> {
    let expected = |what: &str| format!("expected {what}");
    match (attribute.value_type(), json) {
        (Type::String, _) => text(json).map(Value::from).ok_or_else(|| expected("a string")),
        (Type::Bytes, Json::String(text)) => Ok(Value::from(text.as_bytes())),
        (Type::Bool, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (Type::Int, Json::Number(number)) => number.as_i64().map(Value::Int).ok_or_else(|| expected("an integer")),
        (Type::Timestamp, Json::String(text)) => {
            let wrong = || expected("a time such as `2000-01-01T00:00:00Z`");
            Timestamp::parse(text).map(Value::Timestamp).ok_or_else(wrong)
        }
        (Type::List, Json::Array(_)) => Ok(from_json(json)),
        (Type::Map, Json::Object(entries)) if is_text_map(attribute) => entries
            .iter()
            .map(|(key, value)| {
                let value = text(value).ok_or_else(|| format!("{}: expected a string", quote(key)))?;
                Ok((Key::from(key.to_ascii_lowercase().as_str()), Value::from(value)))
            })
            .collect::<Result<Map, _>>()
            .map(Value::from),
        (Type::Map, Json::Object(_)) => Ok(from_json(json)),
        (of, _) => Err(expected(&format!("a value of type {}", of.name()))),
    }
}

fn is_text_map(attribute: Attribute) -> bool {
    matches!(attribute, Attribute::RequestHeaders | Attribute::ResponseHeaders | Attribute::SourceTags)
}

/// A scalar as text, since YAML reads `x-a: 1` as a number.
fn text(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// A JSON value in CEL. A number without a fraction becomes an int; CEL compares ints and doubles by value.
fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::Int(value),
            (None, Some(value)) => Value::Uint(value),
            (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(elements) => elements.iter().map(from_json).collect::<Vec<_>>().into(),
        Json::Object(entries) => {
            entries.iter().map(|(key, value)| (Key::from(key.as_str()), from_json(value))).collect::<Map>().into()
        }
    }
}
