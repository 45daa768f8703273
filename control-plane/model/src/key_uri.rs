//! The address of a published key set, and which addresses are allowed.

use std::{fmt, net::IpAddr};

use axum::http::Uri;
use serde::{Deserialize, Serialize};

/// An absolute URI that key sets may be fetched from: `https`, or `http` on this machine only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct KeyUri(String);

impl KeyUri {
    /// The URI as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the connection authenticates the server.
    pub fn is_https(&self) -> bool {
        scheme(&self.0) == "https"
    }
}

fn scheme(text: &str) -> String {
    text.split_once("://").map_or_else(String::new, |(scheme, _)| scheme.to_ascii_lowercase())
}

impl TryFrom<String> for KeyUri {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let uri: Uri = text.parse().map_err(|_| "expected a URI such as `https://issuer.example/keys.json`")?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("expected a URI such as `https://issuer.example/keys.json`");
        };
        if text.contains('#') {
            return Err("a fragment is not sent: leave it out");
        }
        if authority.as_str().contains('@') {
            return Err("credentials do not belong in a URI: it is shown in status and logs");
        }
        match scheme {
            "https" => Ok(Self(text)),
            "http" if is_loopback(authority.host()) => Ok(Self(text)),
            "http" => Err("expected `https`: over `http`, anyone on the way could replace the keys"),
            _ => Err("expected `https`"),
        }
    }
}

impl fmt::Display for KeyUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a host name always means this machine (RFC 6761, section 6.3).
fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_https_but_for_this_machine() {
        let check = |text: &str, expect: Result<bool, &str>| {
            let found = KeyUri::try_from(text.to_owned());
            match (found, expect) {
                (Ok(uri), Ok(https)) => assert_eq!((uri.is_https(), uri.as_str()), (https, text)),
                (Err(error), Err(words)) => assert!(error.contains(words), "for `{text}`: {error}"),
                (found, _) => panic!("for `{text}`: {found:?}"),
            }
        };
        check("https://issuer.example/keys?a=b", Ok(true));
        check("HTTPS://issuer.example", Ok(true));
        check("http://127.0.0.1:80/keys", Ok(false));
        check("http://[::1]/", Ok(false));
        check("http://localhost/", Ok(false));
        check("http://issuer.example/", Err("anyone on the way"));
        check("http://127.0.0.1.example/", Err("anyone on the way"));
        check("http://localhost.example/", Err("anyone on the way"));
        check("http://10.0.0.1/", Err("anyone on the way"));
        check("http://127.0.0.1@issuer.example/", Err("credentials"));
        check("https://a:b@issuer.example/", Err("credentials"));
        check("https://issuer.example/#a", Err("fragment"));
        check("ftp://issuer.example/", Err("expected `https`"));
        check("file:///etc/passwd", Err("expected a URI"));
        check("issuer.example/keys", Err("expected a URI"));
        check("/keys", Err("expected a URI"));
        check("", Err("expected a URI"));
    }
}
