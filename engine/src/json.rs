//! A strict and bounded reader of JSON (RFC 8259), for tokens and bodies. What other readers take in different ways is
//! refused: two members of one name, half a surrogate pair, anything after the value.

use std::borrow::Cow;

/// A JSON value. Text that needs no decoding stays where it was read. Its numbers are `N`: [`Number`], or their very text
/// for readers that lose nothing ([`parse_exact`]).
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

/// A number: an integer where it is written as one and fits, the nearest double where not.
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

/// What a number becomes.
trait FromNumber<'a>: Sized {
    /// `integer` says whether it is written without fraction and exponent. `None`: it is out of range.
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

/// What a document may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many arrays and objects may stand in one another.
    pub depth: usize,
    /// How many values and names there may be in all.
    pub values: usize,
}

/// Why a text was refused, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct Error {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Where it was noticed.
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
    /// A name stands twice in one object.
    #[error("a member that is there twice")]
    Repeated,
    /// A number that no double comes near.
    #[error("a number out of range")]
    NumberRange,
    /// Arrays or objects too deep in one another.
    #[error("nested too deep")]
    TooDeep,
    /// More values than allowed.
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

/// Reads a text that is one JSON value and nothing else.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value<'_>, Error> {
    read(text, limits)
}

/// The same with numbers as they are written, however large or long.
pub fn parse_exact(text: &[u8], limits: Limits) -> Result<Value<'_, &str>, Error> {
    read(text, limits)
}

fn read<'a, N: FromNumber<'a>>(text: &'a [u8], limits: Limits) -> Result<Value<'a, N>, Error> {
    let text = str::from_utf8(text).map_err(|error| Error { kind: ErrorKind::NotUtf8, at: error.valid_up_to() })?;
    let mut reader = Reader { text, at: 0, values: limits.values };
    let value = reader.value(limits.depth)?;
    match reader.next_byte() {
        None => Ok(value),
        Some(_) => Err(reader.error(ErrorKind::Syntax)),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many values may still come.
    values: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, kind: ErrorKind) -> Error {
        Error { kind, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    /// The next byte that is no white space, which stays unread.
    fn next_byte(&mut self) -> Option<u8> {
        while let Some(byte) = self.peek() {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.skip(1);
        }
        None
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.next_byte() != Some(byte) {
            return Err(self.error(ErrorKind::Syntax));
        }
        self.skip(1);
        Ok(())
    }

    fn count(&mut self) -> Result<(), Error> {
        self.values = self.values.checked_sub(1).ok_or(self.error(ErrorKind::TooMany))?;
        Ok(())
    }

    fn value<N: FromNumber<'a>>(&mut self, depth: usize) -> Result<Value<'a, N>, Error> {
        self.count()?;
        match self.next_byte() {
            Some(b'{') => self.object(self.deeper(depth)?).map(Value::Object),
            Some(b'[') => self.array(self.deeper(depth)?).map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.error(ErrorKind::Syntax)),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, Error> {
        depth.checked_sub(1).ok_or(self.error(ErrorKind::TooDeep))
    }

    fn word<N>(&mut self, word: &str, value: Value<'a, N>) -> Result<Value<'a, N>, Error> {
        if !self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            return Err(self.error(ErrorKind::Syntax));
        }
        self.skip(word.len());
        Ok(value)
    }

    fn array<N: FromNumber<'a>>(&mut self, depth: usize) -> Result<Vec<Value<'a, N>>, Error> {
        self.skip(1);
        let mut items = Vec::new();
        if self.next_byte() == Some(b']') {
            self.skip(1);
            return Ok(items);
        }
        loop {
            items.push(self.value(depth)?);
            if self.ends(b']')? {
                return Ok(items);
            }
        }
    }

    fn object<N: FromNumber<'a>>(&mut self, depth: usize) -> Result<Object<'a, N>, Error> {
        self.skip(1);
        let mut members = Vec::new();
        if self.next_byte() == Some(b'}') {
            self.skip(1);
            return Ok(Object(members));
        }
        loop {
            self.count()?;
            if self.next_byte() != Some(b'"') {
                return Err(self.error(ErrorKind::Syntax));
            }
            let name = self.string()?;
            self.expect(b':')?;
            members.push((name, self.value(depth)?));
            if self.ends(b'}')? {
                break;
            }
        }
        members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let repeated = members.windows(2).any(|pair| matches!(pair, [(one, _), (other, _)] if one == other));
        if repeated { Err(self.error(ErrorKind::Repeated)) } else { Ok(Object(members)) }
    }

    /// After an item or member: whether the last one is read, or a comma and so another one follows.
    fn ends(&mut self, end: u8) -> Result<bool, Error> {
        let byte = self.next_byte();
        if byte != Some(end) && byte != Some(b',') {
            return Err(self.error(ErrorKind::Syntax));
        }
        self.skip(1);
        Ok(byte == Some(end))
    }

    fn number<N: FromNumber<'a>>(&mut self) -> Result<N, Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.skip(1);
        }
        match self.peek() {
            Some(b'0') => self.skip(1),
            _ => self.digits()?,
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            integer = false;
            self.skip(1);
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            integer = false;
            self.skip(1);
            if let Some(b'+' | b'-') = self.peek() {
                self.skip(1);
            }
            self.digits()?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        N::from_number(text, integer).ok_or(Error { kind: ErrorKind::NumberRange, at: start })
    }

    fn digits(&mut self) -> Result<(), Error> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        match rest.iter().take_while(|byte| byte.is_ascii_digit()).count() {
            0 => Err(self.error(ErrorKind::Syntax)),
            count => {
                self.skip(count);
                Ok(())
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        self.skip(1);
        let first = self.plain()?;
        if self.peek() == Some(b'"') {
            self.skip(1);
            return Ok(Cow::Borrowed(first));
        }
        let mut decoded = first.to_owned();
        loop {
            if self.peek() == Some(b'"') {
                self.skip(1);
                return Ok(Cow::Owned(decoded));
            }
            self.skip(1);
            decoded.push(self.escape()?);
            decoded.push_str(self.plain()?);
        }
    }

    /// What stands before the next quote or backslash, of which there must be one.
    fn plain(&mut self) -> Result<&'a str, Error> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.bytes().position(|byte| byte == b'"' || byte == b'\\' || byte < b' ');
        let (plain, after) = length.and_then(|length| rest.split_at_checked(length)).unwrap_or((rest, ""));
        self.skip(plain.len());
        match after.as_bytes().first() {
            Some(b'"' | b'\\') => Ok(plain),
            _ => Err(self.error(ErrorKind::Syntax)),
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, Error> {
        let character = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error(ErrorKind::Syntax)),
        };
        self.skip(1);
        Ok(character)
    }

    /// `uXXXX`, or two of them for what lies beyond the first plane.
    fn unicode_escape(&mut self) -> Result<char, Error> {
        let start = self.at;
        let high = self.code_unit()?;
        let mut low = None;
        if (0xd800..0xdc00).contains(&high) && self.peek() == Some(b'\\') {
            self.skip(1);
            low = Some(self.code_unit()?);
        }
        let mut decoded = char::decode_utf16([high].into_iter().chain(low));
        match (decoded.next(), decoded.next()) {
            (Some(Ok(character)), None) => Ok(character),
            _ => Err(Error { kind: ErrorKind::Syntax, at: start }),
        }
    }

    fn code_unit(&mut self) -> Result<u16, Error> {
        let text = self.text.get(self.at..self.at.saturating_add(5)).and_then(|text| text.strip_prefix('u'));
        let digits = text.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or(self.error(ErrorKind::Syntax))?;
        self.skip(5);
        Ok(unit)
    }
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
