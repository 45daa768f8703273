//! The built-in policies: a closed set, one file each. Here is only what they share and how a step finds its own.

mod agent;
mod api_key_auth;
pub mod audit_log;
mod basic_auth;
mod cors;
mod fault_injection;
mod headers;
mod hmac_auth;
mod ip_filter;
mod json_schema;
mod jwt_validation;
mod rate_limit;
mod request_id;
mod request_size;
mod respond;
mod rewrite;
mod role_check;
mod security_headers;
mod source;
mod traffic_permission;
mod validate;

use std::sync::Arc;

use postern_proto::plan::v1::{self as wire, step::Policy as Wire};

use self::agent::AgentPolicy;
pub(crate) use self::agent::Following;
use crate::{
    agent::Agent,
    ask::Ask,
    attributes,
    budget::{self, Exhausted},
    cel::{EvaluationError, Expression},
    context::Context,
    edited::HeaderEdits,
    event::{Needs, Phase},
    jwt::Issuer,
    load_error::LoadError,
    replays::Demand,
    schema::PolicySchema,
    strings::Strings,
    verdict::{Denial, Response},
};

/// Every built-in policy, as the control plane checks it and documentation shows it.
pub const SCHEMAS: &[PolicySchema] = &[
    api_key_auth::SCHEMA,
    audit_log::SCHEMA,
    basic_auth::SCHEMA,
    cors::SCHEMA,
    fault_injection::SCHEMA,
    headers::SCHEMA,
    hmac_auth::SCHEMA,
    ip_filter::SCHEMA,
    json_schema::SCHEMA,
    jwt_validation::SCHEMA,
    rate_limit::SCHEMA,
    request_id::SCHEMA,
    request_size::SCHEMA,
    respond::SCHEMA,
    rewrite::SCHEMA,
    role_check::SCHEMA,
    security_headers::SCHEMA,
    traffic_permission::SCHEMA,
    validate::SCHEMA,
];

/// The schema of the policy of this name.
pub fn schema(name: &str) -> Option<&'static PolicySchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

/// What a step says about the rest of its chain.
#[derive(Debug)]
pub(crate) enum Flow {
    Continue,
    /// It must know something first; it is run again with the answer.
    Ask(Ask),
    /// It must know this of the message too; it is run again with it.
    Want(Needs),
    Deny(Denial),
    Respond(Response),
    /// It could not decide. The denial is what the caller gets if a failure means a denial.
    Fail(Denial),
}

/// A failure to decide.
pub(crate) fn failure(reason: &'static str) -> Denial {
    Denial { reason, response: Response::problem(500, "a policy could not be evaluated") }
}

/// There were not enough steps left to decide.
#[cold]
pub(crate) fn exhausted() -> Denial {
    failure(budget::REASON)
}

impl From<Exhausted> for Denial {
    fn from(Exhausted: Exhausted) -> Self {
        exhausted()
    }
}

/// Why an expression has no value, as a step says it: `reason`, unless it would have cost too much.
#[cold]
pub(crate) fn unevaluated(error: &EvaluationError, reason: &'static str) -> Denial {
    if error.is_final() { exhausted() } else { failure(reason) }
}

/// A policy with its parameters, ready to run.
#[derive(Debug)]
pub(crate) enum Policy {
    Agent(AgentPolicy),
    ApiKeyAuth(api_key_auth::ApiKeyAuth),
    BasicAuth(basic_auth::BasicAuth),
    Headers(headers::Headers),
    HmacAuth(hmac_auth::HmacAuth),
    JsonSchema(json_schema::JsonSchema),
    JwtValidation(Box<jwt_validation::JwtValidation>),
    IpFilter(ip_filter::IpFilter),
    Cors(cors::Cors),
    SecurityHeaders(security_headers::SecurityHeaders),
    RequestId(request_id::RequestId),
    RequestSize(request_size::RequestSize),
    Rewrite(rewrite::Rewrite),
    FaultInjection(fault_injection::FaultInjection),
    RateLimit(rate_limit::RateLimit),
    Respond(respond::Respond),
    RoleCheck(role_check::RoleCheck),
    TrafficPermission(traffic_permission::TrafficPermission),
    Validate(validate::Validate),
}

impl Policy {
    pub(crate) fn load(
        step: &wire::Step,
        strings: &Strings,
        agents: &[Agent],
        issuers: &[Arc<Issuer>],
    ) -> Result<Self, LoadError> {
        match step.policy.as_ref().ok_or(LoadError::UnknownPolicy)? {
            Wire::Agent(wire) => AgentPolicy::load(wire, strings, agents).map(Self::Agent),
            Wire::ApiKeyAuth(wire) => api_key_auth::ApiKeyAuth::load(wire, strings).map(Self::ApiKeyAuth),
            // A part of the chain as a whole, which loads it.
            Wire::AuditLog(_) => Err(LoadError::Phase),
            Wire::BasicAuth(wire) => basic_auth::BasicAuth::load(wire, strings).map(Self::BasicAuth),
            Wire::Headers(wire) => headers::Headers::load(wire, strings).map(Self::Headers),
            Wire::HmacAuth(wire) => hmac_auth::HmacAuth::load(wire, strings).map(Self::HmacAuth),
            Wire::JsonSchema(wire) => json_schema::JsonSchema::load(wire, strings).map(Self::JsonSchema),
            Wire::JwtValidation(wire) => jwt_validation::JwtValidation::load(wire, strings, issuers)
                .map(|policy| Self::JwtValidation(Box::new(policy))),
            Wire::IpFilter(wire) => ip_filter::IpFilter::load(wire, strings).map(Self::IpFilter),
            Wire::Cors(wire) => cors::Cors::load(wire, strings).map(Self::Cors),
            Wire::SecurityHeaders(wire) => {
                security_headers::SecurityHeaders::load(wire, strings).map(Self::SecurityHeaders)
            }
            Wire::RequestId(wire) => request_id::RequestId::load(wire, strings).map(Self::RequestId),
            Wire::RequestSize(wire) => request_size::RequestSize::load(wire).map(Self::RequestSize),
            Wire::Rewrite(wire) => rewrite::Rewrite::load(wire, strings).map(Self::Rewrite),
            Wire::FaultInjection(wire) => {
                fault_injection::FaultInjection::load(wire, strings).map(Self::FaultInjection)
            }
            Wire::RateLimit(wire) => rate_limit::RateLimit::load(wire, strings).map(Self::RateLimit),
            Wire::Respond(wire) => respond::Respond::load(wire, strings).map(Self::Respond),
            Wire::RoleCheck(wire) => role_check::RoleCheck::load(wire, strings).map(Self::RoleCheck),
            Wire::TrafficPermission(wire) => {
                traffic_permission::TrafficPermission::load(wire, strings).map(Self::TrafficPermission)
            }
            Wire::Validate(wire) => validate::Validate::load(wire, strings).map(Self::Validate),
        }
    }

    /// The chains that it may stand in.
    pub(crate) fn phases(&self) -> &'static [Phase] {
        match self {
            Self::Agent(_) => &[Phase::Request, Phase::Response],
            Self::ApiKeyAuth(_) => api_key_auth::SCHEMA.phases,
            Self::BasicAuth(_) => basic_auth::SCHEMA.phases,
            Self::Headers(_) => headers::SCHEMA.phases,
            Self::HmacAuth(_) => hmac_auth::SCHEMA.phases,
            Self::JsonSchema(_) => json_schema::SCHEMA.phases,
            Self::JwtValidation(_) => jwt_validation::SCHEMA.phases,
            Self::IpFilter(_) => ip_filter::SCHEMA.phases,
            Self::Cors(_) => cors::SCHEMA.phases,
            Self::SecurityHeaders(_) => security_headers::SCHEMA.phases,
            Self::RequestId(_) => request_id::SCHEMA.phases,
            Self::RequestSize(_) => request_size::SCHEMA.phases,
            Self::Rewrite(_) => rewrite::SCHEMA.phases,
            Self::FaultInjection(_) => fault_injection::SCHEMA.phases,
            Self::RateLimit(_) => rate_limit::SCHEMA.phases,
            Self::Respond(_) => respond::SCHEMA.phases,
            Self::RoleCheck(_) => role_check::SCHEMA.phases,
            Self::TrafficPermission(_) => traffic_permission::SCHEMA.phases,
            Self::Validate(_) => validate::SCHEMA.phases,
        }
    }

    /// What it reads.
    pub(crate) fn needs(&self, phase: Phase) -> Needs {
        match self {
            Self::Agent(_) => agent::needs(phase),
            Self::ApiKeyAuth(_) | Self::BasicAuth(_) | Self::Cors(_) | Self::Rewrite(_) => Needs::REQUEST_HEADERS,
            Self::Headers(policy) => policy.needs(phase),
            Self::RoleCheck(_) => Needs::CLAIMS,
            Self::HmacAuth(_) => hmac_auth::HmacAuth::needs(),
            Self::JsonSchema(_) => json_schema::JsonSchema::needs(),
            Self::JwtValidation(_) => Needs::REQUEST_HEADERS.union(Needs::NOW),
            Self::IpFilter(policy) => policy.needs(),
            Self::SecurityHeaders(policy) => policy.needs(),
            Self::RequestId(policy) => policy.needs(),
            Self::RequestSize(policy) => policy.needs(),
            Self::FaultInjection(policy) => policy.needs(),
            Self::RateLimit(policy) => policy.needs(),
            Self::Respond(policy) => policy.needs(),
            Self::TrafficPermission(policy) => policy.needs(),
            Self::Validate(policy) => policy.needs(),
        }
    }

    /// Whether it may want the body once it runs, though it does not always need it.
    pub(crate) fn may_want_body(&self) -> bool {
        match self {
            Self::Agent(_) => true,
            Self::HmacAuth(policy) => policy.may_want_body(),
            _ => false,
        }
    }

    /// Which headers of a message in this phase it may edit.
    pub(crate) fn edits(&self) -> HeaderEdits {
        match self {
            Self::Agent(_) => agent::edits(),
            Self::BasicAuth(policy) => policy.edits(),
            Self::Headers(policy) => policy.edits(),
            Self::JwtValidation(policy) => policy.edits(),
            Self::RequestId(policy) => policy.edits(),
            Self::SecurityHeaders(policy) => policy.edits(),
            // Path and host go through the filter state, and `cors` and `rateLimit` edit the response only.
            Self::Rewrite(_) | Self::Cors(_) | Self::RateLimit(_) => HeaderEdits::none(),
            Self::ApiKeyAuth(_)
            | Self::HmacAuth(_)
            | Self::JsonSchema(_)
            | Self::IpFilter(_)
            | Self::RequestSize(_)
            | Self::FaultInjection(_)
            | Self::Respond(_)
            | Self::RoleCheck(_)
            | Self::TrafficPermission(_)
            | Self::Validate(_) => HeaderEdits::none(),
        }
    }

    /// Whether it has expressions of a user's, or tells an agent of the request.
    pub(crate) fn evaluates(&self) -> bool {
        match self {
            Self::Agent(_) | Self::RateLimit(_) | Self::Respond(_) | Self::Validate(_) => true,
            Self::ApiKeyAuth(_)
            | Self::BasicAuth(_)
            | Self::Headers(_)
            | Self::HmacAuth(_)
            | Self::JsonSchema(_)
            | Self::JwtValidation(_)
            | Self::IpFilter(_)
            | Self::Cors(_)
            | Self::SecurityHeaders(_)
            | Self::RequestId(_)
            | Self::RequestSize(_)
            | Self::Rewrite(_)
            | Self::FaultInjection(_)
            | Self::RoleCheck(_)
            | Self::TrafficPermission(_) => false,
        }
    }

    /// The least that it costs a request that it admits, of what depends on the request.
    pub(crate) fn least_cost(&self) -> u64 {
        match self {
            Self::JsonSchema(policy) => policy.least_cost(),
            Self::RateLimit(policy) => policy.least_cost(),
            Self::Respond(policy) => policy.least_cost(),
            Self::Rewrite(policy) => policy.least_cost(),
            Self::Validate(policy) => policy.least_cost(),
            _ => 0,
        }
    }

    /// The shared values that it uses, if they are known beforehand.
    pub(crate) fn shared_keys(&self) -> Vec<Arc<str>> {
        match self {
            Self::RateLimit(policy) => policy.shared_key().into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// What it wants of the memory of signatures.
    pub(crate) fn replays(&self) -> Option<Demand> {
        match self {
            Self::HmacAuth(policy) => policy.replays(),
            _ => None,
        }
    }

    /// Tells it that nobody in its chain asks what a token says.
    pub(crate) fn leave_out_claims(&mut self) {
        if let Self::JwtValidation(policy) = self {
            policy.leave_out_claims();
        }
    }

    /// What agents are asked, if it is not built in.
    pub(crate) fn as_agent(&self) -> Option<&AgentPolicy> {
        match self {
            Self::Agent(policy) => Some(policy),
            _ => None,
        }
    }

    /// The agents that can evaluate it, if it is not built in.
    pub(crate) fn agents(&self) -> Option<&[usize]> {
        self.as_agent().map(AgentPolicy::agents)
    }

    /// Only looks up whose turn it is: what each policy does is a function of its own, so that none pays for the others.
    /// `steps` has this step at 0, and those behind it.
    #[inline(always)]
    pub(crate) fn run<'a>(&self, context: &mut Context<'_>, steps: impl Fn(usize) -> Option<Following<'a>>) -> Flow {
        match self {
            Self::Agent(policy) => policy.run(context, steps),
            Self::ApiKeyAuth(policy) => policy.run(context),
            Self::BasicAuth(policy) => policy.run(context),
            Self::Headers(policy) => policy.run(context),
            Self::HmacAuth(policy) => policy.run(context),
            Self::JsonSchema(policy) => policy.run(context),
            Self::JwtValidation(policy) => policy.run(context),
            Self::IpFilter(policy) => policy.run(context),
            Self::Cors(policy) => policy.run(context),
            Self::SecurityHeaders(policy) => policy.run(context),
            Self::RequestId(policy) => policy.run(context),
            Self::RequestSize(policy) => policy.run(context),
            Self::Rewrite(policy) => policy.run(context),
            Self::FaultInjection(policy) => policy.run(context),
            Self::RateLimit(policy) => policy.run(context),
            Self::Respond(policy) => policy.run(context),
            Self::RoleCheck(policy) => policy.run(context),
            Self::TrafficPermission(policy) => policy.run(context),
            Self::Validate(policy) => policy.run(context),
        }
    }
}

/// What several expressions cost at the least.
fn least_cost<'a>(expressions: impl IntoIterator<Item = &'a Arc<Expression>>) -> u64 {
    expressions.into_iter().map(|expression| expression.least_cost()).fold(0, u64::saturating_add)
}

/// What several expressions read.
fn needs_of<'a>(expressions: impl IntoIterator<Item = &'a Arc<Expression>>) -> Needs {
    expressions.into_iter().fold(Needs::NONE, |needs, expression| needs.union(attributes::needs(expression)))
}
