//! The host of an authority, as Envoy's router sees it: without its port, in any case, with or without a trailing dot.

/// The host of an authority such as `API.example.com.:8443`, in lower case: `api.example.com`. An IPv6 address keeps
/// its brackets.
///
/// `None` for what different readers could take for different hosts: user information, several hosts, a port that is
/// not a number, an empty label, an escape.
pub(crate) fn host(authority: &[u8]) -> Option<String> {
    let (name, port) = match authority.iter().rposition(|byte| *byte == b':') {
        Some(colon) if !authority.ends_with(b"]") => authority.split_at_checked(colon)?,
        _ => (authority, &b""[..]),
    };
    let digits = port.strip_prefix(b":").unwrap_or_default();
    let name = name.strip_suffix(b".").unwrap_or(name);
    let valid = digits.iter().all(u8::is_ascii_digit) && (is_name(name) || is_literal(name));
    valid.then(|| String::from_utf8_lossy(name).to_ascii_lowercase())
}

/// Labels of letters, digits, `-` and `_`, with a dot between two of them.
fn is_name(name: &[u8]) -> bool {
    let of_label = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    name.split(|byte| *byte == b'.').all(|label| !label.is_empty() && label.iter().all(of_label))
}

/// An IPv6 address in brackets.
fn is_literal(name: &[u8]) -> bool {
    let inside = name.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or_default();
    !inside.is_empty() && inside.iter().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_same_whatever_port_case_and_trailing_dot() {
        for authority in [
            "api.example.com",
            "API.Example.COM",
            "api.example.com:80",
            "api.example.com.",
            "api.example.com.:8443",
            "api.example.com:",
        ] {
            assert_eq!(host(authority.as_bytes()).as_deref(), Some("api.example.com"), "{authority}");
        }
        for (authority, expect) in [
            ("[::1]:80", "[::1]"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("a_b-c", "a_b-c"),
        ] {
            assert_eq!(host(authority.as_bytes()).as_deref(), Some(expect), "{authority}");
        }
    }

    #[test]
    fn is_none_where_readers_could_differ() {
        for authority in [
            "",
            ".",
            ":80",
            "a..",
            ".a",
            "a..b",
            "x@a",
            "a:80@b",
            "a@b:80",
            "a,b",
            "a:b",
            "a:80:80",
            "a b",
            "a/b",
            "a%2eb",
            "[::1",
            "::1]",
            "[]",
            "[::1]x",
            "[::1%25eth0]",
            "[a@b]",
            "a#b",
            "a?b",
            "a\\b",
        ] {
            assert_eq!(host(authority.as_bytes()), None, "{authority}");
        }
        assert_eq!(host(b"\xff.example.com"), None);
    }
}
