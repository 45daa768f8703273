//! The built-in policies: a closed set, one file each. Here is only what they share and how a step finds its own.

mod api_key_auth;
mod headers;

use postern_proto::plan::v1::{self as wire, step::Policy as Wire};

use crate::{
    chain::Context,
    plan::{LoadError, Strings},
    schema::PolicySchema,
    verdict::Denial,
};

/// Every built-in policy, as the control plane checks it and documentation shows it.
pub const SCHEMAS: &[PolicySchema] = &[api_key_auth::SCHEMA, headers::SCHEMA];

/// The schema of the policy of this name.
pub fn schema(name: &str) -> Option<&'static PolicySchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

/// What a chain must be given before it can run, so that a host fetches nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// The headers of the message.
    pub headers: bool,
}

/// What a step says about the rest of its chain.
#[derive(Debug)]
pub(crate) enum Flow {
    Continue,
    Deny(Denial),
}

/// A policy with its parameters, ready to run.
#[derive(Debug)]
pub(crate) enum Policy {
    ApiKeyAuth(api_key_auth::ApiKeyAuth),
    Headers(headers::Headers),
}

impl Policy {
    pub(crate) fn load(step: &wire::Step, strings: &Strings) -> Result<Self, LoadError> {
        match &step.policy {
            Some(Wire::ApiKeyAuth(wire)) => api_key_auth::ApiKeyAuth::load(wire, strings).map(Self::ApiKeyAuth),
            Some(Wire::Headers(wire)) => headers::Headers::load(wire, strings).map(Self::Headers),
            None => Err(LoadError::UnknownPolicy),
        }
    }

    /// Adds what this policy reads to what its chain needs.
    pub(crate) fn needs(&self, needs: &mut Needs) {
        match self {
            Self::ApiKeyAuth(policy) => policy.needs(needs),
            Self::Headers(_) => {}
        }
    }

    pub(crate) fn run(&self, context: &mut Context<'_>) -> Flow {
        match self {
            Self::ApiKeyAuth(policy) => policy.run(context),
            Self::Headers(policy) => policy.run(context),
        }
    }
}
