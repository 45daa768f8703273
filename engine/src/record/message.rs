//! A record as a message, `postern.audit.v1.RecordRequest`. Its fields are the members of a
//! [`Line`](super::line::Line).

use super::{DEEPEST, LONGEST_RECORD, cut_text};
use crate::{
    cel::{Key, Map, Timestamp, Value, format_duration, format_timestamp},
    protobuf::{put_bytes, put_double, put_number},
};

/// The number of the field of `RecordRequest`.
const RECORD: u8 = 1;
/// The numbers of the fields of `Record`. [`text_field`] has those that are always text.
const AUDIT: u8 = 1;
const TIME: u8 = 2;
const VERDICT: u8 = 5;
const NOTES: u8 = 8;
const STATUS: u8 = 13;
const HEADERS: u8 = 14;
const FIELDS: u8 = 15;
const CONDITION_FAILED: u8 = 16;
const CUT: u8 = 17;
const SKIPPED_STEPS: u8 = 19;
/// The most bytes that the tags and sizes around a record take.
const AROUND: usize = 16;

/// A message that is being written. What does not fit is left out, or cut with `…` at its end; then the message has
/// `cut`.
#[derive(Debug)]
pub(crate) struct Message {
    record: Vec<u8>,
    /// The entries of `fields`.
    fields: Vec<u8>,
    cut: bool,
}

impl Message {
    /// A record that starts with the name of the step that writes it.
    pub(crate) fn new(step: &str) -> Self {
        let mut record = Vec::with_capacity(256);
        put_bytes(AUDIT, step.as_bytes(), &mut record);
        Self { record, fields: Vec::new(), cut: false }
    }

    /// Writes one of the fields that every record may have.
    pub(crate) fn put(&mut self, name: &str, value: &Value) {
        let mut written = Vec::new();
        match (name, value) {
            ("time", Value::Timestamp(time)) => put_bytes(TIME, &timestamp(*time), &mut written),
            ("verdict", Value::String(word)) => put_number(VERDICT, verdict(word), &mut written),
            ("status", Value::Int(status)) => {
                put_number(STATUS, u64::try_from(*status).unwrap_or_default(), &mut written);
            }
            ("conditionFailed", Value::Bool(failed)) => {
                put_number(CONDITION_FAILED, u64::from(*failed), &mut written);
            }
            ("notes", Value::List(notes)) => notes.iter().for_each(|note| self.put_text(NOTES, note, &mut written)),
            ("skippedSteps", Value::List(steps)) => {
                steps.iter().for_each(|step| self.put_text(SKIPPED_STEPS, step, &mut written));
            }
            ("headers", Value::Map(headers)) => self.put_headers(headers, &mut written),
            (name, value) => {
                if let Some(field) = text_field(name) {
                    self.put_text(field, value, &mut written);
                }
            }
        }
        if self.has_room(written.len()) {
            self.record.extend_from_slice(&written);
        }
    }

    /// Writes a field of the user's own.
    pub(crate) fn put_own(&mut self, name: &str, value: &Value) {
        let mut written = Vec::new();
        let Some(value) = self.value(value, 0) else {
            self.cut = true;
            return;
        };
        put_entry(1, name, &value, &mut written);
        if self.has_room(written.len()) {
            self.fields.extend_from_slice(&written);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if !self.fields.is_empty() {
            put_bytes(FIELDS, &self.fields, &mut self.record);
        }
        if self.cut {
            put_number(CUT, 1, &mut self.record);
        }
        let mut request = Vec::with_capacity(self.record.len().saturating_add(AROUND));
        put_bytes(RECORD, &self.record, &mut request);
        request
    }

    fn has_room(&mut self, size: usize) -> bool {
        let size = [self.record.len(), self.fields.len(), AROUND].into_iter().fold(size, usize::saturating_add);
        self.cut |= size > LONGEST_RECORD;
        size <= LONGEST_RECORD
    }

    fn put_headers(&mut self, headers: &Map, to: &mut Vec<u8>) {
        for (name, value) in headers.iter() {
            if let (Key::String(name), Value::String(value)) = (name, value) {
                let value = self.text(value).into_owned();
                put_entry(HEADERS, name, value.as_bytes(), to);
            }
        }
    }

    fn put_text(&mut self, field: u8, value: &Value, to: &mut Vec<u8>) {
        if let Value::String(text) = value {
            put_bytes(field, self.text(text).as_bytes(), to);
        }
    }

    fn text<'a>(&mut self, text: &'a str) -> std::borrow::Cow<'a, str> {
        cut_text(text, &mut self.cut)
    }

    /// A `google.protobuf.Value`; `None` if it is too large.
    fn value(&mut self, value: &Value, depth: usize) -> Option<Vec<u8>> {
        let mut written = Vec::new();
        match value {
            Value::Null => put_number(1, 0, &mut written),
            Value::Double(number) if !number.is_finite() => put_number(1, 0, &mut written),
            Value::Double(number) => put_double(2, *number, &mut written),
            #[expect(clippy::cast_precision_loss, reason = "the nearest double is what there is room for")]
            Value::Int(number) => put_double(2, *number as f64, &mut written),
            #[expect(clippy::cast_precision_loss, reason = "the nearest double is what there is room for")]
            Value::Uint(number) => put_double(2, *number as f64, &mut written),
            Value::String(text) => put_bytes(3, self.text(text).as_bytes(), &mut written),
            Value::Bytes(bytes) => {
                put_bytes(3, self.text(&String::from_utf8_lossy(bytes)).as_bytes(), &mut written);
            }
            Value::Timestamp(time) => put_bytes(3, format_timestamp(*time).as_bytes(), &mut written),
            Value::Duration(span) => put_bytes(3, format_duration(*span).as_bytes(), &mut written),
            Value::Bool(truth) => put_number(4, u64::from(*truth), &mut written),
            Value::List(_) | Value::Map(_) if depth >= DEEPEST => return None,
            Value::Map(map) => {
                let mut members = Vec::new();
                for (key, value) in map.iter() {
                    let value = self.value(value, depth.saturating_add(1))?;
                    put_entry(1, &self.text(&key_text(key)), &value, &mut members);
                    (members.len() <= LONGEST_RECORD).then_some(())?;
                }
                put_bytes(5, &members, &mut written);
            }
            Value::List(list) => {
                let mut items = Vec::new();
                for item in list.iter() {
                    put_bytes(1, &self.value(item, depth.saturating_add(1))?, &mut items);
                    (items.len() <= LONGEST_RECORD).then_some(())?;
                }
                put_bytes(6, &items, &mut written);
            }
        }
        Some(written)
    }
}

/// The number of a field that is always text.
fn text_field(name: &str) -> Option<u8> {
    Some(match name {
        "route" => 3,
        "plan" => 4,
        "step" => 6,
        "reason" => 7,
        "consumer" => 9,
        "method" => 10,
        "path" => 11,
        "source" => 12,
        "onFailure" => 18,
        _ => return None,
    })
}

fn verdict(word: &str) -> u64 {
    match word {
        "allow" => 1,
        "deny" => 2,
        "respond" => 3,
        _ => 0,
    }
}

/// Writes an entry of a map whose keys are text.
fn put_entry(field: u8, key: &str, value: &[u8], to: &mut Vec<u8>) {
    let mut entry = Vec::new();
    put_bytes(1, key.as_bytes(), &mut entry);
    put_bytes(2, value, &mut entry);
    put_bytes(field, &entry, to);
}

fn key_text(key: &Key) -> String {
    match key {
        Key::String(key) => key.to_string(),
        Key::Bool(key) => key.to_string(),
        Key::Int(key) => key.to_string(),
        Key::Uint(key) => key.to_string(),
    }
}

/// A `google.protobuf.Timestamp`. A time before 1970 is a negative number, in two's complement.
fn timestamp(time: Timestamp) -> Vec<u8> {
    let mut message = Vec::new();
    put_number(1, time.seconds().cast_unsigned(), &mut message);
    put_number(2, time.nanoseconds().into(), &mut message);
    message
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postern_proto::audit::v1::{Record, RecordRequest, Verdict};
    use prost::Message as _;

    use super::*;

    fn read(message: Message) -> Record {
        RecordRequest::decode(message.finish().as_slice()).unwrap().record.unwrap()
    }

    fn map(entries: &[(&str, Value)]) -> Value {
        Value::Map(Arc::new(entries.iter().map(|(name, value)| (Key::from(*name), value.clone())).collect()))
    }

    #[test]
    fn is_read_by_generated_code() {
        let mut message = Message::new("log");
        message.put("time", &Value::Timestamp(Timestamp::new(1_700_000_000, 5).unwrap()));
        for (name, value) in [
            ("route", "users"),
            ("plan", "r1"),
            ("verdict", "deny"),
            ("step", "key"),
            ("reason", "key_missing"),
            ("consumer", "alice"),
            ("method", "GET"),
            ("path", "/a"),
            ("source", "127.0.0.1:1"),
        ] {
            message.put(name, &value.into());
        }
        message.put("notes", &Value::List(["a=b:c".into(), "d=e:f".into()].into()));
        message.put("status", &Value::Int(401));
        message.put("conditionFailed", &Value::Bool(true));
        message.put("headers", &map(&[("x-a", "1".into()), ("x-b", "2".into())]));
        message.put_own("list", &Value::List([Value::Int(-1), Value::Null, true.into()].into()));
        message.put_own("map", &map(&[("k", Value::Double(f64::NAN)), ("l", "é".into())]));
        let record = read(message);
        let time = record.time.unwrap();
        assert_eq!((time.seconds, time.nanos), (1_700_000_000, 5));
        assert_eq!(record.verdict(), Verdict::Deny);
        assert_eq!((record.audit.as_str(), record.route.as_str(), record.plan.as_str()), ("log", "users", "r1"));
        assert_eq!((record.step.as_str(), record.reason.as_str()), ("key", "key_missing"));
        assert_eq!((record.consumer.as_str(), record.method.as_str()), ("alice", "GET"));
        assert_eq!((record.path.as_str(), record.source.as_str()), ("/a", "127.0.0.1:1"));
        assert_eq!(
            (record.notes.as_slice(), record.status),
            (&["a=b:c".to_owned(), "d=e:f".to_owned()][..], Some(401))
        );
        assert_eq!((record.headers["x-a"].as_str(), record.headers["x-b"].as_str()), ("1", "2"));
        assert!(record.condition_failed && !record.cut);
        let fields = format!("{:?}", record.fields.unwrap().fields);
        for part in ["NumberValue(-1.0)", "NullValue(NullValue)", "BoolValue(true)", "StringValue(\"é\")"] {
            assert!(fields.contains(part), "{part} in {fields}");
        }
    }

    #[test]
    fn cuts_long_texts_and_leaves_out_what_does_not_fit() {
        let mut message = Message::new("log");
        message.put("path", &"é".repeat(600).into());
        message.put_own("huge", &Value::List((0..5000).map(Value::Int).collect()));
        message.put_own("deep", &(0..40).fold(Value::Null, |inner, _| Value::List([inner].into())));
        for _ in 0..20 {
            message.put_own("many", &"a".repeat(1000).into());
        }
        let size = message.record.len() + message.fields.len();
        let record = read(message);
        assert_eq!((record.path, record.cut), (format!("{}…", "é".repeat(512)), true));
        assert!(size <= LONGEST_RECORD && record.fields.unwrap().fields.keys().eq(["many"]));
    }
}
