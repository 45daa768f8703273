//! Query strings, as forms write them: pairs separated by `&`, `+` for a space, `%` and two digits for any byte.

use std::borrow::Cow;

/// The decoded values of one parameter, in order. A parameter without `=` has an empty value.
pub(crate) fn values<'a>(query: &'a [u8], name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split(|byte| *byte == b'&').filter_map(move |pair| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let candidate = parts.next().unwrap_or_default();
        (*decode(candidate) == *name.as_bytes()).then(|| decode(parts.next().unwrap_or_default()))
    })
}

/// Decodes a name or value. A `%` without two digits behind it stands for itself, as in every browser.
pub(crate) fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    decode_with(text, b' ')
}

/// Decodes a part of a URI outside of its query, where `+` is not a space. `None` if the result is not UTF-8.
pub(crate) fn decode_part(text: &str) -> Option<Cow<'_, str>> {
    match decode_with(text.as_bytes(), b'+') {
        Cow::Borrowed(_) => Some(Cow::Borrowed(text)),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

fn decode_with(text: &[u8], plus: u8) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, remaining) = match (first, after) {
            (b'+', _) => (plus, after),
            (b'%', [high, low, remaining @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => ((high << 4) | low, remaining),
                _ => (b'%', after),
            },
            _ => (first, after),
        };
        decoded.push(byte);
        rest = remaining;
    }
    Cow::Owned(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expect: &[&str]) {
        let found: Vec<_> =
            values(query.as_bytes(), "key").map(|value| String::from_utf8_lossy(&value).into_owned()).collect();
        assert_eq!(found, expect, "{query}");
    }

    #[test]
    fn finds_every_value_of_a_parameter() {
        check("key=a&other=b&key=c", &["a", "c"]);
        check("", &[]);
        check("keys=a&Key=b", &[]);
    }

    #[test]
    fn takes_a_parameter_without_a_value_as_empty() {
        check("key&key=", &["", ""]);
    }

    #[test]
    fn decodes_names_and_values() {
        check("%6bey=a%20b+c", &["a b c"]);
        check("key=%zz%4", &["%zz%4"]);
        check("key=a=b", &["a=b"]);
        check("key=%ff", &["\u{fffd}"]);
    }
}
