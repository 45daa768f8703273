//! IP addresses as peers and proxies write them: bare, in brackets, with a port, with a zone.

use std::net::{IpAddr, Ipv6Addr};

/// Reads an address such as `10.0.0.1`, `10.0.0.1:80`, `::1`, `[::1]` or `[fe80::1%eth0]:80`. An IPv4 address that is
/// mapped into IPv6 (`::ffff:10.0.0.1`) becomes that IPv4 address: it is the same host. `None` for anything else.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            if !after.is_empty() {
                port(after.strip_prefix(':')?)?;
            }
            IpAddr::V6(v6(inside)?)
        }
        None => match text.split_once(':') {
            None => IpAddr::V4(text.parse().ok()?),
            Some((before, after)) if !after.contains(':') => {
                port(after)?;
                IpAddr::V4(before.parse().ok()?)
            }
            Some(_) => IpAddr::V6(v6(text)?),
        },
    };
    Some(address.to_canonical())
}

/// Reads an IPv6 address, perhaps with a zone (RFC 6874, section 2). The zone names a link and is not part of the
/// address.
fn v6(text: &str) -> Option<Ipv6Addr> {
    let of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    match text.split_once('%') {
        Some((address, zone)) if !zone.is_empty() && zone.bytes().all(of_word) => address.parse().ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

fn port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_way_of_writing() {
        for (text, expect) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:8080", "10.0.0.1"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("[2001:db8::7]:443", "2001:db8::7"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%2]:80", "fe80::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("[::ffff:a00:1]:80", "10.0.0.1"),
        ] {
            assert_eq!(address(text.as_bytes()).map(|ip| ip.to_string()).as_deref(), Some(expect), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in [
            "",
            "unknown",
            "10.0.0",
            "10.0.0.1.",
            "010.0.0.1",
            "10.0.0.1:",
            "10.0.0.1:+80",
            "10.0.0.1:99999",
            "[::1",
            "[::1]80",
            "[::1]:",
            "[10.0.0.1]",
            "::1]",
            ":::1",
            "::1%",
            "::1%]/",
            "[::1%a b]:80",
            " 10.0.0.1",
            "10.0.0.1/8",
            "1.2.3.4, 5.6.7.8",
        ] {
            assert_eq!(address(text.as_bytes()), None, "{text}");
        }
        assert_eq!(address(b"\xff\xfe"), None);
    }
}
