//! A step as a user wrote it: a policy with its parameters, and what decides whether it is enforced.

use std::collections::BTreeMap;

use postern_base::diagnostic::quote;
use postern_engine::policy;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Whether a step or chain is enforced, or only evaluated and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It reports what it would decide.
    Shadow,
}

/// What becomes of a chain when a step cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// The request is denied.
    Deny,
    /// The chain goes on with the next step.
    Continue,
    /// The rest of the chain is left out.
    SkipRemaining,
}

/// A policy with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Written", rename_all = "camelCase")]
pub struct Step {
    /// The name, unique in its chain.
    pub name: String,
    /// The name of a policy that exists and supports the chain's phase.
    pub policy: String,
    /// A mapping that fits the policy's schema, as the user wrote it: header names can be of any case.
    pub params: Json,
    /// The condition under which the step runs.
    pub when: Option<String>,
    /// What becomes of the chain when the step cannot decide, if the user says.
    pub on_failure: Option<OnFailure>,
    /// Whether the step is enforced, if the user says.
    pub mode: Option<Mode>,
    /// What it takes from a less specific step of its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inherit: Vec<Inheritable>,
    /// How its denials look, if not as the policy says.
    pub deny_with: Option<DenyWith>,
    /// Whether it has every parameter that its policy requires.
    #[serde(skip)]
    complete: bool,
}

/// A field that decides whether a step is enforced. Merging takes it from the most specific step alone, unless that asks
/// for the others': nothing opens a route by being merged into its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Inheritable {
    /// The condition.
    When,
    /// What becomes of the chain when the step cannot decide.
    OnFailure,
    /// Whether the step is enforced.
    Mode,
}

impl Inheritable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::When, Self::OnFailure, Self::Mode];

    /// The field of a step.
    pub fn field(self) -> &'static str {
        match self {
            Self::When => "when",
            Self::OnFailure => "onFailure",
            Self::Mode => "mode",
        }
    }
}

/// What takes the place of a policy's own answer to a caller that it denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenyWith {
    /// The status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Headers, in place of those of the same name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    name: Option<String>,
    policy: String,
    #[serde(default)]
    params: serde_json::Map<String, Json>,
    when: Option<String>,
    on_failure: Option<OnFailure>,
    mode: Option<Mode>,
    #[serde(default)]
    inherit: Vec<Inheritable>,
    deny_with: Option<DenyWith>,
}

impl From<Written> for Step {
    fn from(Written { name, policy, params, when, on_failure, mode, inherit, deny_with }: Written) -> Self {
        let name = name.unwrap_or_else(|| policy.clone());
        let params = Json::Object(params);
        let complete = missing(&policy, &params).is_none();
        Self { name, policy, params, when, on_failure, mode, inherit, deny_with, complete }
    }
}

impl Step {
    /// What it lacks; `None` if it has every parameter that its policy requires.
    pub fn missing(&self) -> Option<String> {
        if self.complete { None } else { missing(&self.policy, &self.params) }
    }
}

/// What is missing at the top of parameters that fit their schema otherwise.
fn missing(policy: &str, params: &Json) -> Option<String> {
    let schema = &policy::schema(policy)?.params;
    let has = |name: &str| params.get(name).is_some();
    if let Some(field) = schema.fields.iter().find(|field| field.required && !has(field.name)) {
        return Some(format!("missing required field {}", quote(field.name)));
    }
    let one_of = schema.exactly_one_of;
    (!one_of.is_empty() && !one_of.iter().any(|name| has(name))).then(|| {
        let names: Vec<_> = one_of.iter().map(|name| quote(name)).collect();
        format!("missing one of {}", names.join(", "))
    })
}
