//! The messages with a special JSON form: wrappers, times, and `Struct` and its parts.

use std::collections::BTreeMap;

use postern_base::diagnostic::{Path, quote};
use prost::Message;
use prost_reflect::{
    Kind, MessageDescriptor,
    prost_types::{Duration, Timestamp},
};
use serde_json::Value as Json;

use super::{
    reader::Reader,
    scalar,
    wire::{self, WireType},
};

/// Reads a message with a special form. Returns its encoding, without a length prefix.
pub(super) type ReadWellKnown = fn(&mut Reader, &MessageDescriptor, &Json, &Path<'_>) -> Vec<u8>;

/// The largest `Duration`: 10,000 years, in seconds.
const MOST_SECONDS: u64 = 315_576_000_000;

/// How to read the message with this name, if it has a special form. `Any` is handled by `message`, since it holds
/// other messages.
pub(super) fn reader(name: &str) -> Option<ReadWellKnown> {
    match name.strip_prefix("google.protobuf.")? {
        "Empty" => Some(|reader, _, json, path| empty(reader, json, path)),
        "Duration" => Some(|reader, _, json, path| duration(reader, json, path)),
        "Timestamp" => Some(|reader, _, json, path| timestamp(reader, json, path)),
        "Struct" => Some(|reader, _, json, path| structure(reader, json, path)),
        "Value" => Some(|_, _, json, _| value(json)),
        "ListValue" => Some(|reader, _, json, path| list(reader, json, path)),
        "BoolValue" | "BytesValue" | "DoubleValue" | "FloatValue" | "Int32Value" | "Int64Value" | "StringValue"
        | "UInt32Value" | "UInt64Value" => Some(wrapper),
        _ => None,
    }
}

/// Whether `null` is a value of this type, and not an absent field.
pub(super) fn takes_null(kind: &Kind) -> bool {
    match kind {
        Kind::Message(message) => message.full_name() == "google.protobuf.Value",
        Kind::Enum(values) => values.full_name() == "google.protobuf.NullValue",
        _ => false,
    }
}

fn wrapper(reader: &mut Reader, message: &MessageDescriptor, json: &Json, path: &Path<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(field) = message.get_field(1)
        && let Some(payload) = scalar::read(reader, &field.kind(), json, path)
        && !wire::is_default(&payload)
    {
        wire::described(&field, &payload, &mut out);
    }
    out
}

fn empty(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Vec<u8> {
    if !json.as_object().is_some_and(serde_json::Map::is_empty) {
        reader.expected("an empty mapping", json, path);
    }
    Vec::new()
}

fn duration(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Vec<u8> {
    let parsed = match json {
        Json::String(text) => text.parse::<Duration>().ok(),
        _ => None,
    };
    match parsed.filter(|duration| duration.seconds.unsigned_abs() <= MOST_SECONDS) {
        Some(duration) => duration.encode_to_vec(),
        None => written_wrongly(reader, "a duration in seconds such as `1.5s`", json, path),
    }
}

fn timestamp(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Vec<u8> {
    let parsed = match json {
        Json::String(text) => text.parse::<Timestamp>().ok(),
        _ => None,
    };
    match parsed {
        Some(time) => time.encode_to_vec(),
        None => written_wrongly(reader, "a time such as `2030-01-02T03:04:05Z`", json, path),
    }
}

fn written_wrongly(reader: &mut Reader, expected: &str, json: &Json, path: &Path<'_>) -> Vec<u8> {
    match json {
        Json::String(text) => reader.fault(path, format!("expected {expected}, found {}", quote(text))),
        _ => reader.expected(expected, json, path),
    }
    Vec::new()
}

fn structure(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Vec<u8> {
    match json {
        Json::Object(entries) => entries_of(entries.iter()),
        _ => {
            reader.expected("a mapping", json, path);
            Vec::new()
        }
    }
}

fn list(reader: &mut Reader, json: &Json, path: &Path<'_>) -> Vec<u8> {
    match json {
        Json::Array(items) => items_of(items),
        _ => {
            reader.expected("a list", json, path);
            Vec::new()
        }
    }
}

/// Encodes a `Value`: any JSON.
fn value(json: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    let mut field = |number, wire_type, payload: &[u8]| wire::field(number, wire_type, payload, &mut out);
    match json {
        Json::Null => field(1, WireType::Varint, &wire::varint(0)),
        Json::Number(number) => {
            field(2, WireType::SixtyFourBit, &number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Json::String(text) => field(3, WireType::LengthDelimited, &wire::delimited(text.as_bytes())),
        Json::Bool(truth) => field(4, WireType::Varint, &wire::varint((*truth).into())),
        Json::Object(entries) => {
            field(5, WireType::LengthDelimited, &wire::delimited(&entries_of(entries.iter())));
        }
        Json::Array(items) => field(6, WireType::LengthDelimited, &wire::delimited(&items_of(items))),
    }
    out
}

fn entries_of<'j>(entries: impl Iterator<Item = (&'j String, &'j Json)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, json) in entries.collect::<BTreeMap<_, _>>() {
        let mut entry = Vec::new();
        wire::field(1, WireType::LengthDelimited, &wire::delimited(key.as_bytes()), &mut entry);
        wire::field(2, WireType::LengthDelimited, &wire::delimited(&value(json)), &mut entry);
        wire::field(1, WireType::LengthDelimited, &wire::delimited(&entry), &mut out);
    }
    out
}

fn items_of(items: &[Json]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        wire::field(1, WireType::LengthDelimited, &wire::delimited(&value(item)), &mut out);
    }
    out
}
