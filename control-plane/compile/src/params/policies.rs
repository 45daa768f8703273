//! The types. Fields that have a default in the policy's schema are always there.

use std::collections::BTreeMap;

use postern_model::Action;
use serde::Deserialize;
use serde_json::Value as Json;

use super::{Size, Time};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiKeyAuthParams {
    pub(crate) header: Option<String>,
    pub(crate) query: Option<String>,
    pub(crate) cookie: Option<String>,
    pub(crate) required: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditLogParams {
    pub(crate) to: AuditSinks,
    pub(crate) sample: f64,
    pub(crate) sample_denials: bool,
    pub(crate) at: String,
    #[serde(default)]
    pub(crate) fields: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) headers: Vec<String>,
    #[serde(default)]
    pub(crate) omit: Vec<String>,
    #[serde(default)]
    pub(crate) redact: Redaction,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AuditSinks {
    pub(crate) log: bool,
    pub(crate) http: Option<HttpSink>,
    pub(crate) grpc: Option<GrpcSink>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HttpSink {
    pub(crate) service: String,
    pub(crate) path: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GrpcSink {
    pub(crate) service: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Redaction {
    pub(crate) headers: Vec<String>,
    pub(crate) query: Vec<String>,
    pub(crate) claims: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct BasicAuthParams {
    pub(crate) realm: String,
    pub(crate) forward: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CorsParams {
    #[serde(default)]
    pub(crate) allow_origins: Vec<String>,
    #[serde(default)]
    pub(crate) allow_origin_regexes: Vec<String>,
    pub(crate) allow_methods: Vec<String>,
    #[serde(default)]
    pub(crate) allow_headers: Vec<String>,
    #[serde(default)]
    pub(crate) expose_headers: Vec<String>,
    pub(crate) max_age: Option<Time>,
    pub(crate) allow_credentials: bool,
    pub(crate) allow_private_network: bool,
    pub(crate) enforce: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CsrfParams {
    #[serde(default)]
    pub(crate) allow_origins: Vec<String>,
    pub(crate) missing: String,
    pub(crate) token: Option<CsrfToken>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CsrfToken {
    pub(crate) cookie: String,
    pub(crate) header: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FaultInjectionParams {
    pub(crate) delay: Option<Delay>,
    pub(crate) abort: Option<Abort>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Delay {
    pub(crate) duration: Time,
    pub(crate) percent: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Abort {
    pub(crate) status: u32,
    pub(crate) percent: u32,
    pub(crate) body: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HeadersParams {
    pub(crate) remove: Vec<String>,
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) add: BTreeMap<String, String>,
    pub(crate) default: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HmacAuthParams {
    pub(crate) components: Vec<String>,
    pub(crate) label: Option<String>,
    pub(crate) window: Time,
    pub(crate) clock_skew: Time,
    pub(crate) require_date: bool,
    pub(crate) require_digest: bool,
    pub(crate) refuse_replays: bool,
    pub(crate) replay_rate: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IpFilterParams {
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    #[serde(default)]
    pub(crate) deny: Vec<String>,
    pub(crate) trusted_hops: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JsonSchemaParams {
    pub(crate) schema: Json,
    pub(crate) content_types: Vec<String>,
    pub(crate) allow_empty: bool,
    pub(crate) status: u32,
    pub(crate) max_errors: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JwtValidationParams {
    pub(crate) issuers: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) audiences: Vec<String>,
    pub(crate) header: Option<String>,
    pub(crate) query: Option<String>,
    pub(crate) cookie: Option<String>,
    pub(crate) scheme: Option<String>,
    pub(crate) forward: bool,
    pub(crate) allow_missing: bool,
    pub(crate) require_expiry: bool,
    pub(crate) leeway: Option<Time>,
    pub(crate) max_age: Option<Time>,
    #[serde(default)]
    pub(crate) required_claims: Vec<String>,
    #[serde(default)]
    pub(crate) claims_to_headers: BTreeMap<String, String>,
    pub(crate) consumer: Option<String>,
    pub(crate) max_token_size: Size,
    pub(crate) realm: String,
    pub(crate) typ: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RateLimitParams {
    pub(crate) requests: u32,
    pub(crate) per: Time,
    pub(crate) burst: u32,
    pub(crate) key: Option<String>,
    pub(crate) max_keys: u32,
    pub(crate) report: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestIdParams {
    pub(crate) header: String,
    pub(crate) trust_incoming: bool,
    pub(crate) format: String,
    pub(crate) echo: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestSizeParams {
    pub(crate) max_body: Option<Size>,
    pub(crate) max_headers: Option<u64>,
    pub(crate) max_header_bytes: Option<Size>,
    pub(crate) max_path: Option<Size>,
    pub(crate) max_query: Option<Size>,
    pub(crate) require_content_length: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RespondParams {
    pub(crate) status: Option<u16>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
    pub(crate) template: Option<String>,
    pub(crate) redirect: Option<RedirectParams>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedirectParams {
    pub(crate) to: Option<String>,
    pub(crate) scheme: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) prefix: Option<Prefix>,
    pub(crate) status: u16,
    pub(crate) keep_query: bool,
}

/// A prefix of a path, and what takes its place.
#[derive(Debug, Deserialize)]
pub(crate) struct Prefix {
    pub(crate) from: String,
    pub(crate) to: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RewriteParams {
    pub(crate) prefix: Option<Prefix>,
    pub(crate) template: Option<Template>,
    pub(crate) regex: Option<Regex>,
    pub(crate) host: Option<String>,
    pub(crate) unmatched: String,
}

impl RewriteParams {
    /// The parameter that rewrites the path, if one does.
    pub(crate) fn of_path(&self) -> Option<&'static str> {
        let forms =
            [("prefix", self.prefix.is_some()), ("template", self.template.is_some()), ("regex", self.regex.is_some())];
        forms.into_iter().find(|(_, is_there)| *is_there).map(|(name, _)| name)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Template {
    #[serde(rename = "match")]
    pub(crate) matching: String,
    pub(crate) to: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Regex {
    pub(crate) pattern: String,
    pub(crate) substitution: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RoleCheckParams {
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    #[serde(default)]
    pub(crate) roles: Vec<String>,
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    #[serde(default)]
    pub(crate) claims: BTreeMap<String, Vec<String>>,
    #[serde(rename = "match")]
    pub(crate) matching: String,
    pub(crate) roles_claim: Option<String>,
    pub(crate) scopes_claim: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecurityHeadersParams {
    pub(crate) strict_transport_security: String,
    pub(crate) content_type_options: String,
    pub(crate) frame_options: String,
    pub(crate) referrer_policy: String,
    pub(crate) content_security_policy: String,
    pub(crate) permissions_policy: String,
    pub(crate) cross_origin_opener_policy: String,
    pub(crate) cross_origin_resource_policy: String,
    pub(crate) cross_origin_embedder_policy: String,
    #[serde(rename = "override")]
    pub(crate) override_upstream: bool,
    pub(crate) remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TrafficPermissionParams {
    pub(crate) rules: Vec<PermissionRule>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PermissionRule {
    pub(crate) from: PermissionSource,
    pub(crate) action: Action,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PermissionSource {
    #[serde(default)]
    pub(crate) services: Vec<String>,
    pub(crate) mesh: Option<bool>,
    pub(crate) anyone: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ValidateParams {
    pub(crate) rules: Vec<ValidateRule>,
    pub(crate) status: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ValidateRule {
    pub(crate) rule: String,
    pub(crate) message: String,
}
