//! The reader: one pass over the text, bounded in depth and number.

use std::borrow::Cow;

use super::{Error, ErrorKind, FromNumber, Limits, Object, Value};
use crate::budget::meter::work;

pub(super) fn read<'a, N: FromNumber<'a>>(text: &'a [u8], limits: Limits) -> Result<Value<'a, N>, Error> {
    let text = str::from_utf8(text).map_err(|error| Error { kind: ErrorKind::NotUtf8, at: error.valid_up_to() })?;
    work(text.len() / 4);
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
    /// How many more values are allowed.
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

    /// The next byte that is not white space. It is not consumed.
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

    /// Reads what follows an item or member. Returns whether it was the end, as opposed to a comma.
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

    /// The text before the next quote or backslash. It is an error if there is none.
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

    /// Reads what follows a backslash.
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

    /// Reads `uXXXX`, or a surrogate pair of them.
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
