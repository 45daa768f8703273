//! A step as a user wrote it: a policy with parameters, and the fields that decide whether it is enforced.

use std::collections::BTreeMap;

use postern_base::{derived::Derived, diagnostic::quote};
use postern_engine::policy;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Whether a step or chain is enforced, or only evaluated and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Enforced.
    #[default]
    Enforce,
    /// Evaluated and reported only.
    Shadow,
}

/// What happens when a step fails, that is, cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// The request is denied.
    Deny,
    /// The next step runs.
    Continue,
    /// The remaining steps of the chain are skipped.
    SkipRemaining,
}

/// One step of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Written", rename_all = "camelCase")]
pub struct Step {
    /// The name, unique in its chain.
    pub name: String,
    /// The name of a policy that exists in the chain's phase.
    pub policy: String,
    /// The parameters, valid by the policy's schema and as the user wrote them: header names can be in any case.
    pub params: Json,
    /// The condition under which the step runs, in CEL.
    pub when: Option<String>,
    /// What happens when the step fails. `None` means the default.
    pub on_failure: Option<OnFailure>,
    /// Whether the step is enforced. `None` means the mode of its resource.
    pub mode: Option<Mode>,
    /// The fields that are inherited from a less specific step of its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inherit: Vec<Inheritable>,
    /// Changes to the response when the step denies.
    pub deny_with: Option<DenyWith>,
    /// Whether all parameters are there that the policy requires.
    #[serde(skip)]
    complete: bool,
    /// What is made of the step when it is compiled, kept as long as its document does not change.
    #[serde(skip)]
    pub derived: Derived,
}

/// A field that decides whether a step is enforced. Merging takes it from the most specific step alone, unless that
/// step inherits it explicitly: merging alone never opens a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Inheritable {
    /// `when`.
    When,
    /// `onFailure`.
    OnFailure,
    /// `mode`.
    Mode,
}

impl Inheritable {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::When, Self::OnFailure, Self::Mode];

    /// The name of the field.
    pub fn field(self) -> &'static str {
        match self {
            Self::When => "when",
            Self::OnFailure => "onFailure",
            Self::Mode => "mode",
        }
    }
}

/// Replaces parts of the response when a step denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenyWith {
    /// The status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Headers, which replace those of the same name.
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
        Self { name, policy, params, when, on_failure, mode, inherit, deny_with, complete, derived: Derived::default() }
    }
}

impl Step {
    /// A message about the parameters that are missing. `None` if all are there that the policy requires.
    pub fn missing(&self) -> Option<String> {
        if self.complete { None } else { missing(&self.policy, &self.params) }
    }
}

/// The first missing parameter as a message. `None` if none is missing.
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
