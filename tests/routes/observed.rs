//! What a caller sees of a request, and what the matcher says that it must see.

use postern_compile::route_match::{Matcher, Request, RouteDecision};
use postern_tests::raw::{Protocol, RawAnswer, RawRequest};

use crate::table::CHAIN;

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The status. A stream that was cut without one is a refusal too.
    pub status: u16,
    /// The service that got it: each route of a table has its own.
    pub service: Option<String>,
    /// The route whose chain ran.
    pub chain: Option<String>,
    /// The path as the service got it.
    pub path: Option<String>,
}

const REFUSED: u16 = 400;

impl Observed {
    pub fn of(answer: &RawAnswer) -> Self {
        let echo = answer.echo();
        let text = |name: &str| echo.as_ref().and_then(|echo| Some(echo.get(name)?.as_str()?.to_owned()));
        Self {
            status: answer.status.unwrap_or(REFUSED),
            service: text("service"),
            chain: answer.echoed(CHAIN),
            path: text("path"),
        }
    }

    /// What must come of it, by the matcher.
    pub fn expected(matcher: &Matcher<'_>, request: &RawRequest) -> Self {
        let answer = |status| Self { status, service: None, chain: None, path: None };
        let Some(parsed) = parsed(request) else { return answer(REFUSED) };
        match matcher.decide(&parsed) {
            RouteDecision::Refused(_) => answer(REFUSED),
            RouteDecision::Redirected(_) => answer(307),
            RouteDecision::NotFound => answer(404),
            RouteDecision::Taken(taken) => Self {
                status: 200,
                service: taken.backends.first().map(|backend| backend.service.clone()),
                chain: Some(taken.name.to_owned()),
                path: Some(String::from_utf8_lossy(&taken.path).into_owned()),
            },
        }
    }
}

/// The methods that Envoy's codec for HTTP/1.1 knows, of those that are generated.
const METHODS: [&[u8]; 6] = [b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"HEAD"];

/// A request as a connection manager parses it; `None` for what its codec refuses.
pub fn parsed(request: &RawRequest) -> Option<Request> {
    let control = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f;
    if request.headers.iter().any(|(_, value)| value.iter().any(control)) {
        return None;
    }
    let trimmed = |value: &[u8]| value.trim_ascii().to_vec();
    let headers = request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), trimmed(value))).collect();
    let (authority, path) = match request.protocol {
        // A `host` beside `:authority` is dropped; two are refused.
        Protocol::Http2 if request.hosts.len() > 2 => return None,
        Protocol::Http2 => (request.hosts.first().cloned().unwrap_or_default(), request.target.clone()),
        Protocol::Http1 if !METHODS.contains(&request.method.as_slice()) || !request.target.is_ascii() => return None,
        Protocol::Http1 => target(request)?,
    };
    Some(Request { method: request.method.clone(), authority, path, headers })
}

/// Authority and path of a request over HTTP/1.1: that of the absolute form replaces any Host.
fn target(request: &RawRequest) -> Option<(Vec<u8>, Vec<u8>)> {
    let target = &request.target;
    if target.starts_with(b"/") || target == b"*" {
        return Some((joined(&request.hosts), target.clone()));
    }
    let rest = target.get(..7).filter(|start| start.eq_ignore_ascii_case(b"http://")).and(target.get(7..))?;
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // Envoy takes one piece of user information away itself.
    let start = authority.iter().position(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let odd = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"-._:[]@".contains(byte);
    let port = authority.iter().rposition(|byte| *byte == b':').filter(|_| !authority.ends_with(b"]"));
    let is_number = |port: &[u8]| !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    if port.is_some_and(|colon| !is_number(&authority[colon + 1..])) || authority.iter().any(odd) {
        return None;
    }
    let path = if path.is_empty() { b"/" } else { path };
    Some((authority[start..].to_vec(), path.to_vec()))
}

/// Several Host headers as Envoy joins them: empty ones leave no trace.
fn joined(hosts: &[Vec<u8>]) -> Vec<u8> {
    hosts.iter().filter(|host| !host.is_empty()).map(Vec::as_slice).collect::<Vec<_>>().join(&b',')
}
