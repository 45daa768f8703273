//! Where a request carries a credential: a header, a parameter of the query or a cookie.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use super::Context;
use crate::text::{cookie, query, split_path};

/// The place of a credential in a request.
#[derive(Debug)]
pub(crate) enum Source {
    Header(Arc<str>),
    Query(Arc<str>),
    Cookie(Arc<str>),
}

impl Source {
    /// Every value that the request has there, as earlier steps left it.
    pub(crate) fn values<'a>(&self, context: &'a Context<'_>) -> SmallVec<[Cow<'a, [u8]>; 1]> {
        match self {
            Self::Header(name) => {
                let mut values = SmallVec::new();
                context.request_header(name).iter().for_each(|value| values.push(Cow::Borrowed(*value)));
                values
            }
            Self::Query(name) => {
                let paths = context.request_header(":path");
                let query = paths.first().and_then(|path| split_path(path).1).unwrap_or_default();
                query::values(query, name).collect()
            }
            Self::Cookie(name) => {
                let headers = context.request_header("cookie");
                headers.into_iter().flat_map(|header| cookie::values(header, name)).map(Cow::Borrowed).collect()
            }
        }
    }
}
