//! Steps, and parts of plans, that several targets write.

use postern_proto::plan::v1::{self as wire, api_key_auth::Source, step::Policy, validate};
use sha2::{Digest as _, Sha256};

use crate::common::Writer;

/// The SHA-256 digest of an API key.
pub fn digest(key: &str) -> Vec<u8> {
    Sha256::digest(key).to_vec()
}

/// A bucket of `burst` tokens for each value of the expression `key`.
pub fn limit(writer: &mut Writer, burst: u32, key: u32) -> wire::Step {
    let policy = wire::RateLimit {
        id: writer.string("limit"),
        interval_ns: 1_000_000_000,
        burst,
        key,
        most_keys: 1024,
        limit: burst,
        report: wire::ReportLimit::Always.into(),
    };
    writer.step("rateLimit", Policy::RateLimit(policy))
}

/// Admits a request for which these expressions are true.
pub fn validate(writer: &mut Writer, expressions: &[u32]) -> wire::Step {
    let message = writer.string("not as it must be");
    let rules = expressions.iter().map(|expression| validate::Rule { expression: *expression, message }).collect();
    writer.step("validate", Policy::Validate(wire::Validate { rules, status: 422 }))
}

/// Admits a request with an API key.
pub fn key_from(writer: &mut Writer, source: Source) -> wire::Step {
    writer.step("apiKeyAuth", Policy::ApiKeyAuth(wire::ApiKeyAuth { source: Some(source), optional: false }))
}
