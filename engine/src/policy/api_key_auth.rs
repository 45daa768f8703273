//! `apiKeyAuth`: admits a request only if it carries the API key of a consumer.
//!
//! A plan has only SHA-256 digests of keys. The time of looking up a digest tells an attacker nothing useful: to choose
//! digests, one would have to invert SHA-256.

use std::sync::Arc;

use postern_proto::plan::v1::{self as wire, api_key_auth::Source as Wire};

use super::{BuiltIn, Context, Flow, Known, source::Source};
use crate::{
    consumers::Consumer,
    edits::Only,
    event::{Needs, Phase},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
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
            Field::optional(
                "required",
                Kind::Boolean,
                "Whether a request without a key is denied. With `false` it passes without a consumer, so that the step does not \
                 guard the route; a wrong, empty or repeated key is denied all the same.",
            )
            .or("true")
            .not_inherited(),
        ],
        exactly_one_of: &["header", "query", "cookie"],
    },
    endings: &[
        Ending { status: "401", reason: "key_missing", when: "no key, unless `required` is false; or an empty one" },
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
    /// Whether a request without a key passes.
    optional: bool,
}

impl BuiltIn for ApiKeyAuth {
    type Wire = wire::ApiKeyAuth;
    type State = ();

    fn load(wire: &wire::ApiKeyAuth, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let source = match wire.source.as_ref().ok_or(LoadError::Missing("source"))? {
            Wire::Header(name) => Source::Header(strings.header_name(*name)?),
            Wire::Query(name) => Source::Query(strings.get(*name)?),
            Wire::Cookie(name) => Source::Cookie(strings.get(*name)?),
        };
        Ok(Self { source, optional: wire.optional })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS
    }

    fn credential(&self) -> Option<&Source> {
        Some(&self.source)
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        match self.consumer(context) {
            Ok(consumer) => {
                // Without a key, who an earlier step found it to be stays.
                if consumer.is_some() {
                    context.facts.consumer = consumer;
                }
                Flow::Continue
            }
            Err(reason) => Flow::Deny(unauthorized(reason)),
        }
    }
}

impl ApiKeyAuth {
    /// The consumer whose key the request carries, or the reason for a denial. `None` if it may do without a key, and
    /// carries none.
    fn consumer(&self, context: &Context<'_>) -> Result<Option<Arc<Consumer>>, &'static str> {
        let values;
        let key = match &self.source {
            // The usual place, without a list to put the values in.
            Source::Header(name) => context.edits.only(&context.inputs.request_headers, name),
            elsewhere => {
                values = elsewhere.values(context);
                match values.as_slice() {
                    [] => Only::None,
                    [key] => Only::One(key),
                    [_, ..] => Only::Several,
                }
            }
        };
        match key {
            Only::None if self.optional => Ok(None),
            Only::None | Only::One([]) => Err("key_missing"),
            Only::One(key) => context.directory.consumers.by_api_key(key).map(Some).ok_or("key_unknown"),
            Only::Several => Err("key_repeated"),
        }
    }
}

/// One answer for every cause: a caller must not learn from it whether a key exists.
#[cold]
#[inline(never)]
fn unauthorized(reason: &'static str) -> Denial {
    let response = Response::problem(401, "a valid API key is required").with_header("www-authenticate", "ApiKey");
    Denial { reason, response }
}
