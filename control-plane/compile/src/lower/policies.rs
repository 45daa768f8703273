//! Lowers the parameters of each policy. They are valid by the policy's schema already.

use postern_base::diagnostic::quote;
use postern_engine::origin::OriginRule;
use postern_model::Action;
use postern_proto::plan::v1::{
    ApiKeyAuth, Csrf, Headers, RateLimit, ReportLimit, TrafficPermission, Validate, api_key_auth::Source, step::Policy,
    traffic_permission, validate,
};

use super::{Lowering, Place};
use crate::params::{
    ApiKeyAuthParams, CsrfParams, HeadersParams, Params, PermissionRule, RateLimitParams, TrafficPermissionParams,
    ValidateParams,
};

/// Why parameters that are valid by the schema cannot be lowered.
#[derive(Debug, thiserror::Error)]
pub(super) enum LowerError {
    #[error("the parameters fit the schema but not the plan: {0}")]
    Params(String),
    #[error("{0}")]
    Value(&'static str),
}

impl Lowering {
    pub(super) fn policy(&mut self, place: &Place<'_>) -> Result<Policy, LowerError> {
        match place.step.params().map_err(|error| LowerError::Params(error.to_string()))? {
            Params::ApiKeyAuth(params) => Ok(self.api_key_auth(params)),
            Params::AuditLog(params) => self.audit_log(place, params),
            Params::BasicAuth(params) => self.basic_auth(params),
            Params::Cors(params) => self.cors(place, params),
            Params::Csrf(params) => Ok(self.csrf(place, params)),
            Params::FaultInjection(params) => self.fault_injection(place, params),
            Params::Headers(params) => Ok(self.headers(params)),
            Params::HmacAuth(params) => Ok(self.hmac_auth(place, params)),
            Params::IpFilter(params) => self.ip_filter(params),
            Params::JsonSchema(params) => Ok(self.json_schema(place, params)),
            Params::JwtValidation(params) => self.jwt_validation(place, params),
            Params::RateLimit(params) => self.rate_limit(place, params),
            Params::RequestId(params) => Ok(self.request_id(params)),
            Params::RequestSize(params) => Self::request_size(params),
            Params::Respond(params) => self.respond(place, params),
            Params::Rewrite(params) => self.rewrite(place, params),
            Params::RoleCheck(params) => self.role_check(params),
            Params::SecurityHeaders(params) => Ok(self.security_headers(place, params)),
            Params::TrafficPermission(params) => self.traffic_permission(params),
            Params::Validate(params) => Ok(self.validate(place, params)),
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

    fn headers(&mut self, params: &HeadersParams) -> Policy {
        let remove = params.remove.iter().map(|name| self.header_name(name)).collect();
        let set = self.header_values(&params.set);
        let add = self.header_values(&params.add);
        let default = self.header_values(&params.default);
        Policy::Headers(Headers { remove, set, add, default })
    }

    fn rate_limit(&mut self, place: &Place<'_>, params: &RateLimitParams) -> Result<Policy, LowerError> {
        let interval = params.per.0.as_nanos().checked_div(params.requests.into()).filter(|interval| *interval > 0);
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

    fn traffic_permission(&mut self, params: &TrafficPermissionParams) -> Result<Policy, LowerError> {
        let selects_nothing = |rule: &PermissionRule| rule.from.anyone == Some(false) || rule.from.mesh == Some(false);
        if params.rules.iter().any(selects_nothing) {
            return Err(LowerError::Value("a `from` that is `false` selects nothing"));
        }
        let lower = |rule: &PermissionRule| traffic_permission::Rule {
            services: rule.from.services.iter().map(|service| self.string(service)).collect(),
            anyone: rule.from.anyone == Some(true),
            source: None,
            allow: rule.action == Action::Allow,
        };
        let rules = params.rules.iter().map(lower).collect();
        Ok(Policy::TrafficPermission(TrafficPermission { rules }))
    }

    fn validate(&mut self, place: &Place<'_>, params: &ValidateParams) -> Policy {
        let mut rules = Vec::with_capacity(params.rules.len());
        for (index, rule) in params.rules.iter().enumerate() {
            let expression = self.condition(place, &format!("params.rules[{index}].rule"), &rule.rule);
            rules.push(validate::Rule { expression, message: self.string(&rule.message) });
        }
        Policy::Validate(Validate { rules, status: params.status })
    }
}
