//! What records never show: the values of some headers, query parameters and claims. Attributes that are read through
//! this module have `[redacted]` instead; that a value is there can still be seen.

use std::sync::Arc;

use crate::{
    cel::{Attribute, AttributeError, Attributes, Key, Map, Value},
    context::Context,
    text::query,
};

/// The replacement for a value.
pub(crate) const REDACTED: &str = "[redacted]";

/// Headers that always carry credentials.
const HEADERS: [&str; 7] =
    ["authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "x-auth-token", "x-csrf-token"];
/// Query parameters that usually carry credentials.
const QUERY: [&str; 8] =
    ["access_token", "api_key", "apikey", "client_secret", "id_token", "password", "refresh_token", "token"];

/// What is redacted in addition to [`HEADERS`] and [`QUERY`].
#[derive(Debug, Default)]
pub(crate) struct Redaction {
    /// In lower case.
    pub(crate) headers: Vec<Arc<str>>,
    pub(crate) query: Vec<Arc<str>>,
    pub(crate) claims: Vec<Arc<str>>,
}

impl Redaction {
    /// A header's value as it may be shown.
    pub(crate) fn header(&self, name: &str, value: Value) -> Value {
        match value {
            _ if HEADERS.contains(&name) || self.headers.iter().any(|known| **known == *name) => REDACTED.into(),
            Value::String(path) if name == ":path" => self.path(&path).into(),
            value => value,
        }
    }

    /// A path with its query, redacted.
    fn path(&self, path: &str) -> String {
        match path.split_once('?') {
            None => path.to_owned(),
            Some((path, query)) => [path, "?", &self.query(query)].concat(),
        }
    }

    fn query(&self, text: &str) -> String {
        let pairs = text.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) if self.hides_parameter(name) => [name, "=", REDACTED].concat(),
            _ => pair.to_owned(),
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    fn hides_parameter(&self, name: &str) -> bool {
        let name = query::decode(name.as_bytes());
        let mut known = QUERY.into_iter().chain(self.query.iter().map(|name| &**name));
        known.any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    }

    fn claim(&self, name: &str, value: Value) -> Value {
        if self.claims.iter().any(|known| **known == *name) { REDACTED.into() } else { value }
    }
}

/// The attributes of a message, redacted.
#[derive(Debug)]
pub(crate) struct Redacted<'a, 'context> {
    pub(crate) context: &'a Context<'context>,
    pub(crate) redaction: &'a Redaction,
}

impl Attributes for Redacted<'_, '_> {
    fn attribute(&self, attribute: Attribute) -> Result<Value, AttributeError> {
        let value = self.context.attribute(attribute)?;
        Ok(match (attribute, value) {
            (Attribute::RequestPath, Value::String(path)) => self.redaction.path(&path).into(),
            (Attribute::RequestQuery, Value::String(query)) => self.redaction.query(&query).into(),
            (Attribute::RequestHeaders | Attribute::ResponseHeaders | Attribute::JwtClaims, Value::Map(map)) => {
                let mut shown = Map::default();
                for (key, value) in map.iter() {
                    let value = match key {
                        Key::String(name) => self.shown(attribute, name, value.clone()),
                        _ => value.clone(),
                    };
                    // No key is there twice.
                    let _ = shown.insert(key.clone(), value);
                }
                shown.into()
            }
            (_, value) => value,
        })
    }

    fn member(&self, attribute: Attribute, key: &str) -> Result<Option<Value>, AttributeError> {
        let value = self.context.member(attribute, key)?;
        Ok(value.map(|value| self.shown(attribute, key, value)))
    }
}

impl Redacted<'_, '_> {
    fn shown(&self, attribute: Attribute, key: &str, value: Value) -> Value {
        match attribute {
            Attribute::RequestHeaders | Attribute::ResponseHeaders => self.redaction.header(key, value),
            Attribute::JwtClaims => self.redaction.claim(key, value),
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_parameters_however_they_are_written() {
        let redaction = Redaction { query: vec!["pin".into()], ..Redaction::default() };
        for (path, expect) in [
            ("/a", "/a"),
            ("/a?b=1&pin=2&c", "/a?b=1&pin=[redacted]&c"),
            ("/a?p%69n=2&PIN=3&pin", "/a?p%69n=[redacted]&PIN=[redacted]&pin"),
            ("/a?x=1&access_token=a=b#c", "/a?x=1&access_token=[redacted]"),
            ("/a#?token=1", "/a#?token=[redacted]"),
        ] {
            assert_eq!(redaction.path(path), expect);
        }
    }

    #[test]
    fn hides_headers() {
        let redaction = Redaction { headers: vec!["x-pin".into()], ..Redaction::default() };
        for (name, value, expect) in [
            ("cookie", "a=b", REDACTED),
            ("x-pin", "1", REDACTED),
            ("x-other", "1", "1"),
            (":path", "/?token=1", "/?token=[redacted]"),
        ] {
            assert_eq!(redaction.header(name, value.into()), expect.into());
        }
    }
}
