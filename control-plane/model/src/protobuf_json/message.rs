//! Reads JSON objects as messages: fields, lists, maps and `Any`.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::Any;
use postern_base::diagnostic::{Path, quote, suggestion};
use prost::Message as _;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map as JsonMap, Value as Json};

use super::{
    Unknown, descriptors,
    reader::Reader,
    scalar,
    well_known::{self, ReadWellKnown},
    wire,
};

const TYPE: &str = "@type";
const ANY: &str = "google.protobuf.Any";

impl Reader {
    /// The encoding of a message, without a length prefix.
    pub(super) fn message(&mut self, message: &MessageDescriptor, json: &Json, path: &Path<'_>) -> Vec<u8> {
        if let Some(read) = own_form(message.full_name()) {
            return read(self, message, json, path);
        }
        match json {
            Json::Object(entries) => self.fields(message, entries, path),
            _ => {
                self.expected("a mapping", json, path);
                Vec::new()
            }
        }
    }

    /// Reads a message whose type is in `@type`. If the type has a special JSON form, its JSON is in `value`.
    pub(super) fn any(&mut self, json: &Json, path: &Path<'_>) -> Any {
        let Json::Object(entries) = json else {
            self.expected("a mapping with `@type`", json, path);
            return Any::default();
        };
        let (type_url, place) = match entries.get(TYPE) {
            Some(Json::String(type_url)) => (type_url, path.field(TYPE)),
            Some(other) => {
                self.expected("a string", other, &path.field(TYPE));
                return Any::default();
            }
            None if entries.is_empty() => return Any::default(),
            None => {
                self.fault(path, "missing required field `@type`");
                return Any::default();
            }
        };
        match descriptors::by_type_url(type_url) {
            Ok(message) => {
                let value = self.content(&message, entries, path);
                Any { type_url: type_url.clone(), value }
            }
            Err(message) => {
                self.fault(&place, message);
                Any::default()
            }
        }
    }

    fn content(&mut self, message: &MessageDescriptor, entries: &JsonMap<String, Json>, path: &Path<'_>) -> Vec<u8> {
        let Some(read) = own_form(message.full_name()) else { return self.fields(message, entries, path) };
        for key in entries.keys().filter(|key| !matches!(key.as_str(), TYPE | "value")) {
            self.fault(&path.field(key), format!("unknown field {}{}", quote(key), suggestion(key, ["value"])));
        }
        match entries.get("value") {
            // Some writers omit `value` here, as if it had no special form.
            None if message.full_name() == "google.protobuf.Empty" => Vec::new(),
            Some(value) => read(self, message, value, &path.field("value")),
            None => {
                self.fault(path, "missing required field `value`");
                Vec::new()
            }
        }
    }

    fn fields(&mut self, message: &MessageDescriptor, entries: &JsonMap<String, Json>, path: &Path<'_>) -> Vec<u8> {
        let mut parts: BTreeMap<u32, (&str, Vec<u8>)> = BTreeMap::new();
        let mut choices: BTreeMap<String, &str> = BTreeMap::new();
        for (key, json) in entries.iter().filter(|(key, _)| *key != TYPE) {
            let path = path.field(key);
            let Some(field) = message.get_field_by_name(key).or_else(|| message.get_field_by_json_name(key)) else {
                self.unknown_field(message, key, &path);
                continue;
            };
            if json.is_null() && !well_known::takes_null(&field.kind()) {
                continue;
            }
            if let Some(choice) = field.containing_oneof().filter(|choice| !choice.is_synthetic())
                && let Some(other) = choices.insert(choice.name().to_owned(), key)
            {
                self.fault(&path, format!("only one of {} and {} can be set", quote(other), quote(key)));
            }
            let mut bytes = Vec::new();
            self.field(&field, json, &path, &mut bytes);
            if let Some((other, _)) = parts.insert(field.number(), (key, bytes)) {
                self.fault(&path, format!("{} and {} are the same field", quote(other), quote(key)));
            }
        }
        parts.into_values().flat_map(|(_, bytes)| bytes).collect()
    }

    fn unknown_field(&mut self, message: &MessageDescriptor, key: &str, path: &Path<'_>) {
        if self.unknown == Unknown::Ignored {
            return;
        }
        let names: Vec<_> = message.fields().flat_map(|f| [f.name().to_owned(), f.json_name().to_owned()]).collect();
        let near = suggestion(key, names.iter().map(String::as_str));
        self.fault(path, format!("unknown field {} of `{}`{near}", quote(key), message.full_name()));
    }

    fn field(&mut self, field: &FieldDescriptor, json: &Json, path: &Path<'_>, out: &mut Vec<u8>) {
        if field.is_map() {
            self.map(field, json, path, out);
        } else if field.is_list() {
            self.list(field, json, path, out);
        } else if let Some(payload) = self.value(&field.kind(), json, path)
            && (field.supports_presence() || !wire::is_default(&payload))
        {
            wire::described(field, &payload, out);
        }
    }

    fn list(&mut self, field: &FieldDescriptor, json: &Json, path: &Path<'_>, out: &mut Vec<u8>) {
        let Json::Array(items) = json else { return self.expected("a list", json, path) };
        let mut packed = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let Some(payload) = self.value(&field.kind(), item, &path.item(index)) else { continue };
            if field.is_packed() {
                packed.extend(payload);
            } else {
                wire::described(field, &payload, out);
            }
        }
        if !packed.is_empty() {
            wire::field(field.number(), wire::WireType::LengthDelimited, &wire::delimited(&packed), out);
        }
    }

    /// Encodes a map: a list of entries, each a message with a key and a value.
    fn map(&mut self, field: &FieldDescriptor, json: &Json, path: &Path<'_>, out: &mut Vec<u8>) {
        let Json::Object(entries) = json else { return self.expected("a mapping", json, path) };
        let Kind::Message(entry) = field.kind() else { return };
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let mut sorted = BTreeMap::new();
        for (name, json) in entries {
            let path = path.field(name);
            let key = scalar::map_key(self, &key_field.kind(), name, &path);
            let value = self.value(&value_field.kind(), json, &path);
            if let (Some(key), Some(value)) = (key, value)
                && sorted.insert(key, value).is_some()
            {
                self.fault(&path, format!("key {} is there already", quote(name)));
            }
        }
        for (key, value) in sorted {
            let mut content = Vec::new();
            wire::described(&key_field, &key, &mut content);
            wire::described(&value_field, &value, &mut content);
            wire::described(field, &wire::delimited(&content), out);
        }
    }

    /// The payload of one value. `None` if it is invalid, or is to be omitted.
    pub(super) fn value(&mut self, kind: &Kind, json: &Json, path: &Path<'_>) -> Option<Vec<u8>> {
        match kind {
            Kind::Message(message) => Some(wire::delimited(&self.message(message, json, path))),
            _ => scalar::read(self, kind, json, path),
        }
    }
}

/// How to read the message with this name, if it has a special JSON form.
pub(super) fn own_form(name: &str) -> Option<ReadWellKnown> {
    match name {
        ANY => Some(|reader, _, json, path| reader.any(json, path).encode_to_vec()),
        _ => well_known::reader(name),
    }
}
