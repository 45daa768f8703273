//! The tree of one YAML document: values and their positions. It knows neither kinds nor schemas.

use serde_json::{Map as JsonMap, Value as Json};

/// A position in a file. Lines and columns start at 1; a column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The start of a file, for errors without a better position.
    pub const START: Self = Self { line: 1, column: 1 };

    /// This position, moved down by a number of lines.
    pub const fn below(self, lines: usize) -> Self {
        Self { line: self.line.saturating_add(lines), column: self.column }
    }
}

/// A value and its position. It has no `Debug`, since a tree can hold a credential.
#[derive(Clone)]
pub struct Node {
    /// The position of its first character.
    pub at: Position,
    /// The value.
    pub value: Value,
}

/// The value of a node, by the core schema of YAML 1.2.
#[derive(Clone)]
pub enum Value {
    /// `null`, or an empty node.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer that fits into 64 bits.
    Integer(i64),
    /// A number with a fraction or an exponent, or an integer too large for [`Value::Integer`].
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order of the file. No key occurs twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping and its position.
#[derive(Clone)]
pub struct Key {
    /// The position of its first character.
    pub at: Position,
    /// The key itself.
    pub name: String,
}

impl Node {
    /// The value of a field. `None` if there is none, or if this is not a mapping.
    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The items of a list. Empty if this is not a list.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The entries of a mapping. Empty if this is not a mapping.
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The string. `None` if this is not a string.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as JSON, without positions. What JSON cannot represent (`.inf`, `.nan`) becomes null.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::from(*value),
            Value::Integer(value) => Json::from(*value),
            Value::Float(value) => Json::from(*value),
            Value::Text(text) => Json::from(text.as_str()),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => Json::Object(
                entries.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect::<JsonMap<_, _>>(),
            ),
        }
    }
}

impl Value {
    /// The value of an unquoted scalar (YAML 1.2.2, section 10.3.2).
    pub fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "true" | "True" | "TRUE" => Self::Bool(true),
            "false" | "False" | "FALSE" => Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" => Self::Float(f64::NAN),
            _ => integer(text).or_else(|| float(text)).unwrap_or_else(|| Self::Text(text.to_owned())),
        }
    }

    /// Whether this is neither a list nor a mapping.
    pub fn is_scalar(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Map(_))
    }

    /// The type in the words of an error message.
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

fn integer(text: &str) -> Option<Value> {
    let (digits, radix) = match (text.strip_prefix("0o"), text.strip_prefix("0x")) {
        (Some(octal), _) => (octal, 8),
        (_, Some(hexadecimal)) => (hexadecimal, 16),
        _ => (unsigned(text), 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let number = if radix == 10 { text.parse() } else { i64::from_str_radix(digits, radix) };
    Some(number.map_or_else(|_| Value::Float(text.parse().unwrap_or(f64::INFINITY)), Value::Integer))
}

fn float(text: &str) -> Option<Value> {
    let digits = unsigned(text);
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        let infinity = if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY };
        return Some(Value::Float(infinity));
    }
    // Rust also reads words such as `inf` and `nan`, which are strings in YAML.
    let numeric = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    text.parse().ok().filter(|_| numeric).map(Value::Float)
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let shown = match Value::plain(text) {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => format!("bool {value}"),
            Value::Integer(value) => format!("integer {value}"),
            Value::Float(value) => format!("float {value}"),
            Value::Text(text) => format!("text {text}"),
            Value::List(_) | Value::Map(_) => panic!("a scalar became a collection"),
        };
        assert_eq!(shown, expect, "for `{text}`");
    }

    #[test]
    fn reads_nulls_and_booleans_of_the_core_schema_only() {
        check("", "null");
        check("~", "null");
        check("NULL", "null");
        check("nULL", "text nULL");
        check("true", "bool true");
        check("FALSE", "bool false");
        check("yes", "text yes");
        check("off", "text off");
    }

    #[test]
    fn reads_integers() {
        check("0", "integer 0");
        check("007", "integer 7");
        check("-12", "integer -12");
        check("+12", "integer 12");
        check("0o17", "integer 15");
        check("0xff", "integer 255");
        check("0x", "text 0x");
        check("0o8", "text 0o8");
        check("1_000", "text 1_000");
        check("9223372036854775807", "integer 9223372036854775807");
        check("-9223372036854775809", "float -9223372036854776000");
        check("0xffffffffffffffff", "float inf");
    }

    #[test]
    fn reads_floats() {
        check("1.5", "float 1.5");
        check(".5", "float 0.5");
        check("1.", "float 1");
        check("-1e3", "float -1000");
        check("-.inf", "float -inf");
        check(".NaN", "float NaN");
        check("inf", "text inf");
        check("nan", "text nan");
        check(".", "text .");
        check("1.2.3", "text 1.2.3");
        check("10.0.0.1", "text 10.0.0.1");
        check("e3", "text e3");
        check("+-1.5", "text +-1.5");
    }

    #[test]
    fn drops_positions_in_json() {
        let at = Position::START;
        let node = |value| Node { at, value };
        let key = Key { at, name: "a".to_owned() };
        let items = vec![node(Value::Null), node(Value::Bool(true)), node(Value::Integer(3)), node(Value::Float(0.5))];
        let map = node(Value::Map(vec![(key, node(Value::List(items)))]));
        assert_eq!(map.to_json().to_string(), r#"{"a":[null,true,3,0.5]}"#);
    }
}
