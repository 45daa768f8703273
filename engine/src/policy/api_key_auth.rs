//! `apiKeyAuth`: admits a request that carries the API key of a consumer, and nothing else.
//!
//! A plan has only SHA-256 digests of keys. Looking a digest up leaks nothing through timing that an attacker could
//! use: choosing digests means inverting SHA-256.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;
use sha2::{Digest, Sha256};

use super::{Flow, Needs};
use crate::{
    chain::Context,
    plan::{LoadError, Strings},
    schema::{Field, Kind, Object, Phase, PolicySchema},
    verdict::{Denial, Response},
};

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "apiKeyAuth",
    about: "Admits a request that carries the API key of a consumer.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[Field::required("header", Kind::HeaderName, "The request header that carries the key.")],
    },
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct ApiKeyAuth {
    header: Arc<str>,
}

impl ApiKeyAuth {
    pub(crate) fn load(wire: &wire::ApiKeyAuth, strings: &Strings) -> Result<Self, LoadError> {
        Ok(Self { header: strings.header_name(wire.header)? })
    }

    pub(crate) fn needs(&self, needs: &mut Needs) {
        needs.headers = true;
    }

    pub(crate) fn run(&self, context: &mut Context<'_>) -> Flow {
        let key = match context.headers().values(&self.header).as_slice() {
            [] | [b""] => return Flow::Deny(unauthorized("key_missing")),
            [key] => Sha256::digest(key),
            [_, ..] => return Flow::Deny(unauthorized("key_repeated")),
        };
        match context.consumers().by_api_key(&key.into()) {
            Some(consumer) => {
                context.identify(consumer);
                Flow::Continue
            }
            None => Flow::Deny(unauthorized("key_unknown")),
        }
    }
}

/// One answer for every cause: a caller must not learn from it whether a key exists.
fn unauthorized(reason: &'static str) -> Denial {
    let response =
        Response::problem(401, "Unauthorized", "a valid API key is required").with_header("www-authenticate", "ApiKey");
    Denial { reason, response }
}
