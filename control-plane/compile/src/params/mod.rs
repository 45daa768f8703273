//! The parameters of steps: one type for each policy. They are parsed once, after merging, with the defaults of the
//! policy's schema filled in. What they come to in a plan is not decided here.

mod defaults;
mod policies;

use std::time::Duration;

use postern_engine::policy;
use postern_model::{Step, unit};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value as Json;

pub(crate) use self::policies::*;

/// The parameters of a step. The variants are named like the policies.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Params {
    ApiKeyAuth(ApiKeyAuthParams),
    AuditLog(AuditLogParams),
    BasicAuth(BasicAuthParams),
    Cors(CorsParams),
    Csrf(CsrfParams),
    FaultInjection(FaultInjectionParams),
    Headers(HeadersParams),
    HmacAuth(HmacAuthParams),
    IpFilter(IpFilterParams),
    JsonSchema(JsonSchemaParams),
    JwtValidation(JwtValidationParams),
    RateLimit(RateLimitParams),
    RequestId(RequestIdParams),
    RequestSize(RequestSizeParams),
    Respond(RespondParams),
    Rewrite(RewriteParams),
    RoleCheck(RoleCheckParams),
    SecurityHeaders(SecurityHeadersParams),
    TrafficPermission(TrafficPermissionParams),
    Validate(ValidateParams),
}

impl Params {
    /// Parses the parameters of a merged step. An error if its policy has no variant here, or if the schema of the
    /// policy accepts what its type does not.
    pub(crate) fn parse(step: &Step) -> serde_json::Result<Self> {
        let params = match policy::schema(&step.policy) {
            Some(schema) => defaults::filled(&step.params, &schema.params),
            None => step.params.clone(),
        };
        Self::deserialize(Json::Object([(step.policy.clone(), params)].into_iter().collect()))
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let size = match Json::deserialize(deserializer)? {
            Json::Number(bytes) => bytes.as_u64(),
            Json::String(text) => unit::size(&text).map(u64::from),
            _ => None,
        };
        size.map(Self).ok_or_else(|| D::Error::custom("not a size"))
    }
}

/// A length of time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Time(pub(crate) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        unit::duration(&text).map(Self).ok_or_else(|| D::Error::custom("not a length of time"))
    }
}

#[cfg(test)]
mod tests {
    use postern_engine::policy::SCHEMAS;

    use super::*;

    /// A policy without a type would be refused only when somebody uses it.
    #[test]
    fn every_policy_has_a_type() {
        for schema in SCHEMAS {
            let error = Params::deserialize(serde_json::json!({ schema.name: null })).unwrap_err().to_string();
            assert!(!error.contains("unknown variant"), "{error}");
        }
    }
}
