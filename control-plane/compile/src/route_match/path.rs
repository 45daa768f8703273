//! Path normalization as in Envoy, before a route is chosen. Each rule was observed on Envoy 1.40.

use postern_model::EscapedSlashes;

/// The result of normalizing a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Normalized {
    /// The normalized path, with the query unchanged.
    Path(Vec<u8>),
    /// The caller is redirected to this path.
    Redirect(Vec<u8>),
    /// It is not a valid path.
    Invalid,
    /// It contains an escaped slash, and these are refused.
    EscapedSlash,
}

/// Normalizes a path. The query is kept unchanged.
pub(super) fn normalize(written: &[u8], escaped_slashes: EscapedSlashes) -> Normalized {
    let invalid = |byte: &u8| *byte <= b' ' || matches!(*byte, b'#' | 0x7f);
    if written.first() != Some(&b'/') || written.iter().any(invalid) {
        return Normalized::Invalid;
    }
    let end = written.iter().position(|byte| *byte == b'?').unwrap_or(written.len());
    let (path, query) = written.split_at(end);
    let (unescaped, found) = unescape_slashes(path);
    let path = match escaped_slashes {
        EscapedSlashes::Reject if found => return Normalized::EscapedSlash,
        EscapedSlashes::Redirect | EscapedSlashes::Unescape => unescaped,
        EscapedSlashes::Reject | EscapedSlashes::Keep => path.to_vec(),
    };
    let Some(path) = canonical(&without_parameters_of_dots(&path)) else { return Normalized::Invalid };
    let path = [merge_slashes(&resolve_dots(&path)).as_slice(), query].concat();
    if found && escaped_slashes == EscapedSlashes::Redirect {
        Normalized::Redirect(path)
    } else {
        Normalized::Path(path)
    }
}

/// Whether a path without query contains `;` or `%3B`.
pub(super) fn has_parameters(path: &[u8]) -> bool {
    let end = path.iter().position(|byte| *byte == b'?').unwrap_or(path.len());
    let path = path.get(..end).unwrap_or_default();
    path.contains(&b';') || path.windows(3).any(|piece| piece.eq_ignore_ascii_case(b"%3b"))
}

/// Decodes `%2F` and `%5C`. Also returns whether there were any.
fn unescape_slashes(path: &[u8]) -> (Vec<u8>, bool) {
    let (mut out, mut rest, mut found) = (Vec::new(), path, false);
    while let Some((first, after)) = rest.split_first() {
        match escape(rest) {
            Some((byte @ (b'/' | b'\\'), after)) => {
                out.push(byte);
                found = true;
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    (out, found)
}

/// Replaces segments such as `..;x` by `..`, as some upstreams read them, but only if they are spelled so literally.
fn without_parameters_of_dots(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/').map(|segment| match segment {
        [b'.', b'.', b';', ..] => b"..".as_slice(),
        [b'.', b';', ..] => b".",
        _ => segment,
    });
    segments.collect::<Vec<_>>().join(&b'/')
}

/// Replaces `\` by `/`, decodes escapes of letters, digits and `-._~`, and escapes characters that paths must not
/// contain. `None` for a path with a zero byte.
fn canonical(path: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), path);
    // The index of a `%` that does not start an escape.
    let mut percent = None;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, escape_after(*first, after)) {
            (_, Some((0, _))) => return None,
            (_, Some((byte, after))) if is_unreserved(byte) => {
                out.push(byte);
                rest = after;
                keep_apart(&mut out, percent, rest);
            }
            (b'\\', _) => out.push(b'/'),
            (b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.., _) => {
                out.extend(format!("%{first:02X}").bytes());
            }
            (byte, escape) => {
                if *byte == b'%' && escape.is_none() {
                    percent = Some(out.len());
                }
                out.push(*byte);
            }
        }
    }
    Some(out)
}

/// Escapes a `%` that would form an escape with decoded characters: `%7%42` must not become `%7B`.
fn keep_apart(out: &mut Vec<u8>, percent: Option<usize>, rest: &[u8]) {
    let Some(tail) = percent.and_then(|place| out.get(place..)) else { return };
    let completes = match tail {
        [_, high] => high.is_ascii_hexdigit() && rest.first().is_some_and(u8::is_ascii_hexdigit),
        [_, high, low] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
        _ => false,
    };
    if let (true, Some(place)) = (completes, percent) {
        out.splice(place..=place, *b"%25");
    }
}

fn escape_after(first: u8, after: &[u8]) -> Option<(u8, &[u8])> {
    if first != b'%' {
        return None;
    }
    let ([high, low], rest) = after.split_first_chunk()?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(((digit(*high)? << 4) | digit(*low)?, rest))
}

fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (first, after) = text.split_first()?;
    escape_after(*first, after)
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Removes dot segments (RFC 3986, section 5.2.4). `..` removes an empty segment like any other.
fn resolve_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    out.pop();
                }
                if last {
                    out.push(b"");
                }
            }
            _ => out.push(segment),
        }
    }
    [b"/", out.join(&b'/').as_slice()].concat()
}

/// Merges consecutive slashes. A path of slashes only becomes two slashes.
fn merge_slashes(path: &[u8]) -> Vec<u8> {
    if !path.windows(2).any(|pair| pair == b"//") {
        return path.to_vec();
    }
    let segments: Vec<_> = path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).collect();
    let end: &[u8] = if path.ends_with(b"/") { b"/" } else { b"" };
    [b"/", segments.join(&b'/').as_slice(), end].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: &str) {
        let expect = Normalized::Path(expect.as_bytes().to_vec());
        assert_eq!(normalize(path.as_bytes(), EscapedSlashes::Reject), expect, "{path}");
    }

    #[test]
    fn normalizes_as_envoy_does() {
        for (path, expect) in [
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/./b", "/a/b"),
            ("/..", "/"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a///../b", "/a/b"),
            ("/a//..//b", "/a/b"),
            ("//a//", "/a/"),
            ("//", "//"),
            ("/a\\..\\b", "/b"),
            ("/a/..;x/b", "/b"),
            ("/a/%2e%2e;x/b", "/a/..;x/b"),
            ("/a/...", "/a/..."),
            ("/%41%2d%7E", "/A-~"),
            ("/a%%41", "/a%A"),
            ("/%7%42/", "/%257B/"),
            ("/%%37B", "/%257B"),
            ("/%7%47", "/%7G"),
            ("/a%252f%", "/a%252f%"),
            ("/a%3c<{", "/a%3c%3C%7B"),
            ("/é?é", "/%C3%A9?é"),
            ("/a?b%2fc//d/../e", "/a?b%2fc//d/../e"),
        ] {
            check(path, expect);
        }
    }

    #[test]
    fn does_as_told_with_escaped_slashes() {
        let check = |wish, expect| assert_eq!(normalize(b"/x/..%2fadmin?a", wish), expect);
        check(EscapedSlashes::Reject, Normalized::EscapedSlash);
        check(EscapedSlashes::Redirect, Normalized::Redirect(b"/admin?a".to_vec()));
        check(EscapedSlashes::Unescape, Normalized::Path(b"/admin?a".to_vec()));
        check(EscapedSlashes::Keep, Normalized::Path(b"/x/..%2fadmin?a".to_vec()));
    }

    #[test]
    fn refuses_what_is_no_path() {
        for path in ["", "a", "*", "?x", "/a b", "/a#b", "/a?b#c", "/%00", "/a\t", "/\u{7f}"] {
            assert_eq!(normalize(path.as_bytes(), EscapedSlashes::Keep), Normalized::Invalid, "{path}");
        }
    }
}
