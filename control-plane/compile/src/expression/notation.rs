//! Shows values in CEL's notation.

use std::fmt::Write;

use postern_engine::cel::{Value, format_double, format_duration, format_timestamp};

/// The longest output, in bytes; the rest becomes `…`. Values can share parts, so their size can be exponential.
const LONGEST: usize = 64 << 10;

/// A value in CEL's notation, cut to a bounded length.
pub fn notation(value: &Value) -> String {
    let mut written = String::new();
    write_value(&mut written, value);
    written
}

fn write_value(to: &mut String, value: &Value) {
    if to.len() > LONGEST {
        to.push_str(if to.ends_with('…') { "" } else { "…" });
        return;
    }
    match value {
        Value::Null => to.push_str("null"),
        Value::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => to.push_str(&value.to_string()),
        Value::Uint(value) => to.push_str(&format!("{value}u")),
        Value::Double(value) => to.push_str(&double(*value)),
        Value::String(text) => write_text(to, text),
        Value::Bytes(bytes) => write_bytes(to, bytes),
        Value::Timestamp(value) => to.push_str(&format!("timestamp('{}')", format_timestamp(*value))),
        Value::Duration(value) => to.push_str(&format!("duration('{}')", format_duration(*value))),
        Value::List(elements) => {
            to.push('[');
            for (index, element) in elements.iter().enumerate() {
                to.push_str(if index == 0 { "" } else { ", " });
                write_value(to, element);
            }
            to.push(']');
        }
        Value::Map(map) => {
            to.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                to.push_str(if index == 0 { "" } else { ", " });
                write_value(to, &key.to_value());
                to.push_str(": ");
                write_value(to, value);
            }
            to.push('}');
        }
    }
}

fn double(value: f64) -> String {
    let text = format_double(value);
    if !value.is_finite() {
        return format!("double('{text}')");
    }
    let whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if whole { format!("{text}.0") } else { text }
}

fn write_text(to: &mut String, text: &str) {
    to.push('\'');
    for letter in text.chars() {
        match letter {
            '\'' | '\\' => to.extend(['\\', letter]),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            _ if letter.is_control() => {
                let _ = write!(to, "\\u{:04x}", u32::from(letter));
            }
            _ => to.push(letter),
        }
    }
    to.push('\'');
}

fn write_bytes(to: &mut String, bytes: &[u8]) {
    to.push_str("b'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => to.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => to.push(char::from(*byte)),
            _ => {
                let _ = write!(to, "\\x{byte:02x}");
            }
        }
    }
    to.push('\'');
}
