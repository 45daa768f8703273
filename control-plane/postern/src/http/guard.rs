//! Who may call. Loopback keeps other machines out, but not pages in a browser on this machine: these can send forms
//! and scripted requests (with a foreign `Origin`, or with none but a form's content type), and can use a host name of
//! their own that resolves to us (DNS rebinding). This layer runs before all routes and refuses them.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use postern_base::bounded::shown;

use super::names::{Authority, Names};
use crate::admin::Problem;

/// A header that proves that a request comes from a program: neither forms nor simple cross-site requests can set it.
const CLIENT: HeaderName = HeaderName::from_static("x-postern-client");
/// The header by which browsers say how a request came about.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The prefix of the headers that only browsers send.
const FETCH: &str = "sec-fetch-";

/// Middleware that lets a call of the admin API through, or refuses it.
pub(super) async fn admin(State(names): State<Arc<Names>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match check_admin(&names, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refused) => refuse(&parts, refused),
    }
}

/// Middleware that lets a poll through, or refuses it.
pub(super) async fn polling(State(names): State<Arc<Names>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match check_poll(&names, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refused) => refuse(&parts, refused),
    }
}

fn refuse(parts: &Parts, refused: Refused) -> Response {
    let (status, title, detail) = refused.told();
    tracing::debug!(method = %parts.method, path = %shown(parts.uri.path()), "refused: {detail}");
    Problem::new(status, title, detail).into_response()
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    /// It has no host, or more than one.
    NoHost,
    /// Its host is not one of ours.
    Host(String),
    /// A poll whose host is none of our clusters.
    Cluster(String, String),
    /// Its origin is another site.
    Origin(String),
    /// The browser says that another site caused it.
    Site(String),
    /// A poll from a browser.
    Browser(String),
    /// A form could have sent it.
    Simple,
}

impl Refused {
    fn told(self) -> (StatusCode, &'static str, String) {
        let forbidden = |detail| (StatusCode::FORBIDDEN, "not for this caller", detail);
        match self {
            Self::NoHost => (
                StatusCode::BAD_REQUEST,
                "invalid request",
                "expected exactly one `Host` header, the same as the request line's if that has one".to_owned(),
            ),
            Self::Host(host) => forbidden(format!(
                "`Host: {host}` is not a name of this control plane: call it by a loopback name or address and its port, or \
                 start it with `--http-host {host}`"
            )),
            Self::Cluster(host, known) => forbidden(format!(
                "`Host: {host}` is neither a loopback name nor a cluster that may poll ({known}): start the control plane \
                 with `--poll-cluster {host}`"
            )),
            Self::Origin(origin) => forbidden(format!("`Origin: {origin}` is another site")),
            Self::Site(site) => {
                forbidden(format!("`Sec-Fetch-Site: {site}`: another site caused this request"))
            }
            Self::Browser(name) => forbidden(format!("`{name}`: polling is for Envoys, not for browsers")),
            Self::Simple => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid request",
                "a POST needs `Content-Type: application/json`, or, without a body, the header `X-Postern-Client` with any \
                 value: a form of another site cannot send either"
                    .to_owned(),
            ),
        }
    }
}

fn check_admin(names: &Names, parts: &Parts) -> Result<(), Refused> {
    let host = host(parts)?;
    if !host.parse().is_ok_and(|authority| names.is_ours(&authority)) {
        return Err(Refused::Host(shown(host).into_owned()));
    }
    for origin in parts.headers.get_all(header::ORIGIN) {
        let text = origin.to_str().unwrap_or_default();
        if !is_own_origin(names, text) {
            return Err(Refused::Origin(shown(text).into_owned()));
        }
    }
    for site in parts.headers.get_all(FETCH_SITE) {
        let text = site.to_str().unwrap_or_default();
        // `none` means that a person entered the address.
        if !["same-origin", "none"].contains(&text) {
            return Err(Refused::Site(shown(text).into_owned()));
        }
    }
    // Other methods that change something need a preflight request, which we never allow.
    let simple = parts.method == Method::POST && !is_json(&parts.headers) && !parts.headers.contains_key(CLIENT);
    if simple { Err(Refused::Simple) } else { Ok(()) }
}

fn check_poll(names: &Names, parts: &Parts) -> Result<(), Refused> {
    let browsers = |name: &&HeaderName| **name == header::ORIGIN || name.as_str().starts_with(FETCH);
    if let Some(name) = parts.headers.keys().find(browsers) {
        return Err(Refused::Browser(shown(name.as_str()).into_owned()));
    }
    let host = host(parts)?;
    if !names.is_polled(host) {
        let known = names.clusters().map(|cluster| format!("`{cluster}`")).collect::<Vec<_>>().join(", ");
        return Err(Refused::Cluster(shown(host).into_owned(), known));
    }
    if parts.method == Method::POST && !is_json(&parts.headers) { Err(Refused::Simple) } else { Ok(()) }
}

/// The host of a request, if there is exactly one.
fn host(parts: &Parts) -> Result<&str, Refused> {
    let mut hosts = parts.headers.get_all(header::HOST).into_iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refused::NoHost) };
    let host = host.to_str().map_err(|_| Refused::NoHost)?;
    let named = parts.uri.authority().is_none_or(|authority| authority.as_str() == host);
    if named { Ok(host) } else { Err(Refused::NoHost) }
}

/// Whether a page of ours sent the request. `null` and every other scheme are foreign.
fn is_own_origin(names: &Names, origin: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|text| text.parse::<Authority>().is_ok_and(|authority| names.is_ours(&authority)))
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).into_iter();
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    let essence = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn names() -> Names {
        Names::new(18001, Vec::new(), Vec::new())
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:18001");
    const JSON: (&str, &str) = ("content-type", "application/json");

    #[test]
    fn lets_programs_and_its_own_pages_through() {
        for headers in [
            &[HOST, JSON][..],
            &[HOST, ("content-type", "Application/JSON; charset=utf-8")],
            &[HOST, ("x-postern-client", "curl")],
            &[HOST, JSON, ("origin", "http://127.0.0.1:18001"), ("sec-fetch-site", "same-origin")],
            &[HOST, JSON, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(check_admin(&names(), &parts("POST", "/", headers)), Ok(()), "{headers:?}");
        }
        assert_eq!(check_admin(&names(), &parts("GET", "/status", &[HOST])), Ok(()));
        assert_eq!(check_admin(&names(), &parts("DELETE", "/x", &[HOST])), Ok(()));
        assert_eq!(check_admin(&names(), &parts("GET", "http://127.0.0.1:18001/", &[HOST])), Ok(()));
    }

    #[test]
    fn refuses_what_a_page_of_another_site_can_send() {
        let simple = [HOST, ("content-type", "text/plain")];
        assert_eq!(check_admin(&names(), &parts("POST", "/", &simple)), Err(Refused::Simple));
        let both = [HOST, JSON, ("content-type", "text/plain")];
        assert_eq!(check_admin(&names(), &parts("POST", "/", &both)), Err(Refused::Simple));
        assert_eq!(check_admin(&names(), &parts("POST", "/", &[HOST])), Err(Refused::Simple));
        for origin in
            ["null", "http://evil.example", "http://localhost:3000", "http://127.0.0.1:18001.evil.example", ""]
        {
            let refused = check_admin(&names(), &parts("GET", "/", &[HOST, JSON, ("origin", origin)]));
            assert_eq!(refused, Err(Refused::Origin(origin.to_owned())));
        }
        for site in ["cross-site", "same-site", "", "anything"] {
            let refused = check_admin(&names(), &parts("GET", "/", &[HOST, ("sec-fetch-site", site)]));
            assert_eq!(refused, Err(Refused::Site(site.to_owned())));
        }
    }

    #[test]
    fn refuses_another_host() {
        let check = |uri: &str, headers: &[(&str, &str)], expect: Refused| {
            assert_eq!(check_admin(&names(), &parts("GET", uri, headers)), Err(expect), "{uri} {headers:?}");
        };
        check("/", &[("host", "evil.example:18001")], Refused::Host("evil.example:18001".to_owned()));
        check("/", &[("host", "")], Refused::Host(String::new()));
        check("/", &[], Refused::NoHost);
        check("/", &[HOST, HOST], Refused::NoHost);
        check("http://evil.example/", &[HOST], Refused::NoHost);
    }

    #[test]
    fn polls_come_from_envoys_alone() {
        let polled = |headers: &[(&str, &str)]| check_poll(&names(), &parts("POST", "/v3/discovery:secrets", headers));
        assert_eq!(polled(&[("host", "postern"), JSON]), Ok(()));
        assert_eq!(polled(&[HOST, JSON]), Ok(()));
        for name in ["origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-anything"] {
            // Even with an origin of ours: no page has a reason to poll.
            let refused = polled(&[HOST, JSON, (name, "http://127.0.0.1:18001")]);
            assert_eq!(refused, Err(Refused::Browser(name.to_owned())));
        }
        assert!(matches!(polled(&[("host", "evil.example"), JSON]), Err(Refused::Cluster(..))));
        assert_eq!(polled(&[("host", "postern"), ("content-type", "text/plain")]), Err(Refused::Simple));
    }
}
