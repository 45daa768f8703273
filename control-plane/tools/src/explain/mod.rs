//! Explains a route at a node: which steps run, where each of their fields comes from and what it overrides and, for a
//! request, the result of each step. It uses the same attachment that is served, and decides nothing.

mod destination;
mod reached;
mod show;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use postern_base::{
    diagnostic::{push_field, push_item, quote, suggestion},
    node::NodeIdentity,
};
use postern_compile::{
    attach::{self, Attached, Attachment, EffectiveStep, Part, Scope, Withheld, attach},
    gate::Refusal,
    keys::KeySets,
    lower::{self, PERMISSION_STEP, Strictness, lower},
    pipeline::CompileError,
};
use postern_engine::{Plan, event::Phase, matching::Unclear, run::Fate};
use postern_model::{Action, Bundle, Diagnostics, Inheritable, Level, Resource, Targeted};
use postern_release::catalogue::hide_field;
use prost::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

pub use self::destination::DestinationLine;
pub(crate) use self::reached::reached;
pub use self::reached::{EnvoyAnswer, ExplainError, Reached};
use crate::simulate::{Request, Simulated, simulate};

/// What is said of a route at a node.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The node.
    pub node: NodeIdentity,
    /// The route; empty for whatever is no route of its own.
    pub route: String,
    /// Where the request gets, as Envoy matches routes. Absent without a request, or if the node has no Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
    /// The gateway that declares it and the service that it goes to, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// Why every request is refused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
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
    /// `allow`, `deny` or `respond`; `unrouted` if Envoy answers before any step, since the request takes no route.
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

/// What is to be explained.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subject<'a> {
    /// The route, or an empty name for whatever is no route of its own. By default, the one that the request takes.
    pub route: Option<&'a str>,
    /// The Gateway that the request comes to. By default, the only one of the node.
    pub gateway: Option<&'a str>,
    /// A request to try.
    pub request: Option<&'a Request>,
}

/// Explains a route at a node, without any published key set.
pub fn explain(bundle: &Bundle, node: &NodeIdentity, subject: Subject<'_>) -> Result<Explanation, ExplainError> {
    explain_with(bundle, &KeySets::default(), node, subject)
}

/// Like [`explain`], with the published key sets that are known.
pub fn explain_with(
    bundle: &Bundle,
    keys: &KeySets,
    node: &NodeIdentity,
    subject: Subject<'_>,
) -> Result<Explanation, ExplainError> {
    let scope = Scope::of(bundle, node);
    let reached = match subject.request {
        Some(request) => reached_if_meant(&scope, subject, request)?,
        None => None,
    };
    if let (None, Some(reached @ Reached { answer: Some(answer), .. })) = (subject.route, &reached) {
        return Ok(unrouted(node, reached, answer));
    }
    let taken = reached.as_ref().and_then(|reached| reached.route.as_deref());
    let route = subject.route.or(taken).unwrap_or_default();
    // Steps see the path that Envoy has normalized.
    let request = subject.request.map(|request| match reached.as_ref().and_then(|reached| reached.path.clone()) {
        Some(path) if taken == Some(route) => Cow::Owned(Request { path, ..request.clone() }),
        _ => Cow::Borrowed(request),
    });
    let attachment = attach(&scope);
    // Without a Gateway, a `match` may find the route.
    let matched = match &request {
        Some(request) if subject.route.is_none() && reached.is_none() => matched_route(&scope, &attachment, request),
        _ => Ok(None),
    };
    let unclear = matched.is_err();
    let matched = matched.ok().flatten();
    let route = matched.as_deref().unwrap_or(route);
    let chain = attachment.routes.get(route).copied().or(attachment.default);
    let chain = chain.and_then(|chain| attachment.chains.get(chain));
    if let Some(chain) = chain {
        Diagnostics::reject(chain.errors.clone()).map_err(CompileError::from)?;
    }
    let decision = match request {
        None => None,
        Some(_) if unclear => None,
        Some(request) => {
            let plan = match scope.refuses_all {
                true => lower::refusal(&scope),
                false => lower(&scope, keys, &attachment, Strictness::Strict).map_err(CompileError::from)?.plan,
            };
            let plan = Plan::load(&plan.encode_to_vec()).map_err(|error| CompileError::Gate(Refusal::from(&error)))?;
            simulate(&Arc::new(plan), route, &request).map(|simulated| decision(chain, &simulated))
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
        refused: refused(&scope, chain),
        shadow: chain.is_some_and(|chain| chain.shadow),
        max_body_size: chain.map_or(0, |chain| chain.body_limit),
        permissions: chain.map(permissions).unwrap_or_default(),
        request: steps(chain, Phase::Request),
        response: steps(chain, Phase::Response),
        tracing: destination::traced(&scope),
        destinations: declared.map(|(gateway, route)| destination::lines(&scope, gateway, route)).unwrap_or_default(),
        decision,
        hint: match unclear {
            true => Some(UNCLEAR.to_owned()),
            false => hint(bundle, node, route).or_else(|| elsewhere(route, reached.as_ref())),
        },
        reached,
    })
}

/// Where the request gets. A question that names a route is answered even if it cannot be told.
fn reached_if_meant(
    scope: &Scope<'_>,
    subject: Subject<'_>,
    request: &Request,
) -> Result<Option<Reached>, ExplainError> {
    match reached(scope, subject.gateway, request) {
        Err(ExplainError::WhichGateway(_)) if subject.route.is_some() => Ok(None),
        reached => reached,
    }
}

/// The explanation of a request that takes no route.
fn unrouted(node: &NodeIdentity, reached: &Reached, answer: &EnvoyAnswer) -> Explanation {
    Explanation {
        node: node.clone(),
        route: String::new(),
        reached: Some(reached.clone()),
        declared: None,
        refused: None,
        shadow: false,
        max_body_size: 0,
        permissions: Vec::new(),
        request: Vec::new(),
        response: Vec::new(),
        destinations: Vec::new(),
        tracing: Vec::new(),
        decision: Some(DecisionLine {
            verdict: "unrouted".to_owned(),
            status: Some(answer.status),
            step: None,
            reason: Some(answer.reason.clone()),
            consumer: None,
            steps: Vec::new(),
        }),
        hint: None,
    }
}

/// A warning that the request does not take the route that is explained.
fn elsewhere(route: &str, reached: Option<&Reached>) -> Option<String> {
    let reached = reached.filter(|reached| reached.route.as_deref() != Some(route) && !route.is_empty())?;
    let gateway = quote(&reached.gateway);
    Some(match (&reached.route, &reached.answer) {
        (Some(taken), _) => {
            format!("this request takes route {} of Gateway {gateway}, not {}", quote(taken), quote(route))
        }
        (None, answer) => {
            let status = answer.as_ref().map_or(404, |answer| answer.status);
            format!("this request does not take route {}: Gateway {gateway} answers {status}", quote(route))
        }
    })
}

/// Why every request of a chain is refused, if it is.
fn refused(scope: &Scope<'_>, chain: Option<&Attached<'_>>) -> Option<String> {
    if scope.refuses_all {
        return Some("something that may guard this route could not be read".to_owned());
    }
    let policy = chain?.refused.first()?;
    let at = policy.diagnose("", "");
    Some(format!("{} stands for something that is not valid ({}:{})", policy.label(), at.file, at.line))
}

/// What is said of a request that no route is chosen for.
const UNCLEAR: &str =
    "the request is refused with 400: its path or its host can be read in several ways, which have different policies";

/// The route of a request that a `match` finds. `None` if none does.
fn matched_route(scope: &Scope<'_>, attachment: &Attachment<'_>, request: &Request) -> Result<Option<String>, Unclear> {
    // What is wrong with the chains is said where they are explained.
    let lowered = lower(scope, &KeySets::default(), attachment, Strictness::Permissive);
    let plan = lowered.ok().and_then(|lowered| Plan::load(&lowered.plan.encode_to_vec()).ok());
    let Some(plan) = plan else { return Ok(None) };
    Ok(plan.matched_route(&request.requested())?.map(|route| (**route).to_owned()))
}

/// A hint at the route that a user may have meant, if no resource names this one.
fn hint(bundle: &Bundle, node: &NodeIdentity, route: &str) -> Option<String> {
    let declared = bundle.gateways.iter().flat_map(|gateway| &gateway.spec.routes).map(|route| route.name.as_str());
    let targeted = bundle.route_policies.iter().filter_map(|policy| policy.spec.target_ref.route());
    let outbound: Vec<_> = bundle.outbound_routes(&node.mesh).collect();
    let known: Vec<_> = declared.chain(targeted).chain(outbound.iter().map(String::as_str)).collect();
    if route.is_empty() || known.contains(&route) {
        return None;
    }
    Some(format!("no resource names route `{route}`{}", suggestion(route, known.iter().copied())))
}

pub(crate) fn permissions(chain: &Attached<'_>) -> Vec<PermissionLine> {
    let line = |rule: &attach::Rule<'_>| PermissionLine {
        action: rule.action,
        source: attach::shown_source(rule.source.as_ref()),
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
