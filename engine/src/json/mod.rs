//! A strict and bounded reader of JSON (RFC 8259), for tokens and bodies. It refuses what other readers understand in
//! different ways: two members of one name, half a surrogate pair, anything after the value. It is written by hand because
//! `serde_json` keeps the last of two members, and bounds how deep a text is but not how many values it has.

mod reader;

use std::borrow::Cow;

use self::reader::read;
use crate::budget::steps;

/// The cost of reading a byte.
const STEPS_A_BYTE: u64 = 4;

/// A JSON value. Text that needs no decoding is borrowed. Its numbers are `N`: a [`Number`], or the text itself where
/// no precision may be lost ([`parse_exact`]).
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a, N = Number> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(N),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Value<'a, N>>),
    /// An object.
    Object(Object<'a, N>),
}

/// A number: an integer if it is written as one and fits, otherwise the nearest double.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// An integer that is greater than any [`Int`](Self::Int).
    Uint(u64),
    /// Any other number; always finite.
    Double(f64),
}

/// The members of an object, in the order of their names, each name once.
#[derive(Debug, Clone, PartialEq)]
pub struct Object<'a, N = Number>(Vec<(Cow<'a, str>, Value<'a, N>)>);

impl<N> Default for Object<'_, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The representation of a number.
trait FromNumber<'a>: Sized {
    /// Reads a number. `integer` says whether it is written without fraction and exponent. `None` if it is out of
    /// range.
    fn from_number(text: &'a str, integer: bool) -> Option<Self>;
}

impl FromNumber<'_> for Number {
    fn from_number(text: &str, integer: bool) -> Option<Self> {
        if integer {
            if let Ok(number) = text.parse() {
                return Some(Self::Int(number));
            }
            if let Ok(number) = text.parse() {
                return Some(Self::Uint(number));
            }
        }
        text.parse().ok().filter(|number: &f64| number.is_finite()).map(Self::Double)
    }
}

impl<'a> FromNumber<'a> for &'a str {
    fn from_number(text: &'a str, _integer: bool) -> Option<Self> {
        Some(text)
    }
}

/// The limits on a document.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many arrays and objects may stand in one another.
    pub depth: usize,
    /// How many values and names there may be in all.
    pub values: usize,
}

/// Why a text was refused, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct Error {
    /// What is wrong.
    pub kind: ErrorKind,
    /// The byte at which it was noticed.
    pub at: usize,
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// It is not JSON.
    #[error("not JSON")]
    Syntax,
    /// It is not text.
    #[error("not UTF-8")]
    NotUtf8,
    /// A name occurs twice in one object.
    #[error("a member that is there twice")]
    Repeated,
    /// A number that is out of the range of doubles.
    #[error("a number out of range")]
    NumberRange,
    /// Arrays or objects are nested too deeply.
    #[error("nested too deep")]
    TooDeep,
    /// There are more values than allowed.
    #[error("too many values")]
    TooMany,
}

impl<'a, N> Object<'a, N> {
    /// The value of this member.
    pub fn get(&self, name: &str) -> Option<&Value<'a, N>> {
        let at = self.0.binary_search_by(|(candidate, _)| candidate.as_ref().cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Every member, in the order of names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value<'a, N>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a, N> IntoIterator for Object<'a, N> {
    type Item = (Cow<'a, str>, Value<'a, N>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<N> Value<'_, N> {
    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Number {
    /// The nearest double.
    pub fn as_f64(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
            Self::Int(number) => number as f64,
            #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
            Self::Uint(number) => number as f64,
            Self::Double(number) => number,
        }
    }
}

/// The cost of reading this number of bytes of JSON, whatever they are. It includes sorting the members of objects.
pub(crate) fn cost(bytes: usize) -> u64 {
    steps(bytes).saturating_mul(STEPS_A_BYTE).saturating_add(STEPS_A_BYTE)
}

/// Reads a text that is one JSON value and nothing else.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value<'_>, Error> {
    read(text, limits)
}

/// Like [`parse`], with numbers as they are written, however large or long.
pub fn parse_exact(text: &[u8], limits: Limits) -> Result<Value<'_, &str>, Error> {
    read(text, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { depth: 4, values: 20 };

    fn check(text: &str, expect: Value<'_>) {
        assert_eq!(parse(text.as_bytes(), LIMITS), Ok(expect), "{text}");
    }

    fn check_refused(text: &[u8], kind: ErrorKind) {
        let refused = parse(text, LIMITS).map_err(|error| error.kind);
        assert_eq!(refused, Err(kind), "{}", text.escape_ascii());
    }

    fn text(text: &str) -> Value<'_> {
        Value::String(text.into())
    }

    #[test]
    fn reads_every_kind_of_value() {
        check(" null\r\n", Value::Null);
        check("true", Value::Bool(true));
        check("[false , 1]", Value::Array(vec![Value::Bool(false), Value::Number(Number::Int(1))]));
        check("[]", Value::Array(vec![]));
        check("{}", Value::Object(Object::default()));
        let members = Object(vec![("".into(), Value::Array(vec![])), ("a".into(), text("b")), ("c".into(), text(""))]);
        check(r#"{ "c" :"", "a": "b","":[]}"#, Value::Object(members));
    }

    #[test]
    fn finds_members_by_name() {
        let value = parse(br#"{"c":3,"a":1,"b":2}"#, LIMITS).unwrap();
        let Value::Object(members) = value else { panic!("no object") };
        assert_eq!(members.get("b"), Some(&Value::Number(Number::Int(2))));
        assert_eq!((members.get("d"), members.len()), (None, 3));
        assert_eq!(members.iter().map(|(name, _)| name).collect::<String>(), "abc");
    }

    #[test]
    fn keeps_numbers_as_exact_as_it_can() {
        for (written, expect) in [
            ("0", Number::Int(0)),
            ("-0", Number::Int(0)),
            ("-12", Number::Int(-12)),
            ("9223372036854775807", Number::Int(i64::MAX)),
            ("-9223372036854775808", Number::Int(i64::MIN)),
            ("9223372036854775808", Number::Uint(9_223_372_036_854_775_808)),
            ("18446744073709551615", Number::Uint(u64::MAX)),
            ("18446744073709551616", Number::Double(18_446_744_073_709_551_616.0)),
            ("1.0", Number::Double(1.0)),
            ("-1.5E+2", Number::Double(-150.0)),
            ("1e-2", Number::Double(0.01)),
            ("1e-999", Number::Double(0.0)),
        ] {
            check(written, Value::Number(expect));
        }
        check_refused(b"1e999", ErrorKind::NumberRange);
        check_refused(b"-1e999", ErrorKind::NumberRange);
    }

    #[test]
    fn keeps_the_text_of_numbers_for_who_asks() {
        for written in ["0", "-0", "1.0", "1e999", "18446744073709551617", "0.1000000000000000000001"] {
            assert_eq!(parse_exact(written.as_bytes(), LIMITS), Ok(Value::Number(written)));
        }
        assert!(parse_exact(b"01", LIMITS).is_err());
    }

    #[test]
    fn decodes_escapes() {
        check(r#""\"\\\/\b\f\n\r\t\u00e9\u20AC""#, text("\"\\/\u{8}\u{c}\n\r\té€"));
        check(r#""a\ud83d\ude00b\u0000""#, text("a😀b\0"));
        check("\"é\u{7f}\"", text("é\u{7f}"));
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in [
            "",
            " ",
            "nul",
            "nulls",
            "True",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "{]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "{1:1}",
            "1 2",
            "{} {}",
            "// a\n1",
            "01",
            "-",
            "-a",
            "+1",
            ".5",
            "1.",
            "1.e1",
            "1e",
            "1e+",
            "0x1",
            "NaN",
            "Infinity",
            "\"",
            "\"a",
            "'a'",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\u+123\"",
            "\"a\nb\"",
            "\"\0\"",
            "\u{feff}1",
            "\u{a0}1",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"\\ud800\\ud800\"",
            "\"\\ud800\\n\"",
            "\"\\ud800\\u0000\"",
            "\"\\u00é\"",
        ] {
            check_refused(text.as_bytes(), ErrorKind::Syntax);
        }
        check_refused(b"\"\xff\"", ErrorKind::NotUtf8);
        check_refused(b"\"\xed\xa0\x80\"", ErrorKind::NotUtf8);
    }

    #[test]
    fn refuses_a_name_that_is_there_twice_however_it_is_written() {
        check_refused(br#"{"a":1,"b":2,"a":1}"#, ErrorKind::Repeated);
        check_refused(br#"[{"a":1,"\u0061":2}]"#, ErrorKind::Repeated);
        check_refused(br#"{"":1,"":2}"#, ErrorKind::Repeated);
    }

    #[test]
    fn refuses_what_is_too_deep_or_too_much() {
        assert!(parse(b"[[[[]]]]", LIMITS).is_ok());
        check_refused(b"[[[[[]]]]]", ErrorKind::TooDeep);
        check_refused(br#"{"a":{"a":{"a":{"a":{}}}}}"#, ErrorKind::TooDeep);
        check_refused(&b"[".repeat(100_000), ErrorKind::TooDeep);
        assert!(parse(format!("[{}0]", "0,".repeat(18)).as_bytes(), LIMITS).is_ok());
        check_refused(format!("[{}0]", "0,".repeat(19)).as_bytes(), ErrorKind::TooMany);
    }
}
