//! `RoutePolicy`: the chains of steps that guard a route.

use std::collections::{BTreeMap, HashMap};

use postern_engine::{
    event::Phase,
    policy,
    schema::{Field, Kind, Object},
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    diagnostic::{Report, quote},
    kinds::{self, KindSchema, Spec},
    path::Path,
    tree::{Node, Value},
    unit,
};

/// The whole document.
pub(super) const SCHEMA: KindSchema = KindSchema {
    name: "RoutePolicy",
    about: "The chains of steps that guard a route.",
    document: Object {
        fields: &[
            kinds::API_VERSION,
            kinds::kind(&["RoutePolicy"]),
            kinds::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "What runs where."),
        ],
        exactly_one_of: &[],
    },
};

const MODE: Kind = Kind::Choice(&["enforce", "shadow"]);
const STEPS: Kind = Kind::List { item: &Kind::Object(&STEP), at_least: 0 };

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", Kind::Object(&TARGET), "What the policy guards."),
        Field::optional("request", STEPS, "The steps that run before the request goes upstream, in order."),
        Field::optional("response", STEPS, "The steps that run before the response goes downstream, in order."),
        Field::optional("mode", MODE, "`shadow` evaluates and reports the chains, but enforces nothing."),
        Field::optional(
            "maxBodySize",
            Kind::Size,
            "The largest request body that is buffered for a step that reads it; 256KiB by default, 413 past it.",
        ),
    ],
    exactly_one_of: &[],
};

const TARGET: Object = Object {
    fields: &[
        Field::required("kind", Kind::Choice(TARGET_KINDS), "What kind of thing it is."),
        Field::required("name", Kind::Name, "What it is called."),
    ],
    exactly_one_of: &[],
};

/// From least to most specific; the last two are one level.
const TARGET_KINDS: &[&str] =
    &["Mesh", "MeshSubset", "Service", "ServiceSubset", "Proxy", "MeshGatewayRoute", "HTTPRoute"];
const SUPPORTED_TARGET_KINDS: &[&str] = &["MeshGatewayRoute", "HTTPRoute"];

const STEP: Object = Object {
    fields: &[
        Field::optional("name", Kind::Name, "The name, unique in the chain; the policy's name if left out."),
        Field::required("policy", Kind::Text, "The policy to run."),
        Field::optional("params", Kind::Params, "The policy's parameters."),
        Field::optional("when", Kind::Expression, "A CEL expression: the step runs only if it is true."),
        Field::optional(
            "onFailure",
            Kind::Choice(&["deny", "continue", "skipRemaining"]),
            "What becomes of the chain when the step cannot decide; `deny` by default.",
        ),
        Field::optional("mode", MODE, "`shadow` evaluates and reports the step, but does not enforce it."),
        Field::optional(
            "denyWith",
            Kind::Object(&DENY_WITH),
            "How the step's denials look; what is left out stays as the policy says it.",
        ),
    ],
    exactly_one_of: &[],
};

const DENY_WITH: Object = Object {
    fields: &[
        Field::optional("status", Kind::Integer { min: 400, max: 599 }, "The status."),
        Field::optional(
            "headers",
            Kind::Map { key: &Kind::HeaderName, value: &Kind::HeaderValue },
            "Headers, in place of those of the same name.",
        ),
        Field::optional("body", Kind::Text, "The body, as `text/plain` unless `headers` says otherwise."),
    ],
    exactly_one_of: &[],
};

/// The chains of steps that guard a route: at least one of them holds a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoutePolicy {
    /// The route.
    pub target_ref: TargetRef,
    /// The steps that run before the request goes upstream; their names are unique.
    #[serde(default)]
    pub request: Vec<Step>,
    /// The steps that run before the response goes downstream; their names are unique.
    #[serde(default)]
    pub response: Vec<Step>,
    /// Whether the chains are enforced.
    #[serde(default)]
    pub mode: Mode,
    /// The largest request body that is buffered, in bytes.
    #[serde(default = "default_body_size", deserialize_with = "unit::deserialize_size")]
    pub max_body_size: u32,
}

const fn default_body_size() -> u32 {
    256 * 1024
}

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

/// What a policy is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRef {
    /// What kind of thing it is.
    pub kind: TargetKind,
    /// What it is called. No Gateway need declare it: in overlay mode, Envoy has routes of its own.
    pub name: String,
}

/// The kinds of things that a policy can be attached to. Both mean an Envoy route by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetKind {
    /// A route of a Gateway.
    MeshGatewayRoute,
    /// Any HTTP route.
    #[serde(rename = "HTTPRoute")]
    HttpRoute,
}

/// A policy with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
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
    /// Whether the step is enforced.
    pub mode: Mode,
    /// How its denials look, if not as the policy says.
    pub deny_with: Option<DenyWith>,
}

/// What takes the place of a policy's own answer to a caller that it denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenyWith {
    /// The status.
    pub status: Option<u16>,
    /// Headers, in place of those of the same name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
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
    #[serde(default)]
    mode: Mode,
    deny_with: Option<DenyWith>,
}

impl From<Written> for Step {
    fn from(Written { name, policy, params, when, on_failure, mode, deny_with }: Written) -> Self {
        let name = name.unwrap_or_else(|| policy.clone());
        Self { name, policy, params: Json::Object(params), when, on_failure, mode, deny_with }
    }
}

impl Spec for RoutePolicy {
    const SCHEMA: &'static KindSchema = &SCHEMA;

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target(spec, path, report);
        let chains = ["request", "response"].map(|name| spec.get(name));
        let empty = |chain: Option<&Node>| {
            chain.is_none_or(|chain| matches!(&chain.value, Value::List(steps) if steps.is_empty()))
        };
        if matches!(spec.value, Value::Map(_)) && chains.into_iter().all(empty) {
            report.error(spec.at, path, "expected at least one step in `request` or `response`");
        }
        let [request, response] = chains.map(|chain| chain.map_or(&[][..], Node::items));
        chain(request, Phase::Request, &path.field("request"), report);
        chain(response, Phase::Response, &path.field("response"), report);
    }
}

fn target(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(node) = spec.get("targetRef").and_then(|target| target.get("kind")) else { return };
    let Some(kind) = node.text() else { return };
    if TARGET_KINDS.contains(&kind) && !SUPPORTED_TARGET_KINDS.contains(&kind) {
        let message = format!("kind {} is not supported yet", quote(kind));
        report.error(node.at, &path.field("targetRef").field("kind"), message);
    }
}

fn chain(steps: &[Node], phase: Phase, path: &Path<'_>, report: &mut Report<'_>) {
    let mut lines = HashMap::new();
    for (index, step) in steps.iter().enumerate() {
        let path = path.item(index);
        let policy = step.get("policy").and_then(Node::text);
        if let Some(schema) = policy.and_then(policy::schema)
            && !schema.phases.contains(&phase)
        {
            let message = format!("policy {} cannot run in `{}`", quote(schema.name), phase_name(phase));
            report.error(step.at, &path, message);
        }
        let Some(name) = step.get("name").map_or(policy, Node::text) else { continue };
        if let Some(line) = lines.insert(name, step.at.line) {
            let message = format!(
                "step {} is already in this chain (line {line}): two steps of one policy need a `name` each",
                quote(name)
            );
            report.error(step.at, &path, message);
        }
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Request => "request",
        Phase::Response => "response",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{File, read};

    fn read_spec(spec: &str) -> Result<RoutePolicy, String> {
        let head = "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {name: users-api}\nspec:";
        let bytes = format!("{head}{spec}").into_bytes();
        let mut bundle = read(&[File { name: "p".to_owned(), bytes }]).map_err(|errors| errors.to_string())?;
        Ok(bundle.route_policies.remove(0).spec)
    }

    fn check(spec: &str, expect: &[&str]) {
        let errors = read_spec(spec).err().unwrap_or_default();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn reads_everything() {
        let policy = read_spec(
            "
  targetRef: { kind: HTTPRoute, name: users }
  request:
    - policy: apiKeyAuth
      params: { header: X-Api-Key }
    - { name: clean, policy: headers, params: { remove: [X-Internal] } }
  response:
    - policy: headers",
        )
        .unwrap();
        assert_eq!(policy.target_ref, TargetRef { kind: TargetKind::HttpRoute, name: "users".to_owned() });
        let step = |name: &str, policy: &str, params| Step {
            name: name.to_owned(),
            policy: policy.to_owned(),
            params,
            when: None,
            on_failure: None,
            mode: Mode::Enforce,
            deny_with: None,
        };
        let request = [
            step("apiKeyAuth", "apiKeyAuth", json!({"header": "X-Api-Key"})),
            step("clean", "headers", json!({"remove": ["X-Internal"]})),
        ];
        assert_eq!(policy.request, request);
        assert_eq!(policy.response, [step("headers", "headers", json!({}))]);
    }

    #[test]
    fn wants_a_step() {
        let message = "p:5:3: RoutePolicy `users-api`: spec: expected at least one step in `request` or `response`";
        check("\n  targetRef: {kind: HTTPRoute, name: users}", &[message]);
        check("\n  targetRef: {kind: HTTPRoute, name: users}\n  request: []\n  response: []", &[message]);
    }

    #[test]
    fn knows_target_kinds_that_are_not_supported_yet() {
        for kind in ["Mesh", "MeshSubset", "Service", "ServiceSubset", "Proxy"] {
            let message =
                format!("p:4:26: RoutePolicy `users-api`: spec.targetRef.kind: kind `{kind}` is not supported yet");
            check(&format!(" {{targetRef: {{kind: {kind}, name: a}}, request: [{{policy: headers}}]}}"), &[&message]);
        }
        check(" {targetRef: {kind: MeshGatewayRoute, name: a}, request: [{policy: headers}]}", &[]);
        check(
            " {targetRef: {kind: HttpRoutes, name: a}, request: [{policy: headers}]}",
            &[
                "p:4:26: RoutePolicy `users-api`: spec.targetRef.kind: unknown value `HttpRoutes`: did you mean `HTTPRoute`?",
            ],
        );
    }

    #[test]
    fn wants_unique_step_names_in_a_chain() {
        check(
            "
  targetRef: { kind: HTTPRoute, name: users }
  request:
    - policy: headers
    - policy: headers
    - { policy: headers, name: other }
  response:
    - policy: headers",
            &["p:8:7: RoutePolicy `users-api`: spec.request[1]: step `headers` is already in this chain (line 7): \
               two steps of one policy need a `name` each"],
        );
    }

    #[test]
    fn refuses_a_policy_in_a_phase_that_it_does_not_support() {
        check(
            "
  targetRef: { kind: HTTPRoute, name: users }
  response:
    - policy: apiKeyAuth
      params: { header: x-api-key }",
            &["p:7:7: RoutePolicy `users-api`: spec.response[0]: policy `apiKeyAuth` cannot run in `response`"],
        );
    }

    #[test]
    fn reports_all_errors_of_a_policy_at_once() {
        check(
            "
  targetRef: { kind: Mesh, nme: users }
  request:
    - policy: apiKeyAth
      params: { header: x-api-key }
    - policy: headers
      params:
        set: { X-A: a, x-a: b }
        remove: [host]
      when: true
  response: {}",
            &[
                "p:5:14: RoutePolicy `users-api`: spec.targetRef.name: missing required field `name`",
                "p:5:22: RoutePolicy `users-api`: spec.targetRef.kind: kind `Mesh` is not supported yet",
                "p:5:28: RoutePolicy `users-api`: spec.targetRef.nme: unknown field `nme`: did you mean `name`?",
                "p:7:15: RoutePolicy `users-api`: spec.request[0].policy: unknown policy `apiKeyAth`: did you mean `apiKeyAuth`?",
                "p:11:24: RoutePolicy `users-api`: spec.request[1].params.set.x-a: header `x-a` is named twice: `X-A` on line 11",
                "p:12:18: RoutePolicy `users-api`: spec.request[1].params.remove[0]: expected the name of a header \
                 other than `host`, found `host`",
                "p:13:13: RoutePolicy `users-api`: spec.request[1].when: expected a string, found a boolean: put it \
                 in quotes",
                "p:14:13: RoutePolicy `users-api`: spec.response: expected a list, found a mapping",
            ],
        );
    }
}
