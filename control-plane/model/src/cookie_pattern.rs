//! Regular expressions for the value of a cookie, rewritten so that they cannot match beyond the value.
//!
//! Envoys before 1.38 ignore `RouteMatch.cookies`, so a cookie is matched by a regular expression on the whole `cookie`
//! header. There, `.` or `[^a]` would match the `;` and run into the next cookie. So every character class loses the
//! characters that values do not contain, and an expression that requires one of them is refused.

use postern_base::diagnostic::quote;
use regex_syntax::{
    ParserBuilder,
    hir::{Class, ClassBytes, ClassBytesRange, Hir, HirKind, Repetition},
};

use serde::{Deserialize, Serialize};

/// Separators of cookies, and white space that is trimmed from values. Envoys before 1.40 join repeated headers by `,`.
const OUTSIDE: [u8; 4] = [b';', b',', b' ', b'\t'];

/// A regular expression that cannot match `;`, `,`, a space or a tab.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CookiePattern {
    written: String,
    narrowed: String,
}

impl CookiePattern {
    /// Rewrites an expression. The error says why no cookie could match it.
    pub fn read(pattern: &str) -> Result<Self, String> {
        let mut parser = ParserBuilder::new().unicode(false).utf8(false).build();
        let parsed = parser.parse(pattern).map_err(|_| format!("{} is no regular expression", quote(pattern)))?;
        let mut narrowed = String::new();
        write(&parsed, &mut narrowed).map_err(|reason| match reason {
            Reason::Outside => {
                format!("no cookie has a value with `;`, `,`, spaces or tabs, which {} asks for", quote(pattern))
            }
            Reason::Place => {
                format!("the whole value must fit anyway: leave out `^`, `$`, `\\b` and `\\B` in {}", quote(pattern))
            }
        })?;
        Ok(Self { written: pattern.to_owned(), narrowed })
    }

    /// The rewritten expression, in syntax that RE2 accepts as well.
    pub fn as_str(&self) -> &str {
        &self.narrowed
    }
}

impl TryFrom<String> for CookiePattern {
    type Error = String;

    fn try_from(pattern: String) -> Result<Self, String> {
        Self::read(&pattern)
    }
}

impl From<CookiePattern> for String {
    fn from(pattern: CookiePattern) -> Self {
        pattern.written
    }
}

enum Reason {
    Outside,
    Place,
}

fn write(expression: &Hir, text: &mut String) -> Result<(), Reason> {
    match expression.kind() {
        HirKind::Empty => {}
        HirKind::Literal(literal) if literal.0.iter().any(|byte| OUTSIDE.contains(byte)) => {
            return Err(Reason::Outside);
        }
        HirKind::Literal(literal) => literal.0.iter().for_each(|byte| text.push_str(&escaped(*byte))),
        HirKind::Class(class) => write_class(class, text)?,
        HirKind::Look(_) => return Err(Reason::Place),
        HirKind::Repetition(repetition) => write_repetition(repetition, text)?,
        HirKind::Capture(capture) => write_all([capture.sub.as_ref()], "", text)?,
        HirKind::Concat(parts) => write_all(parts, "", text)?,
        HirKind::Alternation(parts) => write_all(parts, "|", text)?,
    }
    Ok(())
}

fn write_all<'a>(parts: impl IntoIterator<Item = &'a Hir>, between: &str, text: &mut String) -> Result<(), Reason> {
    text.push_str("(?:");
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            text.push_str(between);
        }
        write(part, text)?;
    }
    text.push(')');
    Ok(())
}

fn write_repetition(repetition: &Repetition, text: &mut String) -> Result<(), Reason> {
    write_all([repetition.sub.as_ref()], "", text)?;
    let times = match (repetition.min, repetition.max) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    };
    text.push_str(&times);
    Ok(())
}

fn write_class(class: &Class, text: &mut String) -> Result<(), Reason> {
    let bytes = match class {
        Class::Bytes(class) => Some(class.clone()),
        Class::Unicode(class) => class.to_byte_class(),
    };
    let mut class = bytes.ok_or(Reason::Outside)?;
    class.difference(&ClassBytes::new(OUTSIDE.map(|byte| ClassBytesRange::new(byte, byte))));
    if class.ranges().is_empty() {
        return Err(Reason::Outside);
    }
    text.push('[');
    for range in class.ranges() {
        text.push_str(&format!("{}-{}", escaped(range.start()), escaped(range.end())));
    }
    text.push(']');
    Ok(())
}

/// A byte in syntax that is valid in both dialects, inside and outside of a class.
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("\\x{byte:02x}") }
}

#[cfg(test)]
mod tests {
    use regex::bytes::Regex;

    use super::*;

    fn check(pattern: &str, fits: &[&str], differs: &[&str]) {
        let written = CookiePattern::read(pattern).unwrap();
        let regex = Regex::new(&format!("(?-u)^(?:{})$", written.as_str())).unwrap();
        for text in fits {
            assert!(regex.is_match(text.as_bytes()), "`{pattern}` as `{}` for `{text}`", written.as_str());
        }
        for text in differs {
            assert!(!regex.is_match(text.as_bytes()), "`{pattern}` as `{}` for `{text}`", written.as_str());
        }
    }

    #[test]
    fn means_the_same_within_a_value() {
        check("v[12]", &["v1", "v2"], &["v", "v3", "v12", "xv1"]);
        check("a|bc", &["a", "bc"], &["ac", "abc", "b"]);
        check("(a|b)+c{2,3}", &["acc", "abbccc"], &["ac", "cc", "acccc"]);
        check(r"\d+(\.\d+)?", &["1", "1.25"], &["1.", ".5", "1x25"]);
        check(r"[^\d]", &["a", "-", "\""], &["1", "ab"]);
        check("(?i)beta", &["beta", "BETA"], &["bet"]);
        check("a??b{2}c{1,}", &["bbc", "abbcc"], &["abc"]);
        check("(?:)|x", &["", "x"], &["y"]);
    }

    #[test]
    fn never_reaches_beyond_the_value() {
        check(".*", &["", "abc", "a=b"], &["a;b", "a,b", "a b", "a\tb"]);
        check("[^a]+", &["b"], &["b;", " b"]);
        check(r"\S*|\W", &["x", "="], &["a;b", ";"]);
        for pattern in ["a;b", "a,b", " ", "[;]", r"\t", r"a{2}\s?;"] {
            assert!(CookiePattern::read(pattern).is_err(), "{pattern}");
        }
    }
}
