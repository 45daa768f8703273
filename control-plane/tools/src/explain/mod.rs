//! Explains a route at a node: which steps run, where each of their fields comes from and what it overrides and, for a
//! request, the result of each step. It uses the same attachment that is served, and decides nothing.

mod destination;
mod show;

use std::{collections::BTreeMap, sync::Arc};

use postern_base::{
    diagnostic::{push_field, push_item, suggestion},
    node::NodeIdentity,
};
use postern_compile::{
    attach::{self, Attached, EffectiveStep, Part, Scope, Withheld, attach},
    gate::Refusal,
    keys::KeySets,
    lower::{Lowered, PERMISSION_STEP, Strictness, lower},
    pipeline::CompileError,
};
use postern_engine::{Plan, event::Phase, run::Fate};
use postern_model::{Action, Bundle, Diagnostics, Inheritable, Level, Resource, Targeted};
use postern_release::catalogue::hide_field;
use prost::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

pub use self::destination::DestinationLine;
use crate::simulate::{Request, Simulated, simulate};

/// What is said of a route at a node.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The node.
    pub node: NodeIdentity,
    /// The route; empty for whatever is no route of its own.
    pub route: String,
    /// The gateway that declares it and the service that it goes to, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// Whether nothing is enforced.
    pub shadow: bool,
    /// The largest body that is buffered.
    pub max_body_size: u32,
    /// Who may call, the first that fits decides; empty if nobody says.
    pub permissions: Vec<PermissionLine>,
    /// The steps before the request goes upstream.
    pub request: Vec<StepLine>,
    /// The steps before the response goes downstream.
    pub response: Vec<StepLine>,
    /// What holds for calls of its services.
    pub destinations: Vec<DestinationLine>,
    /// What is traced at the node.
    pub tracing: Vec<FieldLine>,
    /// What a request would meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionLine>,
    /// What may have been meant, if no resource names the route. An Envoy with routes of its own may have it all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Explanation {
    /// Replaces credentials, for readers who may not read the files that have them.
    pub fn hide_credentials(&mut self) {
        fn of_field(line: &mut FieldLine) {
            hide_field(&line.field, &mut line.value);
            line.over.iter_mut().for_each(|over| hide_field(&line.field, &mut over.value));
        }
        for step in self.request.iter_mut().chain(&mut self.response) {
            step.fields.iter_mut().for_each(of_field);
            step.withheld.iter_mut().for_each(|line| hide_field(&line.field, &mut line.value));
        }
    }
}

/// Where a route is declared.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Declared {
    /// The gateway.
    pub gateway: String,
    /// The services.
    pub services: Vec<String>,
}

/// Where something is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OriginLine {
    /// The resource: "RoutePolicy `users-api`".
    pub resource: String,
    /// How specific its target is.
    pub level: Level,
    /// Whether it cannot be overridden from below.
    #[serde(rename = "override")]
    pub overrides: bool,
    /// The file.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The field.
    pub field: String,
}

/// One rule of the permissions.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PermissionLine {
    /// What becomes of the requests.
    pub action: Action,
    /// Of these sources.
    pub source: String,
    /// Where it is written.
    pub origin: OriginLine,
}

/// One step.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepLine {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// The sources that it is for; all traffic if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Whether it stands in for the one before it, for other sources.
    pub alternative: bool,
    /// Where it is written, the first to be heard first.
    pub origins: Vec<OriginLine>,
    /// What it says, field by field.
    pub fields: Vec<FieldLine>,
    /// What less specific steps of its name say and it does not inherit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<WithheldLine>,
}

/// A field that is not inherited.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WithheldLine {
    /// Its path: `when`.
    pub field: String,
    /// What the less specific step says.
    pub value: Json,
    /// Where.
    pub origin: OriginLine,
}

/// One field.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FieldLine {
    /// Its path: `params.requests`.
    pub field: String,
    /// Its value.
    pub value: Json,
    /// Where it is written.
    pub origin: OriginLine,
    /// Whether it decides if the step is enforced, and comes from a less specific one because `inherit` asks for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inherited: bool,
    /// What it takes the place of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<OverLine>,
}

/// What a field takes the place of.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct OverLine {
    /// The value; null if it is another field that excludes this one.
    pub value: Json,
    /// Where it is written.
    pub origin: OriginLine,
}

/// What a request meets.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DecisionLine {
    /// `allow`, `deny` or `respond`.
    pub verdict: String,
    /// The status that the caller gets, if it is ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The step that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The consumer that the caller proved to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// What became of each step, in order.
    pub steps: Vec<FateLine>,
}

/// What became of a step.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FateLine {
    /// The step.
    pub step: String,
    /// In one word: `passed`, `denied`, `responded`, `failed`, `otherSource`, `conditionFalse`, `notReached`.
    pub fate: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Explains a route at a node, without any published key set.
pub fn explain(
    bundle: &Bundle,
    node: &NodeIdentity,
    route: &str,
    request: Option<&Request>,
) -> Result<Explanation, CompileError> {
    explain_with(bundle, &KeySets::default(), node, route, request)
}

/// Like [`explain`], with the published key sets that are known.
pub fn explain_with(
    bundle: &Bundle,
    keys: &KeySets,
    node: &NodeIdentity,
    route: &str,
    request: Option<&Request>,
) -> Result<Explanation, CompileError> {
    let scope = Scope::of(bundle, node);
    let attachment = attach(&scope);
    let chain = attachment.routes.get(route).copied().or(attachment.default);
    let chain = chain.and_then(|chain| attachment.chains.get(chain));
    if let Some(chain) = chain {
        Diagnostics::reject(chain.errors.clone())?;
    }
    let decision = match request {
        None => None,
        Some(request) => {
            let Lowered { plan, .. } = lower(&scope, keys, &attachment, Strictness::Strict)?;
            let plan = Plan::load(&plan.encode_to_vec()).map_err(|error| CompileError::Gate(Refusal::from(&error)))?;
            simulate(&Arc::new(plan), route, request).map(|simulated| decision(chain, &simulated))
        }
    };
    let declared = scope.gateways.iter().find_map(|gateway| {
        let found = gateway.spec.routes.iter().find(|found| found.name == route)?;
        Some((gateway, found))
    });
    Ok(Explanation {
        node: node.clone(),
        route: route.to_owned(),
        declared: declared
            .map(|(gateway, route)| Declared { gateway: gateway.name.clone(), services: route.services() }),
        shadow: chain.is_some_and(|chain| chain.shadow),
        max_body_size: chain.map_or(0, |chain| chain.body_limit),
        permissions: chain.map(permissions).unwrap_or_default(),
        request: steps(chain, Phase::Request),
        response: steps(chain, Phase::Response),
        tracing: destination::traced(&scope),
        destinations: declared.map(|(gateway, route)| destination::lines(&scope, gateway, route)).unwrap_or_default(),
        decision,
        hint: hint(bundle, route),
    })
}

/// A hint at the route that a user may have meant, if no resource names this one.
fn hint(bundle: &Bundle, route: &str) -> Option<String> {
    let declared = bundle.gateways.iter().flat_map(|gateway| &gateway.spec.routes).map(|route| route.name.as_str());
    let targeted = bundle.route_policies.iter().filter_map(|policy| policy.spec.target_ref.route());
    let known: Vec<_> = declared.chain(targeted).collect();
    if route.is_empty() || known.contains(&route) {
        return None;
    }
    Some(format!("no resource names route `{route}`{}", suggestion(route, known.iter().copied())))
}

pub(crate) fn permissions(chain: &Attached<'_>) -> Vec<PermissionLine> {
    let line = |rule: &attach::Rule<'_>| PermissionLine {
        action: rule.action,
        source: rule.source.to_string(),
        origin: origin(rule.permission, &format!("spec.from[{}]", rule.entry)),
    };
    chain.permissions.iter().map(line).collect()
}

pub(crate) fn steps(chain: Option<&Attached<'_>>, phase: Phase) -> Vec<StepLine> {
    let line = |step: &EffectiveStep<'_>| StepLine {
        name: step.step.name.clone(),
        policy: step.step.policy.clone(),
        source: step.source.as_ref().map(ToString::to_string),
        alternative: step.alternative,
        origins: step.parts.iter().map(|part| origin(part.policy, &part.field())).collect(),
        fields: fields(step),
        withheld: step.withheld.iter().filter_map(|withheld| withheld_line(step, withheld)).collect(),
    };
    chain.map_or(&[][..], |chain| chain.steps(phase)).iter().map(line).collect()
}

fn withheld_line(step: &EffectiveStep<'_>, Withheld { field, part }: &Withheld) -> Option<WithheldLine> {
    let OverLine { value, origin } = over_line(step.parts.get(*part)?, field);
    Some(WithheldLine { field: field.clone(), value, origin })
}

fn fields(step: &EffectiveStep<'_>) -> Vec<FieldLine> {
    let mut leaves = Vec::new();
    for (name, value) in object(&*step.step) {
        if name != "name" {
            flatten(push_field(String::new(), &name), value, &mut leaves);
        }
    }
    let same_policy = step.parts.iter().all(|part| part.step.policy == step.step.policy);
    let line = |(field, value): (String, Json)| {
        let part = step.part_of(&field).filter(|_| field != "policy" || !same_policy)?;
        let provided = step.fields.provider(&field).filter(|_| !step.fields.is_empty());
        let inherited = provided.is_some_and(|provided| provided.by > 0);
        let over = provided.into_iter().flat_map(|provided| &provided.over).filter_map(|part| step.parts.get(*part));
        Some(FieldLine {
            origin: origin(part.policy, &format!("{}.{field}", part.field())),
            over: over.map(|part| over_line(part, &field)).collect(),
            inherited: inherited && Inheritable::ALL.iter().any(|own| own.field() == field),
            field,
            value,
        })
    };
    leaves.into_iter().filter_map(line).collect()
}

fn over_line(part: &Part<'_>, field: &str) -> OverLine {
    let mut leaves = Vec::new();
    for (name, value) in object(part.step) {
        flatten(push_field(String::new(), &name), value, &mut leaves);
    }
    let value = leaves.into_iter().find(|(name, _)| name == field).map(|(_, value)| value);
    OverLine { value: value.unwrap_or_default(), origin: origin(part.policy, &format!("{}.{field}", part.field())) }
}

pub(crate) fn object<T: Serialize>(value: &T) -> Map<String, Json> {
    match serde_json::to_value(value) {
        Ok(Json::Object(mut fields)) => {
            fields.retain(|_, value| !value.is_null());
            fields
        }
        _ => Map::new(),
    }
}

/// The leaves of a value, by path. Lists are leaves, as in merging, except lists of objects, which are hard to read in
/// one line.
pub(crate) fn flatten(path: String, value: Json, into: &mut Vec<(String, Json)>) {
    match value {
        Json::Object(fields) => {
            for (name, value) in fields {
                flatten(push_field(path.clone(), &name), value, into);
            }
        }
        Json::Array(items) if items.iter().any(Json::is_object) => {
            for (index, value) in items.into_iter().enumerate() {
                flatten(push_item(path.clone(), index), value, into);
            }
        }
        value => into.push((path, value)),
    }
}

fn origin<T: Targeted>(resource: &Resource<T>, field: &str) -> OriginLine {
    let at = resource.diagnose(field, "");
    OriginLine {
        resource: resource.label(),
        level: resource.spec.target_ref().level(),
        overrides: resource.spec.overrides(),
        file: at.file,
        line: at.line,
        field: field.to_owned(),
    }
}

fn decision(chain: Option<&Attached<'_>>, simulated: &Simulated) -> DecisionLine {
    let decision = &simulated.decision;
    let mut places: Vec<String> = Vec::new();
    if let Some(chain) = chain {
        places.extend((!chain.permissions.is_empty()).then(|| PERMISSION_STEP.to_owned()));
        // An audit log decides nothing and is left out.
        let steps = chain.request.iter().filter(|step| step.step.policy != "auditLog");
        places.extend(steps.map(|step| step.step.name.clone()));
    }
    let fates: BTreeMap<usize, Fate> = simulated.trace.iter().map(|traced| (traced.place, traced.fate)).collect();
    let line = |(place, step): (usize, &String)| {
        let (fate, reason) = match fates.get(&place) {
            None => ("notReached", None),
            Some(Fate::Passed) => ("passed", None),
            Some(Fate::ConditionFalse) => ("conditionFalse", None),
            Some(Fate::OtherSource) => ("otherSource", None),
            Some(Fate::Responded) => ("responded", None),
            Some(Fate::Denied(reason)) => ("denied", Some((*reason).to_owned())),
            Some(Fate::Failed(reason)) => ("failed", Some((*reason).to_owned())),
        };
        FateLine { step: step.clone(), fate: fate.to_owned(), reason }
    };
    DecisionLine {
        verdict: decision.verdict.word().to_owned(),
        status: simulated.status(),
        step: decision.step.as_deref().map(str::to_owned),
        reason: decision.reason.map(str::to_owned),
        consumer: decision.consumer.as_deref().map(str::to_owned),
        steps: places.iter().enumerate().map(line).collect(),
    }
}
