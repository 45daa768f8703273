//! The path of a route, and all spellings of it in requests.
//!
//! Envoy compares paths after normalization: dot segments and doubled slashes are removed, `\` becomes `/`, and escapes
//! of letters, digits, `-`, `.`, `_` and `~` are decoded. All other escapes are kept, and so is the case of their
//! digits: `/@me` and `/%40me` are two paths for Envoy, and mostly one for an upstream. A route matches both.

use super::edge::PathParameters;

/// A path, as the spellings of each byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathText(Vec<Spelling>);

/// The spellings of one byte in a normalized path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Unescaped only: `/`, letters, digits and `-._~`.
    Plain(u8),
    /// Unescaped or escaped, such as `@`.
    Either(u8),
    /// Escaped only, such as a space, or a slash that does not end a segment.
    Escaped(u8),
}

impl PathText {
    /// Parses a path, with or without escapes. Never fails.
    pub fn read(text: &str) -> Self {
        let (mut spellings, mut rest) = (Vec::new(), text.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            match escape(rest) {
                Some((byte, after)) => {
                    spellings.push(if matches!(byte, b'/' | b'\\') { Spelling::Escaped(byte) } else { spelling(byte) });
                    rest = after;
                }
                None => {
                    spellings.push(spelling(*first));
                    rest = after;
                }
            }
        }
        Self(spellings)
    }

    /// The spellings of each byte.
    pub fn spellings(&self) -> &[Spelling] {
        &self.0
    }

    /// The path as plain text. `None` if any byte has an escaped spelling.
    pub fn plain(&self) -> Option<String> {
        let plain = self.0.iter().map(|spelling| match spelling {
            Spelling::Plain(byte) => Some(char::from(*byte)),
            Spelling::Either(_) | Spelling::Escaped(_) => None,
        });
        plain.collect()
    }

    /// Why no normalized request has this path. `None` if one can.
    pub(super) fn unreachable(&self, parameters: PathParameters) -> Option<&'static str> {
        let segments: Vec<_> = self.0.split(|spelling| *spelling == Spelling::Plain(b'/')).collect();
        let dots = |segment: &[Spelling]| {
            matches!(segment, [Spelling::Plain(b'.')] | [Spelling::Plain(b'.'), Spelling::Plain(b'.')])
        };
        let inner = segments.get(1..segments.len().saturating_sub(1)).unwrap_or_default();
        if self.0.contains(&Spelling::Escaped(0)) {
            return Some("requests with `%00` are refused");
        }
        if parameters == PathParameters::Reject && self.0.contains(&Spelling::Either(b';')) {
            return Some("paths with `;` are refused, unless `http.pathParameters` is `keep`");
        }
        if segments.iter().any(|segment| dots(segment)) {
            return Some("`.` and `..` are resolved before routes are chosen");
        }
        inner.iter().any(|segment| segment.is_empty()).then_some("`//` becomes `/` before routes are chosen")
    }
}

fn spelling(byte: u8) -> Spelling {
    match byte {
        b'/' | b'-' | b'.' | b'_' | b'~' => Spelling::Plain(byte),
        _ if byte.is_ascii_alphanumeric() => Spelling::Plain(byte),
        _ if b"!$&'()*+,:;=@[]%".contains(&byte) => Spelling::Either(byte),
        _ => Spelling::Escaped(byte),
    }
}

/// Decodes an escape at the start of a text. Returns the byte and the rest; `None` if there is no escape.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let ([b'%', high, low], rest) = text.split_first_chunk()? else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(((digit(*high)? << 4) | digit(*low)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_how_each_byte_can_be_spelled() {
        use Spelling::{Either, Escaped, Plain};
        let check = |text: &str, expect: &[Spelling]| assert_eq!(PathText::read(text).spellings(), expect, "{text}");
        check("/a.~", &[Plain(b'/'), Plain(b'a'), Plain(b'.'), Plain(b'~')]);
        check("/%61", &[Plain(b'/'), Plain(b'a')]);
        check("/@", &[Plain(b'/'), Either(b'@')]);
        check("/%40", &[Plain(b'/'), Either(b'@')]);
        check("/%2f", &[Plain(b'/'), Escaped(b'/')]);
        check("/%", &[Plain(b'/'), Either(b'%')]);
        check("/%4", &[Plain(b'/'), Either(b'%'), Plain(b'4')]);
        check("/%25", &[Plain(b'/'), Either(b'%')]);
        check("/ä", &[Plain(b'/'), Escaped(0xc3), Escaped(0xa4)]);
        check("/{", &[Plain(b'/'), Escaped(b'{')]);
    }

    #[test]
    fn is_plain_where_there_is_one_way_to_spell_it() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(PathText::read(text).plain().as_deref(), expect);
        check("/users/v1.0", Some("/users/v1.0"));
        check("/%75sers", Some("/users"));
        check("/a:b", None);
        check("/a%20b", None);
    }

    #[test]
    fn knows_what_no_request_has() {
        let check = |text: &str, parameters, expect| {
            assert_eq!(PathText::read(text).unreachable(parameters).is_some(), expect, "{text}");
        };
        for parameters in [PathParameters::Keep, PathParameters::Reject] {
            for text in ["/a/./b", "/..", "/a/%2e%2E/b", "/a/.", "/a//b", "//a", "/a//", "/a%00"] {
                check(text, parameters, true);
            }
            for text in ["/", "/a/", "/a/...", "/a/.b", "/a/b..", "/%2f"] {
                check(text, parameters, false);
            }
        }
        for text in ["/a;b", "/a%3bb"] {
            check(text, PathParameters::Reject, true);
            check(text, PathParameters::Keep, false);
        }
    }
}
