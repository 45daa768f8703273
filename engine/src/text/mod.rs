//! Small formats of requests: query strings, cookies, dates, structured fields, lengths, hosts and IP addresses; and
//! JSON strings for answers. Bytes in, bytes out.

pub(crate) mod cookie;
pub(crate) mod date;
pub(crate) mod fields;
pub(crate) mod host;
pub(crate) mod ip;
pub(crate) mod json;
pub(crate) mod origin;
pub(crate) mod query;

/// Splits `:path` into the path and the query. `None` if there is no query.
pub(crate) fn split_path(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
    match path.iter().position(|byte| *byte == b'?') {
        None => (path, None),
        Some(at) => {
            let (before, after) = path.split_at_checked(at).unwrap_or((path, b""));
            (before, after.get(1..))
        }
    }
}

/// Reads `content-length` (RFC 9110, section 8.6). `None` if it is not a number.
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_path_at_its_first_question_mark() {
        assert_eq!(split_path(b"/a"), (&b"/a"[..], None));
        assert_eq!(split_path(b"/a?"), (&b"/a"[..], Some(&b""[..])));
        assert_eq!(split_path(b"/a?b?c#d?e"), (&b"/a"[..], Some(&b"b?c"[..])));
        assert_eq!(split_path(b""), (&b""[..], None));
    }
}
