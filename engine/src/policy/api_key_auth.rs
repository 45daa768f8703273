//! `apiKeyAuth`: admits a request that carries the API key of a consumer, and nothing else.
//!
//! A plan has only SHA-256 digests of keys. Looking a digest up leaks nothing through timing that an attacker could
//! use: choosing digests means inverting SHA-256.

use postern_proto::plan::v1::{self as wire, api_key_auth::Source as Wire};

use super::{Context, Flow, source::Source};
use crate::{
    event::Phase,
    plan::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    verdict::{Denial, Response},
};

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "apiKeyAuth",
    about: "Admits a request that carries the API key of a consumer.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("header", Kind::HeaderName, "The request header that carries the key."),
            Field::optional("query", Kind::Text, "The query parameter that carries the key."),
            Field::optional("cookie", Kind::HeaderName, "The cookie that carries the key."),
        ],
        exactly_one_of: &["header", "query", "cookie"],
    },
    endings: &[
        Ending { status: "401", reason: "key_missing", when: "no key, or an empty one" },
        Ending { status: "401", reason: "key_repeated", when: "more than one key" },
        Ending { status: "401", reason: "key_unknown", when: "no consumer has this key" },
    ],
    example: "\
- policy: apiKeyAuth
  params: { header: x-api-key }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct ApiKeyAuth {
    source: Source,
}

impl ApiKeyAuth {
    pub(crate) fn load(wire: &wire::ApiKeyAuth, strings: &Strings) -> Result<Self, LoadError> {
        let source = match wire.source.as_ref().ok_or(LoadError::Missing("source"))? {
            Wire::Header(name) => Source::Header(strings.header_name(*name)?),
            Wire::Query(name) => Source::Query(strings.get(*name)?),
            Wire::Cookie(name) => Source::Cookie(strings.get(*name)?),
        };
        Ok(Self { source })
    }

    pub(crate) fn run(&self, context: &mut Context<'_>) -> Flow {
        let consumer = match self.source.values(context).as_slice() {
            [] => return Flow::Deny(unauthorized("key_missing")),
            [key] if key.is_empty() => return Flow::Deny(unauthorized("key_missing")),
            [key] => context.plan.consumers().by_api_key(key),
            [_, ..] => return Flow::Deny(unauthorized("key_repeated")),
        };
        if consumer.is_none() {
            return Flow::Deny(unauthorized("key_unknown"));
        }
        context.facts.consumer = consumer;
        Flow::Continue
    }
}

/// One answer for every cause: a caller must not learn from it whether a key exists.
fn unauthorized(reason: &'static str) -> Denial {
    let response = Response::problem(401, "a valid API key is required").with_header("www-authenticate", "ApiKey");
    Denial { reason, response }
}
