//! What a route asks of a request's path, method, headers, query and cookies.

use regex::bytes::{Regex, RegexBuilder};

use super::{Request, spelling::Spelled};
use crate::model::{CookieCondition, CookieMatch, HeaderCondition, Match, PathMatch};

/// A regular expression that cannot be compiled for bytes.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is no regular expression for bytes: {cause}")]
pub struct PatternError {
    pattern: String,
    cause: regex::Error,
}

/// What a route asks for, compiled.
#[derive(Debug)]
pub(super) struct Conditions<'a> {
    matching: &'a Match,
    path: Path,
    headers: Vec<(String, Value)>,
    query: Vec<(&'a str, Value)>,
    cookies: Vec<(&'a CookieMatch, Value)>,
}

#[derive(Debug)]
enum Path {
    Spelled(Spelled),
    Regex(Regex),
}

/// What is asked of a value.
#[derive(Debug)]
enum Value {
    Exact(Vec<u8>),
    Present(bool),
    Regex(Regex),
}

impl<'a> Conditions<'a> {
    pub(super) fn new(matching: &'a Match) -> Result<Self, PatternError> {
        let path = match &matching.path {
            PathMatch::Exact(path) => Path::Spelled(Spelled::exact(path)),
            PathMatch::Prefix(path) => Path::Spelled(Spelled::prefix(path)),
            PathMatch::Template(path) => Path::Spelled(Spelled::template(path)),
            PathMatch::Regex(pattern) => Path::Regex(whole(pattern)?),
        };
        let headers = matching.headers.iter();
        let headers = headers.map(|header| Ok((header.name.to_ascii_lowercase(), Value::new(&header.condition)?)));
        let query = matching.query.iter().map(|query| Ok((query.name.as_str(), Value::new(&query.condition)?)));
        let cookies = matching.cookies.iter().map(|cookie| Ok((cookie, Value::of_cookie(&cookie.condition)?)));
        Ok(Self {
            matching,
            path,
            headers: headers.collect::<Result<_, _>>()?,
            query: query.collect::<Result<_, _>>()?,
            cookies: cookies.collect::<Result<_, _>>()?,
        })
    }

    /// Whether a request, with its path normalized, is one for this route, apart from its host.
    pub(super) fn fit(&self, request: &Request) -> bool {
        let mut parts = request.path.splitn(2, |byte| *byte == b'?');
        let path = parts.next().unwrap_or_default();
        let query = parts.next().unwrap_or_default();
        let methods = &self.matching.methods;
        (methods.is_empty() || methods.iter().any(|method| method.as_bytes() == request.method))
            && self.path.fits(path)
            && self.headers.iter().all(|(name, value)| value.fits_any(values(request, name)))
            && self.query.iter().all(|(name, value)| value.fits_any(parameters(query, name).take(1)))
            && self.cookies.iter().all(|(cookie, value)| value.fits_any(cookies(request, &cookie.name)))
    }
}

impl Path {
    fn fits(&self, path: &[u8]) -> bool {
        match self {
            Self::Spelled(spelled) => spelled.fits(path),
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

impl Value {
    fn new(condition: &HeaderCondition) -> Result<Self, PatternError> {
        Ok(match condition {
            HeaderCondition::Exact(value) => Self::Exact(value.clone().into_bytes()),
            HeaderCondition::Present(present) => Self::Present(*present),
            HeaderCondition::Regex(pattern) => Self::Regex(whole(pattern)?),
        })
    }

    fn of_cookie(condition: &CookieCondition) -> Result<Self, PatternError> {
        Ok(match condition {
            CookieCondition::Exact(value) => Self::Exact(value.clone().into_bytes()),
            CookieCondition::Present(present) => Self::Present(*present),
            CookieCondition::Regex(pattern) => Self::Regex(whole(pattern.as_str())?),
        })
    }

    /// Whether one of the values fits, or, for an absence, there is none.
    fn fits_any<'v>(&self, mut values: impl Iterator<Item = &'v [u8]>) -> bool {
        match self {
            Self::Present(present) => values.next().is_some() == *present,
            Self::Exact(expect) => values.any(|value| value == expect.as_slice()),
            Self::Regex(regex) => values.any(|value| regex.is_match(value)),
        }
    }
}

/// An expression that the whole text must fit, on bytes: Envoy reads one as Latin-1.
fn whole(pattern: &str) -> Result<Regex, PatternError> {
    let latin =
        pattern.bytes().map(|byte| if byte.is_ascii() { char::from(byte).into() } else { format!("\\x{byte:02x}") });
    let text = format!("^(?:{})$", latin.collect::<String>());
    let built = RegexBuilder::new(&text).unicode(false).build();
    built.map_err(|cause| PatternError { pattern: pattern.to_owned(), cause })
}

/// The values of a header, each on its own.
fn values<'r>(request: &'r Request, name: &str) -> impl Iterator<Item = &'r [u8]> {
    let headers = request.headers.iter().filter(move |(candidate, _)| candidate == name.as_bytes());
    headers.map(|(_, value)| value.as_slice())
}

/// The values of a query parameter, as they were sent.
fn parameters<'r>(query: &'r [u8], name: &str) -> impl Iterator<Item = &'r [u8]> {
    query.split(|byte| *byte == b'&').filter_map(move |parameter| {
        let end = parameter.iter().position(|byte| *byte == b'=').unwrap_or(parameter.len());
        let (candidate, value) = parameter.split_at_checked(end)?;
        (!parameter.is_empty() && candidate == name.as_bytes()).then(|| value.get(1..).unwrap_or_default())
    })
}

/// The values of a cookie, as they were sent.
fn cookies<'r>(request: &'r Request, name: &str) -> impl Iterator<Item = &'r [u8]> {
    let cookies = values(request, "cookie").flat_map(|header| header.split(|byte| matches!(byte, b';' | b',')));
    cookies.filter_map(move |cookie| {
        let (candidate, value) = cookie.split_at_checked(cookie.iter().position(|byte| *byte == b'=')?)?;
        (trimmed(candidate) == name.as_bytes()).then(|| trimmed(value.get(1..).unwrap_or_default()))
    })
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_query_parameters_as_they_were_sent() {
        let check = |query: &str, expect: &[&str]| {
            let found: Vec<_> = parameters(query.as_bytes(), "a").map(|value| str::from_utf8(value).unwrap()).collect();
            assert_eq!(found, expect, "{query}");
        };
        check("a=1&b=2&a=3", &["1", "3"]);
        check("a&a=&a==", &["", "", "="]);
        check("%61=1&A=1&xa=1&;a=1", &[]);
        check("", &[]);
    }

    #[test]
    fn reads_cookies_as_they_were_sent() {
        let check = |header: &str, expect: &[&str]| {
            let headers = vec![(b"cookie".to_vec(), header.as_bytes().to_vec())];
            let request = Request { headers, ..Request::default() };
            let found: Vec<_> = cookies(&request, "a").map(|value| str::from_utf8(value).unwrap()).collect();
            assert_eq!(found, expect, "{header}");
        };
        check("a=1; b=2;a = 3 ,a=\"4\"", &["1", "3", "\"4\""]);
        check("a; A=1; xa=1; b=a=1", &[]);
    }
}
