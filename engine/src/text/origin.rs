//! Origins, as in the header `Origin` (RFC 6454, section 6.1): a scheme, a host and perhaps a port.

/// An origin in normal form: scheme and host in lower case, without the default port of the scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

/// The longest origin that is read. A host has at most 253 characters.
const LONGEST: usize = 512;

impl Origin {
    /// Reads an origin such as `https://example.com` or `http://[::1]:8080`. `None` if it has a path, a user or a
    /// query, or is a list or `null`.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://").filter(|_| text.len() <= LONGEST)?;
        let first = scheme.bytes().next()?;
        let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        if !first.is_ascii_alphabetic() || !scheme.bytes().all(in_scheme) {
            return None;
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (inside, after) = rest.split_once(']')?;
                inside.parse::<std::net::Ipv6Addr>().ok()?;
                let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
                (["[", inside, "]"].concat(), port)
            }
            None => {
                let (host, port) =
                    authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
                is_host(host).then(|| (host.to_owned(), port))?
            }
        };
        let port = match port {
            None => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse::<u16>().ok()?),
            Some(_) => return None,
        };
        let scheme = scheme.to_ascii_lowercase();
        let port = port.filter(|port| !matches!((scheme.as_str(), port), ("http", 80) | ("https", 443)));
        Some(Self { scheme, host: host.to_ascii_lowercase(), port })
    }

    /// The text of the normal form.
    pub(crate) fn normal(&self) -> String {
        let port = self.port.map(|port| [":", &port.to_string()].concat()).unwrap_or_default();
        [&self.scheme, "://", &self.host, &port].concat()
    }
}

/// Whether a text is a host: labels separated by dots, none of them empty.
fn is_host(host: &str) -> bool {
    let in_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    host.split('.').all(|label| !label.is_empty() && label.bytes().all(in_label))
}

/// A user's rule for origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginRule {
    /// `*`: all origins.
    Any,
    /// `null`: the origin of a sandbox or a file.
    Null,
    /// One origin.
    Exact(Origin),
    /// `https://*.example.com`: every host below `example.com`, at any depth, but not that one itself.
    Below(Origin),
}

impl OriginRule {
    /// Reads a rule. `None` if it is none of these.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "*" => Some(Self::Any),
            "null" => Some(Self::Null),
            _ => match text.split_once("://*.") {
                Some((scheme, host)) => Origin::parse(&[scheme, "://", host].concat()).map(Self::Below),
                None => Origin::parse(text).map(Self::Exact),
            },
        }
    }

    /// Whether it names hosts, as opposed to all origins or one that is none.
    pub fn is_of_hosts(&self) -> bool {
        matches!(self, Self::Exact(_) | Self::Below(_))
    }

    #[inline(never)]
    pub(crate) fn admits(&self, origin: &Origin) -> bool {
        match self {
            Self::Any => true,
            Self::Null => false,
            Self::Exact(exact) => exact == origin,
            Self::Below(base) => {
                let below = origin.host.strip_suffix(&base.host).and_then(|rest| rest.strip_suffix('.'));
                (&base.scheme, base.port) == (&origin.scheme, origin.port) && below.is_some_and(|rest| !rest.is_empty())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brings_origins_into_normal_form() {
        for (text, expect) in [
            ("https://example.com", "https://example.com"),
            ("HTTPS://Example.COM:443", "https://example.com"),
            ("http://example.com:443", "http://example.com:443"),
            ("http://a.b:80", "http://a.b"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(Origin::parse(text).map(|origin| origin.normal()).as_deref(), Some(expect), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_origin() {
        for text in [
            "",
            "null",
            "*",
            "example.com",
            "//example.com",
            "https://",
            "https:///",
            "https://a/",
            "https://a/b",
            "https://a?b",
            "https://a#b",
            "https://u@a",
            "https://a b",
            "https://a, https://b",
            "https://a:",
            "https://a:x",
            "https://a:99999",
            "https://a:1:2",
            "https://a..b",
            "https://.a",
            "https://a.",
            "https://é",
            "1http://a",
            "https://[::1",
            "https://[1.2.3.4]",
            "https://[::1]x",
            "https://*.a",
            " https://a",
            "https://a\t",
        ] {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
        assert_eq!(Origin::parse(&format!("https://{}", "a".repeat(600))), None);
    }

    #[test]
    fn knows_what_lies_below_a_host() {
        let rule = OriginRule::parse("https://*.example.com").unwrap();
        let admits = |text: &str| rule.admits(&Origin::parse(text).unwrap());
        assert!(admits("https://a.example.com") && admits("https://A.B.Example.com:443"));
        for text in [
            "https://example.com",
            "https://badexample.com",
            "http://a.example.com",
            "https://a.example.com:8443",
            "https://a.example.com.evil.org",
            "https://example.com.a",
        ] {
            assert!(!admits(text), "{text}");
        }
    }
}
