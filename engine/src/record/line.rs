//! A record as one line of JSON.

use super::{DEEPEST, LONGEST_RECORD, cut_text};
use crate::{
    cel::{Key, Value, format_double, format_duration, format_timestamp},
    text::json,
};

/// The end of a line from which something was left out.
const CUT: &str = r#","cut":true}"#;

/// A line that is being written. What does not fit is left out, or cut with `…` at its end; then the line has `cut`.
#[derive(Debug)]
pub(crate) struct Line {
    text: String,
    cut: bool,
}

impl Line {
    /// A line that starts with the name of the step that writes it.
    pub(crate) fn new(step: &str) -> Self {
        Self { text: format!(r#"{{"audit":{}"#, json::quote(step)), cut: false }
    }

    pub(crate) fn put(&mut self, name: &str, value: &Value) {
        let mut written = String::new();
        let fits = self.write(value, &mut written, 0);
        let name = json::quote(name);
        let size = self.text.len().saturating_add(name.len()).saturating_add(written.len()).saturating_add(2);
        if !fits || size.saturating_add(CUT.len()) > LONGEST_RECORD {
            self.cut = true;
            return;
        }
        for part in [",", &name, ":", &written] {
            self.text.push_str(part);
        }
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push_str(if self.cut { CUT } else { "}" });
        self.text
    }

    /// Writes a value. Returns whether it is small enough.
    fn write(&mut self, value: &Value, to: &mut String, depth: usize) -> bool {
        match value {
            Value::Null => to.push_str("null"),
            Value::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
            Value::Int(value) => to.push_str(&value.to_string()),
            Value::Uint(value) => to.push_str(&value.to_string()),
            Value::Double(value) if value.is_finite() => to.push_str(&format_double(*value)),
            Value::Double(_) => to.push_str("null"),
            Value::String(text) => self.write_text(text, to),
            Value::Bytes(bytes) => self.write_text(&String::from_utf8_lossy(bytes), to),
            Value::Timestamp(time) => self.write_text(&format_timestamp(*time), to),
            Value::Duration(span) => self.write_text(&format_duration(*span), to),
            Value::List(_) | Value::Map(_) if depth >= DEEPEST => return false,
            Value::List(items) => {
                to.push('[');
                for (index, item) in items.iter().enumerate() {
                    to.push_str(if index > 0 { "," } else { "" });
                    if !self.write(item, to, depth.saturating_add(1)) {
                        return false;
                    }
                }
                to.push(']');
            }
            Value::Map(map) => {
                to.push('{');
                for (index, (key, item)) in map.iter().enumerate() {
                    to.push_str(if index > 0 { "," } else { "" });
                    match key {
                        Key::String(key) => self.write_text(key, to),
                        Key::Bool(key) => self.write_text(&key.to_string(), to),
                        Key::Int(key) => self.write_text(&key.to_string(), to),
                        Key::Uint(key) => self.write_text(&key.to_string(), to),
                    }
                    to.push(':');
                    if !self.write(item, to, depth.saturating_add(1)) {
                        return false;
                    }
                }
                to.push('}');
            }
        }
        to.len() <= LONGEST_RECORD
    }

    fn write_text(&mut self, text: &str, to: &mut String) {
        to.push_str(&json::quote(&cut_text(text, &mut self.cut)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::lossy, *};

    fn line(values: &[(&str, Value)]) -> String {
        let mut line = Line::new("log");
        values.iter().for_each(|(name, value)| line.put(name, value));
        line.finish()
    }

    #[test]
    fn writes_values_as_json() {
        let map = [(Key::from("k"), Value::List([Value::Int(-1), Value::Double(0.5), Value::Null].into()))];
        let map = Value::Map(Arc::new(map.into_iter().collect()));
        assert_eq!(
            line(&[("a", Value::Bool(true)), ("b", map), ("c", Value::Double(f64::NAN))]),
            r#"{"audit":"log","a":true,"b":{"k":[-1,0.5,null]},"c":null}"#
        );
    }

    #[test]
    fn keeps_every_value_within_its_quotes_and_its_line() {
        let forged = "x\",\"verdict\":\"allow\"}\r\n{\"audit\":\"log\"}\u{2028}\u{85}\u{202e}";
        let written = line(&[("a", Value::from(forged))]);
        assert!(!written.chars().any(|character| character.is_control() || "\u{2028}\u{202e}".contains(character)));
        assert_eq!(written.matches("\"verdict\":").count(), 0, "{written}");
        assert_eq!(
            written,
            "{\"audit\":\"log\",\"a\":\"x\\\",\\\"verdict\\\":\\\"allow\\\"}\\u000d\\n{\\\"audit\\\":\\\"log\\\"}\
             \\u2028\\u0085\\u202e\"}"
        );
    }

    #[test]
    fn marks_what_is_not_utf8() {
        let mut line = Line::new("log");
        line.put("a", &lossy(b"x\xff\xc3"));
        assert_eq!(line.finish(), "{\"audit\":\"log\",\"a\":\"x\u{fffd}\u{fffd}\"}");
    }

    #[test]
    fn cuts_long_texts_and_leaves_out_what_does_not_fit() {
        let long = Value::from("é".repeat(600));
        assert_eq!(line(&[("a", long)]), format!(r#"{{"audit":"log","a":"{}…","cut":true}}"#, "é".repeat(512)));
        // Escaping makes six of one.
        let many: Vec<_> = (0..20).map(|_| ("a", Value::from("\u{1}".repeat(1000)))).collect();
        let written = line(&many);
        assert!(written.len() <= LONGEST_RECORD && written.ends_with(CUT) && written.contains("\"a\":"), "{written}");
        let huge = Value::List((0..5000).map(Value::Int).collect());
        assert_eq!(line(&[("a", huge), ("b", Value::Int(1))]), r#"{"audit":"log","b":1,"cut":true}"#);
        let deep = (0..40).fold(Value::Null, |inner, _| Value::List([inner].into()));
        assert_eq!(line(&[("a", deep)]), r#"{"audit":"log","cut":true}"#);
    }
}
