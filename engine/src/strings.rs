//! The plan's strings and expressions by index, with the checks that their uses need.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use crate::{
    cel::Expression,
    header::{self, Name, RemovableName},
    load_error::LoadError,
    text::origin::OriginRule,
    verdict::{HeaderPair, Response},
};

/// The interned strings and expressions of a plan.
#[derive(Debug)]
pub(crate) struct Strings {
    strings: Vec<Arc<str>>,
    expressions: Vec<Arc<Expression>>,
}

impl Strings {
    pub(crate) fn load(strings: Vec<String>, expressions: &[wire::Expression]) -> Result<Self, LoadError> {
        let load = |(index, wire)| {
            let loaded = Expression::load(wire);
            loaded.map(Arc::new).map_err(|error| LoadError::from(error).within(format!("expression {index}")))
        };
        Ok(Self {
            strings: strings.into_iter().map(Arc::from).collect(),
            expressions: expressions.iter().enumerate().map(load).collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn get(&self, index: u32) -> Result<Arc<str>, LoadError> {
        find(&self.strings, "string", index).cloned()
    }

    /// The expression of a field, which is 0 for none and otherwise an index plus 1.
    pub(crate) fn expression(&self, field: u32) -> Result<Option<Arc<Expression>>, LoadError> {
        match field.checked_sub(1) {
            None => Ok(None),
            Some(index) => find(&self.expressions, "expression", index).cloned().map(Some),
        }
    }

    /// A name that logs mention. It is an error if it cannot stand there unquoted.
    pub(crate) fn name(&self, index: u32) -> Result<Arc<str>, LoadError> {
        let fits = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=');
        self.checked(index, "name", fits)
    }

    /// The name of a header that a policy reads: an RFC 9110 token in lower case.
    pub(crate) fn header_name(&self, index: u32) -> Result<Arc<str>, LoadError> {
        let token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let fits = |name: &str| !name.is_empty() && name != "host" && name.bytes().all(token);
        self.checked(index, "header name", fits)
    }

    /// The name of a header that a policy sets or adds to.
    pub(crate) fn set_header(&self, index: u32) -> Result<Name, LoadError> {
        let name = self.get(index)?;
        Name::new(Arc::clone(&name)).map_err(|why| LoadError::Header { name, why })
    }

    /// The name of a header that a policy removes.
    pub(crate) fn removed_header(&self, index: u32) -> Result<RemovableName, LoadError> {
        let name = self.get(index)?;
        RemovableName::new(Arc::clone(&name)).map_err(|why| LoadError::Header { name, why })
    }

    /// A value that a header is set to.
    pub(crate) fn set_value(&self, index: u32) -> Result<header::Value, LoadError> {
        let text = self.get(index)?;
        header::Value::new(Arc::clone(&text)).ok_or(LoadError::Unfit { what: "header value", text })
    }

    /// A header's value, or a part of one.
    pub(crate) fn header_value(&self, index: u32) -> Result<Arc<str>, LoadError> {
        self.checked(index, "header value", header::is_value)
    }

    /// Which origins a list means.
    pub(crate) fn origins(&self, indexes: &[u32]) -> Result<Vec<OriginRule>, LoadError> {
        let rule = |index: &u32| {
            let text = self.get(*index)?;
            OriginRule::parse(&text).ok_or(LoadError::Unfit { what: "origin", text })
        };
        indexes.iter().map(rule).collect()
    }

    /// A whole answer.
    pub(crate) fn answer(&self, wire: &wire::Answer) -> Result<Response, LoadError> {
        let status = self.status(wire.status)?;
        let headers = self.header_values(&wire.headers)?;
        Ok(Response { status, headers, body: self.get(wire.body)?.as_bytes().to_vec() })
    }

    /// Headers of an answer.
    pub(crate) fn header_values(&self, wire: &[wire::HeaderValue]) -> Result<Vec<HeaderPair>, LoadError> {
        let header = |header: &wire::HeaderValue| {
            Ok((Arc::clone(self.set_header(header.name)?.get()), self.header_value(header.value)?))
        };
        wire.iter().map(header).collect()
    }

    /// A status that ends a request.
    pub(crate) fn status(&self, status: u32) -> Result<u16, LoadError> {
        let fits = |status: &u16| (200..=599).contains(status);
        u16::try_from(status).ok().filter(fits).ok_or(LoadError::Status(status))
    }

    fn checked(&self, index: u32, what: &'static str, fits: impl Fn(&str) -> bool) -> Result<Arc<str>, LoadError> {
        let text = self.get(index)?;
        if fits(&text) { Ok(text) } else { Err(LoadError::Unfit { what, text }) }
    }
}

/// The item at an index. It is an error if there is none.
pub(crate) fn find<'a, T>(list: &'a [T], what: &'static str, index: u32) -> Result<&'a T, LoadError> {
    let found = usize::try_from(index).ok().and_then(|index| list.get(index));
    found.ok_or(LoadError::Index { what, index, size: list.len() })
}
