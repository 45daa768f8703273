//! Structured fields (RFC 8941): dictionaries of items and inner lists, read strictly and written back canonically. Enough
//! for signatures of messages (RFC 9421) and digests of bodies (RFC 9530).

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The most members of a dictionary, items of a list, or parameters of one of these. A repeated one counts each time,
/// since it is compared with all others.
const MAX_MEMBERS: usize = 64;

/// An ordered mapping. A repeated key keeps its first position and has its last value (RFC 8941, section 4.2.2).
#[derive(Debug, PartialEq)]
pub(crate) struct Dictionary(pub(crate) Vec<(String, Member)>);

#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) value: MemberValue,
    pub(crate) parameters: Parameters,
}

#[derive(Debug, PartialEq)]
pub(crate) enum MemberValue {
    Item(Bare),
    List(Vec<Item>),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) bare: Bare,
    pub(crate) parameters: Parameters,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parameters(pub(crate) Vec<(String, Bare)>);

/// A value without parameters. A decimal is kept as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bare {
    Integer(i64),
    Decimal(String),
    String(String),
    Token(String),
    Bytes(Vec<u8>),
    Bool(bool),
}

impl Dictionary {
    /// Reads all lines of one header. `None` if it is not a dictionary.
    pub(crate) fn read(lines: &[&[u8]]) -> Option<Self> {
        let text = lines.join(&b", "[..]);
        let mut reader = Reader(text.trim_ascii());
        let mut members = Vec::new();
        for _ in 0..=MAX_MEMBERS {
            if reader.0.is_empty() {
                return Some(Self(members));
            }
            let key = reader.key()?;
            let member = reader.member()?;
            put(&mut members, key, member)?;
            reader.skip_white_space();
            if reader.0.is_empty() {
                return Some(Self(members));
            }
            reader.expect(b',')?;
            reader.skip_white_space();
            if reader.0.is_empty() {
                return None;
            }
        }
        None
    }

    pub(crate) fn take(self, key: &str) -> Option<Member> {
        self.0.into_iter().find(|(candidate, _)| candidate == key).map(|(_, member)| member)
    }
}

impl Parameters {
    pub(crate) fn get(&self, key: &str) -> Option<&Bare> {
        self.0.iter().find(|(candidate, _)| candidate == key).map(|(_, bare)| bare)
    }

    fn write(&self, text: &mut String) {
        for (key, bare) in &self.0 {
            text.push(';');
            text.push_str(key);
            if *bare != Bare::Bool(true) {
                text.push('=');
                bare.write(text);
            }
        }
    }
}

impl Item {
    pub(crate) fn write(&self, text: &mut String) {
        self.bare.write(text);
        self.parameters.write(text);
    }
}

/// Writes an inner list with its parameters (RFC 8941, section 4.1.1.1).
pub(crate) fn write_list(items: &[Item], parameters: &Parameters) -> String {
    let mut text = String::from("(");
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            text.push(' ');
        }
        item.write(&mut text);
    }
    text.push(')');
    parameters.write(&mut text);
    text
}

impl Bare {
    fn write(&self, text: &mut String) {
        match self {
            Self::Integer(number) => text.push_str(&number.to_string()),
            Self::Decimal(number) | Self::Token(number) => text.push_str(number),
            Self::Bool(truth) => text.push_str(if *truth { "?1" } else { "?0" }),
            Self::Bytes(bytes) => {
                text.push(':');
                text.push_str(&STANDARD.encode(bytes));
                text.push(':');
            }
            Self::String(string) => {
                text.push('"');
                for character in string.chars() {
                    if matches!(character, '"' | '\\') {
                        text.push('\\');
                    }
                    text.push(character);
                }
                text.push('"');
            }
        }
    }
}

fn put<T>(members: &mut Vec<(String, T)>, key: String, value: T) -> Option<()> {
    if let Some((_, known)) = members.iter_mut().find(|(known, _)| *known == key) {
        *known = value;
        return Some(());
    }
    let room = members.len() < MAX_MEMBERS;
    room.then(|| members.push((key, value)))
}

/// The text that is left to read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    /// Takes all bytes up to the first that does not fit.
    fn run(&mut self, fits: impl Fn(u8) -> bool) -> String {
        let length = self.0.iter().take_while(|byte| fits(**byte)).count();
        let (run, rest) = self.0.split_at_checked(length).unwrap_or_default();
        self.0 = rest;
        run.iter().copied().map(char::from).collect()
    }

    fn skip_white_space(&mut self) {
        self.run(|byte| matches!(byte, b' ' | b'\t'));
    }

    fn key(&mut self) -> Option<String> {
        matches!(self.0.first(), Some(b'a'..=b'z' | b'*')).then_some(())?;
        Some(self.run(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
    }

    fn member(&mut self) -> Option<Member> {
        let value = match (self.take(b'='), self.0.first()) {
            (false, _) => MemberValue::Item(Bare::Bool(true)),
            (true, Some(b'(')) => MemberValue::List(self.list()?),
            (true, _) => MemberValue::Item(self.bare()?),
        };
        Some(Member { value, parameters: self.parameters()? })
    }

    fn list(&mut self) -> Option<Vec<Item>> {
        self.expect(b'(')?;
        let mut items = Vec::new();
        loop {
            self.run(|byte| byte == b' ');
            if self.take(b')') {
                return Some(items);
            }
            if items.len() >= MAX_MEMBERS {
                return None;
            }
            items.push(Item { bare: self.bare()?, parameters: self.parameters()? });
            matches!(self.0.first(), Some(b' ' | b')')).then_some(())?;
        }
    }

    fn parameters(&mut self) -> Option<Parameters> {
        let (mut parameters, mut count) = (Vec::new(), 0_usize);
        while self.take(b';') {
            count = count.saturating_add(1);
            if count > MAX_MEMBERS {
                return None;
            }
            self.run(|byte| byte == b' ');
            let key = self.key()?;
            let bare = if self.take(b'=') { self.bare()? } else { Bare::Bool(true) };
            put(&mut parameters, key, bare)?;
        }
        Some(Parameters(parameters))
    }

    fn bare(&mut self) -> Option<Bare> {
        match self.0.first()? {
            b'"' => self.string().map(Bare::String),
            b':' => self.bytes().map(Bare::Bytes),
            b'?' => {
                self.next();
                match self.next()? {
                    b'0' => Some(Bare::Bool(false)),
                    b'1' => Some(Bare::Bool(true)),
                    _ => None,
                }
            }
            b'-' | b'0'..=b'9' => self.number(),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                Some(Bare::Token(self.run(fits)))
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<String> {
        self.expect(b'"')?;
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => text.push(char::from(self.next().filter(|byte| matches!(byte, b'"' | b'\\'))?)),
                byte @ b' '..=b'~' => text.push(char::from(byte)),
                _ => return None,
            }
        }
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        self.expect(b':')?;
        let text = self.run(|byte| byte != b':');
        self.expect(b':')?;
        STANDARD.decode(text).ok()
    }

    /// Reads a number of at most 15 digits, or of 12 with 3 after the point.
    fn number(&mut self) -> Option<Bare> {
        let sign = if self.take(b'-') { "-" } else { "" };
        let whole = self.run(|byte| byte.is_ascii_digit());
        if !self.take(b'.') {
            let fits = (1..=15).contains(&whole.len());
            return fits.then(|| [sign, &whole].concat().parse().ok()).flatten().map(Bare::Integer);
        }
        let fraction = self.run(|byte| byte.is_ascii_digit());
        let fits = (1..=12).contains(&whole.len()) && (1..=3).contains(&fraction.len());
        fits.then(|| Bare::Decimal([sign, &whole, ".", &fraction].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes back.
    fn check(text: &str, expect: Option<&str>) {
        let written = Dictionary::read(&[text.as_bytes()]).map(|dictionary| {
            let member = |(key, member): &(String, Member)| match &member.value {
                MemberValue::List(items) => format!("{key}={}", write_list(items, &member.parameters)),
                MemberValue::Item(bare) => {
                    let mut text = format!("{key}=");
                    bare.write(&mut text);
                    member.parameters.write(&mut text);
                    text
                }
            };
            dictionary.0.iter().map(member).collect::<Vec<_>>().join(", ")
        });
        assert_eq!(written.as_deref(), expect, "{text}");
    }

    #[test]
    fn writes_what_it_reads() {
        for text in [
            "",
            r#"sig1=("@method" "@path";req);created=1618884473;keyid="a\"b\\c";x;y=?0"#,
            "sig=:AQID:, other=tok/en;a=1.5;b=-3",
            "a=()",
        ] {
            check(text, Some(text));
        }
        check(" a=(  \"x\"  \"y\" ) ,\tb ;  q=1 ", None);
        check(" a=(  \"x\"  \"y\" );  q=1 ,\tb ", Some(r#"a=("x" "y");q=1, b=?1"#));
        check("a=1, b=2, a=3", Some("a=3, b=2"));
        check("a;x=1;y=2;x=3", Some("a=?1;x=3;y=2"));
    }

    #[test]
    fn joins_lines() {
        assert_eq!(Dictionary::read(&[b"a=1", b"b=2"]), Dictionary::read(&[b"a=1, b=2"]));
    }

    #[test]
    fn refuses_what_is_no_dictionary() {
        for text in [
            ",",
            "a=1,",
            "a=1,,b=2",
            "A=1",
            "1=1",
            "a=",
            "a=(",
            "a=(1",
            "a=(1,2)",
            "a=(\"x\"\"y\")",
            "a=\"x",
            "a=\"\u{e9}\"",
            "a=\"\\x\"",
            "a=:A:",
            "a=:AQ=:",
            "a=:AQID",
            "a=?2",
            "a=1.",
            "a=1.2345",
            "a=1234567890123456",
            "a=--1",
            "a=-",
            "a=1 b=2",
            "a=1;",
            "a=1;X=2",
            "a=@1",
            "a=%\"x\"",
            "a =1",
            "a= 1",
        ] {
            check(text, None);
        }
        let many: Vec<_> = (0..100).map(|number| format!("k{number}")).collect();
        check(&many.join(","), None);
    }
}
