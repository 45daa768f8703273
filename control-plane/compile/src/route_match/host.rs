//! Hosts: which authorities are one host, and how well a host matches a gateway's patterns.

/// How specifically a pattern matches a host. The greatest of all patterns of a gateway is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostMatch {
    /// The pattern `*`.
    Any,
    /// A pattern `*.name`, by its length.
    Suffix(usize),
    /// The name of the host.
    Exact,
}

impl HostMatch {
    /// The match of a pattern with a host, which is in lower case and without a port. `None` if it does not match.
    pub(super) fn of(pattern: &str, host: &[u8]) -> Option<Self> {
        if pattern == "*" {
            return Some(Self::Any);
        }
        match pattern.strip_prefix('*') {
            None => (pattern.as_bytes() == host).then_some(Self::Exact),
            Some(suffix) => {
                let fits = host.len() > suffix.len() && host.ends_with(suffix.as_bytes());
                fits.then_some(Self::Suffix(suffix.len()))
            }
        }
    }
}

/// The authority without the trailing dot of its name.
pub(super) fn without_trailing_dot(authority: &[u8]) -> Vec<u8> {
    let Some(at) = authority.iter().rposition(|byte| *byte == b'.') else { return authority.to_vec() };
    let (name, rest) = authority.split_at(at);
    match rest {
        [_] => name.to_vec(),
        [_, b':', ..] => [name, rest.get(1..).unwrap_or_default()].concat(),
        _ => authority.to_vec(),
    }
}

/// The host of an authority, in lower case and without the port.
pub(super) fn without_port(authority: &[u8]) -> Vec<u8> {
    let end = match authority.iter().rposition(|byte| *byte == b':') {
        Some(colon) if authority.iter().rposition(|byte| *byte == b']').is_none_or(|bracket| bracket < colon) => colon,
        _ => authority.len(),
    };
    authority.get(..end).unwrap_or_default().to_ascii_lowercase()
}

/// Whether an authority is one name or address with an optional port, without user information.
pub(super) fn is_one_host(authority: &[u8]) -> bool {
    let host = without_port(authority);
    let port = authority.get(host.len()..).unwrap_or_default();
    let has_port = matches!(port, [] | [b':', ..]) && port.iter().skip(1).all(u8::is_ascii_digit);
    let label = |label: &[u8]| {
        !label.is_empty() && label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let name = host.split(|byte| *byte == b'.').all(label);
    let address = match host.as_slice() {
        [b'[', inside @ .., b']'] => {
            !inside.is_empty() && inside.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
        }
        _ => false,
    };
    has_port && (name || address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_patterns() {
        let best = |patterns: &[&str], host: &str| {
            patterns.iter().filter_map(|pattern| HostMatch::of(pattern, host.as_bytes())).max()
        };
        assert_eq!(best(&["*", "*.b", "*.a.b", "x.a.b"], "x.a.b"), Some(HostMatch::Exact));
        assert_eq!(best(&["*", "*.b", "*.a.b", "x.a.b"], "y.a.b"), Some(HostMatch::Suffix(4)));
        assert_eq!(best(&["*", "*.b"], "b"), Some(HostMatch::Any));
        assert_eq!(best(&["*.b", "x"], "b"), None);
    }

    #[test]
    fn knows_one_host() {
        for host in ["a", "A.b-c_d", "a:", "a:80", "1.2.3.4:80", "[::1]", "[::1]:80", "[fe80::1.2.3.4]:"] {
            assert!(is_one_host(host.as_bytes()), "{host}");
        }
        for host in ["", ":80", "a:b", "a@b", "a,b", "a b", "a..b", ".a", "a.", "a:80:80", "[::1", "::1", "[]", "a/b"] {
            assert!(!is_one_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn takes_a_trailing_dot_away() {
        let check = |authority: &str, expect: &str| {
            assert_eq!(without_trailing_dot(authority.as_bytes()), expect.as_bytes(), "{authority}");
        };
        check("a.b.", "a.b");
        check("a.b.:80", "a.b:80");
        check("a.b", "a.b");
        check("a.b..", "a.b.");
        check(".", "");
    }
}
