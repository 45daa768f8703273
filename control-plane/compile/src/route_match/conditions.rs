//! A route's conditions on path, method, headers, query and cookies.

use postern_model::{CookieCondition, CookieMatch, HeaderCondition, Match, PathMatch};
use regex::bytes::{Regex, RegexBuilder};

use super::{Request, spelling::Spelled, values};

/// A regular expression that cannot be compiled to match bytes.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is no regular expression for bytes: {cause}")]
pub struct PatternError {
    pattern: String,
    cause: regex::Error,
}

/// The compiled conditions of a route.
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

/// A condition on a value.
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

    /// Whether a request with a normalized path meets all conditions. Hosts are compared elsewhere.
    pub(super) fn fit(&self, request: &Request) -> bool {
        let mut parts = request.path.splitn(2, |byte| *byte == b'?');
        let path = parts.next().unwrap_or_default();
        let query = parts.next().unwrap_or_default();
        let methods = &self.matching.methods;
        (methods.is_empty() || methods.iter().any(|method| method.as_bytes() == request.method))
            && self.path.fits(path)
            && self.headers.iter().all(|(name, value)| value.fits_any(values::of_header(request, name)))
            && self.query.iter().all(|(name, value)| value.fits_any(values::of_parameter(query, name).take(1)))
            && self.cookies.iter().all(|(cookie, value)| value.fits_any(values::of_cookie(request, &cookie.name)))
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

    /// Whether one of the values meets the condition or, for an absence, whether there is none.
    fn fits_any(&self, mut values: impl Iterator<Item = impl AsRef<[u8]>>) -> bool {
        match self {
            Self::Present(present) => values.next().is_some() == *present,
            Self::Exact(expect) => values.any(|value| value.as_ref() == expect.as_slice()),
            Self::Regex(regex) => values.any(|value| regex.is_match(value.as_ref())),
        }
    }
}

/// A regular expression that must match the whole text, as bytes, since Envoy reads headers as Latin-1.
fn whole(pattern: &str) -> Result<Regex, PatternError> {
    let latin =
        pattern.bytes().map(|byte| if byte.is_ascii() { char::from(byte).into() } else { format!("\\x{byte:02x}") });
    let text = format!("^(?:{})$", latin.collect::<String>());
    let built = RegexBuilder::new(&text).unicode(false).build();
    built.map_err(|cause| PatternError { pattern: pattern.to_owned(), cause })
}
