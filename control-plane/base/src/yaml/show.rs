//! Writes JSON values as YAML in the usual style, for display.

use serde_json::Value;

/// Words that some version of YAML reads as something other than a string.
const WORDS: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"];

/// The keys that are written first, in this order. All others follow, sorted by name.
const FIRST: [&str; 7] = ["apiVersion", "kind", "metadata", "name", "policy", "targetRef", "type"];

/// The value as one YAML document in block style.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(_) | Value::Array(_) if !is_empty(value) => block(value, 0, &mut text),
        value => {
            scalar(value, 0, &mut text);
            text.push('\n');
        }
    }
    text
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Writes a mapping or list that is not empty, with one entry a line. The caller indents the first line.
fn block(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
            for (index, (name, value)) in fields.into_iter().enumerate() {
                indent(if index == 0 { 0 } else { depth }, text);
                string(name, text);
                text.push(':');
                entry(value, depth, text);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                indent(if index == 0 { 0 } else { depth }, text);
                text.push('-');
                match item {
                    Value::Object(_) | Value::Array(_) if !is_empty(item) => {
                        text.push(' ');
                        block(item, depth + 1, text);
                    }
                    item => entry(item, depth, text),
                }
            }
        }
        _ => {}
    }
}

/// Writes the value after a colon or a dash.
fn entry(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(_) | Value::Array(_) if !is_empty(value) => {
            text.push('\n');
            indent(depth + 1, text);
            block(value, depth + 1, text);
        }
        value => {
            text.push(' ');
            scalar(value, depth + 1, text);
            text.push('\n');
        }
    }
}

fn scalar(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::String(content) if is_literal(content) => literal(content, depth, text),
        Value::String(content) => string(content, text),
        other => text.push_str(&other.to_string()),
    }
}

fn indent(depth: usize, text: &mut String) {
    text.extend(std::iter::repeat_n("  ", depth));
}

/// Whether a text is written as a literal block: it has several lines, and the block can represent it.
fn is_literal(content: &str) -> bool {
    let plain = |letter: char| letter == '\n' || (!letter.is_control() && letter != '\u{feff}');
    let lines = content.strip_suffix('\n').unwrap_or(content);
    lines.contains('\n')
        && !lines.ends_with('\n')
        && !lines.starts_with([' ', '\n'])
        && content.chars().all(plain)
        && !content.contains(['\u{2028}', '\u{2029}'])
}

fn literal(content: &str, depth: usize, text: &mut String) {
    text.push_str(if content.ends_with('\n') { "|" } else { "|-" });
    for line in content.lines() {
        text.push('\n');
        if !line.is_empty() {
            indent(depth.max(1), text);
            text.push_str(line);
        }
    }
}

/// Writes a string plain if it cannot be read as anything else, else in quotes.
fn string(content: &str, text: &mut String) {
    if is_plain(content) {
        text.push_str(content);
        return;
    }
    text.push('"');
    for letter in content.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            letter if letter.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}'].contains(&letter) => {
                text.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
}

fn is_plain(content: &str) -> bool {
    let first = content.chars().next();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || " _-./@=+$()`".contains(letter);
    first.is_some_and(|first| first.is_ascii_alphabetic() || first == '/' || first == '_')
        && content.chars().all(allowed)
        && !content.ends_with(' ')
        && !WORDS.contains(&content.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::yaml::parse;

    fn check(value: &Value, expect: &str) {
        assert_eq!(to_yaml(value), expect);
    }

    #[test]
    fn reads_as_people_write_it() {
        let value = json!({
            "apiVersion": "postern/v1",
            "metadata": { "labels": {}, "name": "users" },
            "spec": { "list": [1, true, null, "a b"], "steps": [{ "params": { "x": "1" }, "policy": "cors" }], "none": [] },
        });
        let expect = "apiVersion: postern/v1\nmetadata:\n  name: users\n  labels: {}\nspec:\n  list:\n    - 1\n    - true\n    \
                      - null\n    - a b\n  none: []\n  steps:\n    - policy: cors\n      params:\n        x: \"1\"\n";
        check(&value, expect);
    }

    #[test]
    fn quotes_what_would_be_taken_for_something_else() {
        check(
            &json!(["yes", "1.5", "", "a: b", "# c", "é", "a\tb"]),
            "- \"yes\"\n- \"1.5\"\n- \"\"\n- \"a: b\"\n- \"# c\"\n- \"é\"\n- \"a\\tb\"\n",
        );
    }

    #[test]
    fn shows_lines_as_lines() {
        check(&json!({ "pem": "first\nsecond\n", "z": "a\n\nb" }), "pem: |\n  first\n  second\nz: |-\n  a\n\n  b\n");
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![any::<String>(), "[ a-z:#\\-\\n]{0,12}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-zA-Z0-9:\\- ]{1,8}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn says_what_it_was_given(value in any_value()) {
            let text = to_yaml(&value);
            let parsed = parse(text.as_bytes());
            let faults: Vec<_> = parsed.documents.iter().flat_map(|document| &document.faults).chain(&parsed.broken).collect();
            prop_assert!(faults.is_empty() && parsed.documents.len() < 2, "{faults:?}\n{text}");
            let read = parsed.documents.first().map_or(Value::Null, |document| document.root.to_json());
            prop_assert_eq!(read, value);
        }
    }
}
