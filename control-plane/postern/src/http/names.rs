//! The host names that the HTTP face answers to. A page that reaches it by another name (DNS rebinding) is refused.

use std::{net::IpAddr, str::FromStr};

/// The default name of this control plane's cluster in polling Envoys.
const DEFAULT_CLUSTER: &str = "postern";

/// A host with an optional port, as in `Host`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// In lower case. An IPv6 address has no brackets.
    host: String,
    port: Option<u16>,
}

impl FromStr for Authority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{}` is not a host such as `localhost` or `localhost:8080`", postern_base::bounded::shown(text))
        };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or_else(wrong)?;
                let address: std::net::Ipv6Addr = address.parse().map_err(|_| wrong())?;
                let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(wrong)?) };
                (address.to_string(), port)
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host.to_ascii_lowercase(), Some(port)),
                None => (text.to_ascii_lowercase(), None),
            },
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(wrong());
        }
        let digits = |port: &&str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.map(|port| Some(port).filter(digits).and_then(|port| port.parse().ok()).ok_or_else(wrong));
        Ok(Self { host, port: port.transpose()? })
    }
}

impl Authority {
    /// Whether it is a loopback name or address, which no foreign name server can answer for.
    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// The host names under which calls are accepted.
#[derive(Debug, Clone)]
pub struct Names {
    port: u16,
    hosts: Vec<Authority>,
    clusters: Vec<String>,
}

impl Names {
    /// Loopback names with this port or none, further hosts, and the clusters for polling: [`DEFAULT_CLUSTER`] and
    /// others.
    pub fn new(port: u16, hosts: Vec<Authority>, mut clusters: Vec<String>) -> Self {
        clusters.push(DEFAULT_CLUSTER.to_owned());
        Self { port, hosts, clusters }
    }

    /// Whether the admin API may be called by this name. A declared host without a port matches any port.
    pub(super) fn is_ours(&self, authority: &Authority) -> bool {
        let own_port = authority.port.is_none_or(|port| port == self.port);
        let declared =
            |host: &Authority| host.host == authority.host && host.port.is_none_or(|port| Some(port) == authority.port);
        (authority.is_loopback() && own_port) || self.hosts.iter().any(declared)
    }

    /// Whether an Envoy may poll by this name: one of ours, or the name of its cluster.
    pub(super) fn is_polled(&self, host: &str) -> bool {
        self.clusters.iter().any(|cluster| cluster.eq_ignore_ascii_case(host))
            || host.parse().is_ok_and(|authority| self.is_ours(&authority))
    }

    /// The names of the clusters, for error messages.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.clusters.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let hosts = ["postern.internal", "localhost:8080"].map(|host| host.parse().unwrap());
        Names::new(18001, hosts.into(), vec!["xds/east".to_owned()])
    }

    #[test]
    fn answers_to_loopback_names_and_declared_hosts() {
        let check = |host: &str, expect: bool| {
            let found = host.parse().is_ok_and(|authority| names().is_ours(&authority));
            assert_eq!(found, expect, "for `{host}`");
        };
        for host in ["localhost", "localhost:18001", "LOCALHOST:18001", "127.0.0.1:18001", "127.8.9.1", "[::1]:18001"] {
            check(host, true);
        }
        for host in ["postern.internal", "postern.internal:443", "Postern.Internal", "localhost:8080"] {
            check(host, true);
        }
        for host in ["localhost:18002", "127.0.0.1:80", "[::1]:1", "postern.internal.evil.example", "evil.example"] {
            check(host, false);
        }
        for host in ["127.0.0.1.evil.example:18001", "localhost.evil.example", "10.0.0.1", "0.0.0.0:18001", "[::]"] {
            check(host, false);
        }
        for host in ["x@localhost", "localhost:18001@evil.example", "localhost:", "localhost:x", "[::1", "", ":18001"] {
            check(host, false);
        }
        for host in ["localhost:+18001", "localhost:18001:18001", "localhost/", "[::1]18001", "postern", "2130706433"] {
            check(host, false);
        }
    }

    #[test]
    fn is_polled_by_the_names_of_clusters_too() {
        for host in ["postern", "xds/east", "127.0.0.1:18001", "localhost"] {
            assert!(names().is_polled(host), "`{host}`");
        }
        for host in ["postern.evil.example", "xds/west", "evil.example", ""] {
            assert!(!names().is_polled(host), "`{host}`");
        }
    }
}
