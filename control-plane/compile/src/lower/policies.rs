//! Lowers the parameters of each policy. They are valid by the policy's schema already.

use std::{collections::BTreeMap, time::Duration};

use postern_base::diagnostic::quote;
use postern_engine::{origin::OriginRule, policy};
use postern_model::{Step, unit};
use postern_proto::plan::v1::{
    ApiKeyAuth, Csrf, Headers, RateLimit, ReportLimit, TrafficPermission, Validate, api_key_auth::Source, step::Policy,
    traffic_permission, validate,
};
use serde::Deserialize;

use super::{Lowering, Place, defaults::filled};

/// Why parameters that are valid by the schema cannot be lowered.
#[derive(Debug, thiserror::Error)]
pub(super) enum LowerError {
    #[error("policy `{0}` has a schema but no lowering")]
    Policy(String),
    #[error("the parameters fit the schema but not the plan: {0}")]
    Params(#[from] serde_json::Error),
    #[error("{0}")]
    Value(&'static str),
}

impl Lowering {
    pub(super) fn policy(&mut self, place: &Place<'_>, step: &Step) -> Result<Policy, LowerError> {
        match step.policy.as_str() {
            "apiKeyAuth" => Ok(self.api_key_auth(&params(step)?)),
            "auditLog" => self.audit_log(place, step, &params(step)?),
            "basicAuth" => self.basic_auth(&params(step)?),
            "cors" => self.cors(place, &params(step)?),
            "csrf" => Ok(self.csrf(place, &params(step)?)),
            "faultInjection" => self.fault_injection(place, &params(step)?),
            "headers" => Ok(self.headers(params(step)?)),
            "hmacAuth" => Ok(self.hmac_auth(place, step, &params(step)?)),
            "ipFilter" => self.ip_filter(&params(step)?),
            "jsonSchema" => Ok(self.json_schema(place, &params(step)?)),
            "jwtValidation" => self.jwt_validation(place, &params(step)?),
            "rateLimit" => self.rate_limit(place, params(step)?),
            "requestId" => Ok(self.request_id(&params(step)?)),
            "requestSize" => Self::request_size(&params(step)?),
            "respond" => self.respond(place, &params(step)?),
            "rewrite" => self.rewrite(place, &params(step)?),
            "roleCheck" => self.role_check(&params(step)?),
            "securityHeaders" => Ok(self.security_headers(place, &params(step)?)),
            "trafficPermission" => self.traffic_permission(params(step)?),
            "validate" => Ok(self.validate(place, params(step)?)),
            other => Err(LowerError::Policy(other.to_owned())),
        }
    }

    fn api_key_auth(&mut self, params: &ApiKeyAuthParams) -> Policy {
        // The schema allows one of them.
        let header = params.header.as_ref().map(|name| Source::Header(self.header_name(name)));
        let query = params.query.as_ref().map(|name| Source::Query(self.string(name)));
        let cookie = params.cookie.as_ref().map(|name| Source::Cookie(self.string(name)));
        Policy::ApiKeyAuth(ApiKeyAuth { source: header.or(query).or(cookie), optional: !params.required })
    }

    fn csrf(&mut self, place: &Place<'_>, params: &CsrfParams) -> Policy {
        for (index, origin) in params.allow_origins.iter().enumerate() {
            if OriginRule::parse(origin).is_none_or(|rule| !rule.is_of_hosts()) {
                let message = format!(
                    "expected an origin such as `https://example.com` or `https://*.example.com`, found {}",
                    quote(origin)
                );
                self.error(place, &format!("params.allowOrigins[{index}]"), message);
            }
        }
        let allow_origins = params.allow_origins.iter().map(|origin| self.string(origin)).collect();
        let token = params.token.as_ref();
        Policy::Csrf(Csrf {
            allow_origins,
            deny_missing: params.missing == "deny",
            token_cookie: token.map(|token| self.string(&token.cookie)),
            token_header: token.map(|token| self.header_name(&token.header)),
        })
    }

    fn headers(&mut self, params: HeadersParams) -> Policy {
        let remove = params.remove.iter().map(|name| self.header_name(name)).collect();
        let set = self.header_values(&params.set);
        let add = self.header_values(&params.add);
        let default = self.header_values(&params.default);
        Policy::Headers(Headers { remove, set, add, default })
    }

    fn rate_limit(&mut self, place: &Place<'_>, params: RateLimitParams) -> Result<Policy, LowerError> {
        let per = unit::duration(&params.per).unwrap_or(Duration::ZERO);
        let interval = per.as_nanos().checked_div(params.requests.into()).filter(|interval| *interval > 0);
        let interval = interval.and_then(|interval| u64::try_from(interval).ok());
        let key = params.key.as_deref().map_or(0, |key| self.expression(place, "params.key", key));
        let report = match params.report.as_str() {
            "always" => ReportLimit::Always,
            "never" => ReportLimit::Never,
            _ => ReportLimit::Denied,
        };
        Ok(Policy::RateLimit(RateLimit {
            // Stable across revisions, so that an update does not refill the buckets.
            id: self.string(&place.step.id()),
            interval_ns: interval
                .ok_or(LowerError::Value("more than one request a nanosecond cannot be told apart"))?,
            burst: params.burst,
            key,
            most_keys: if key == 0 { 1 } else { params.max_keys },
            limit: params.requests,
            report: report.into(),
        }))
    }

    fn traffic_permission(&mut self, params: TrafficPermissionParams) -> Result<Policy, LowerError> {
        let selects_nothing = |rule: &PermissionRule| rule.from.anyone == Some(false) || rule.from.mesh == Some(false);
        if params.rules.iter().any(selects_nothing) {
            return Err(LowerError::Value("a `from` that is `false` selects nothing"));
        }
        let lower = |rule: PermissionRule| traffic_permission::Rule {
            services: rule.from.services.iter().map(|service| self.string(service)).collect(),
            anyone: rule.from.anyone == Some(true),
            source: None,
            allow: rule.action == "ALLOW",
        };
        let rules = params.rules.into_iter().map(lower).collect();
        Ok(Policy::TrafficPermission(TrafficPermission { rules }))
    }

    fn validate(&mut self, place: &Place<'_>, params: ValidateParams) -> Policy {
        let mut rules = Vec::with_capacity(params.rules.len());
        for (index, rule) in params.rules.iter().enumerate() {
            let expression = self.condition(place, &format!("params.rules[{index}].rule"), &rule.rule);
            rules.push(validate::Rule { expression, message: self.string(&rule.message) });
        }
        Policy::Validate(Validate { rules, status: params.status })
    }
}

/// The typed parameters of a step, with the defaults of its policy's schema.
fn params<T: for<'de> Deserialize<'de>>(step: &Step) -> Result<T, LowerError> {
    let schema = policy::schema(&step.policy).ok_or_else(|| LowerError::Policy(step.policy.clone()))?;
    Ok(T::deserialize(filled(&step.params, &schema.params))?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiKeyAuthParams {
    header: Option<String>,
    query: Option<String>,
    cookie: Option<String>,
    required: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CsrfParams {
    #[serde(default)]
    allow_origins: Vec<String>,
    missing: String,
    token: Option<CsrfTokenParams>,
}

#[derive(Deserialize)]
struct CsrfTokenParams {
    cookie: String,
    header: String,
}

#[derive(Deserialize)]
struct HeadersParams {
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default)]
    add: BTreeMap<String, String>,
    #[serde(default)]
    default: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateLimitParams {
    requests: u32,
    per: String,
    burst: u32,
    key: Option<String>,
    max_keys: u32,
    report: String,
}

#[derive(Deserialize)]
struct TrafficPermissionParams {
    rules: Vec<PermissionRule>,
}

#[derive(Deserialize)]
struct PermissionRule {
    from: PermissionSource,
    action: String,
}

#[derive(Deserialize)]
struct PermissionSource {
    #[serde(default)]
    services: Vec<String>,
    mesh: Option<bool>,
    anyone: Option<bool>,
}

#[derive(Deserialize)]
struct ValidateParams {
    rules: Vec<ValidateRule>,
    status: u32,
}

#[derive(Deserialize)]
struct ValidateRule {
    rule: String,
    message: String,
}
