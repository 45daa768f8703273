//! `RoutePolicy`: chains of steps for the routes that it is attached to.

use std::collections::HashMap;

use postern_base::{
    diagnostic::{Path, quote},
    yaml::{Node, Value},
};
use postern_engine::{
    event::Phase,
    header::HeaderUse,
    policy,
    schema::{Field, Kind, Object},
};
use serde::{Deserialize, Serialize};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    overlay_match::{self, OverlayMatch},
    public::{self, Public},
    report::Report,
    step::{Mode, Step},
    target_ref::{self, Reach, TargetRef, Targeted},
    unit,
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "RoutePolicy",
    about: "The chains of steps that guard what it is attached to: a mesh, services, proxies, a route.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["RoutePolicy"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "What runs where."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::MayOpen,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: user-api }
spec:
  targetRef: { kind: HTTPRoute, name: user }
  request:
    - policy: apiKeyAuth
      params: { header: x-api-key }
    - policy: rateLimit
      params: { requests: 100, per: 1s, burst: 20, key: consumer.name }
      when: request.method != 'OPTIONS'
  response:
    - policy: securityHeaders
";

const MODE: Kind = Kind::Choice(&["enforce", "shadow"]);
const STEPS: Kind = Kind::List { item: &Kind::Object(&STEP), at_least: 0 };

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::TARGET, "What the policy guards."),
        Field::optional(
            "match",
            Kind::Object(&overlay_match::SCHEMA),
            "Which requests take the route, where it has no name in Envoy; only for an `HTTPRoute` of an Envoy with routes of \
             its own, and in one policy of the route. Of all that fit, the most specific counts: by host, then by path \
             (whole paths before `regex` before starts of paths; then text before `{name}`, segment by segment, and the \
             longer start), then by method. A request is refused with 400 if its spellings come to different chains.",
        ),
        kind::OVERRIDE,
        Field::optional("request", STEPS, "The steps that run before the request goes upstream, in order."),
        Field::optional("response", STEPS, "The steps that run before the response goes downstream, in order."),
        Field::optional(
            "from",
            Kind::List { item: &Kind::Object(&FROM), at_least: 1 },
            "Steps for some sources only. Where several entries have a step of one name, the first counts.",
        ),
        Field::optional(
            "to",
            Kind::List { item: &Kind::Object(&TO), at_least: 1 },
            "Steps for some destinations only. Where several entries have a step of one name, the first counts.",
        ),
        Field::optional("mode", MODE, "`shadow` evaluates and reports the chains, but enforces nothing."),
        Field::optional(
            "maxBodySize",
            Kind::Size,
            "The largest request body that is buffered for a step that reads it; 256KiB by default, 413 past it.",
        ),
        Field::optional(
            "public",
            public::PUBLIC,
            "The route that it is attached to is meant to be open: it needs no authentication. Only for a route; a policy \
             that says it needs no steps.",
        ),
    ],
    exactly_one_of: &[],
};

const FROM: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::SOURCE, "Where the traffic comes from, by its certificate."),
        Field::optional("request", STEPS, "Steps for its requests, in order."),
        Field::optional("response", STEPS, "Steps for the responses to it, in order."),
    ],
    exactly_one_of: &[],
};

const TO: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::DESTINATION, "Where the traffic goes."),
        Field::optional("request", STEPS, "Steps for its requests, in order."),
        Field::optional("response", STEPS, "Steps for the responses to it, in order."),
    ],
    exactly_one_of: &[],
};

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
            "inherit",
            Kind::List { item: &Kind::Choice(INHERITABLE), at_least: 1 },
            "What it takes from a less specific step of its name if it does not say it itself. These decide whether the \
             step is enforced, so they are not inherited unless they are listed here.",
        ),
        Field::optional(
            "denyWith",
            Kind::Object(&DENY_WITH),
            "How the step's denials look; what is left out stays as the policy says it.",
        ),
    ],
    exactly_one_of: &[],
};

/// The names of [`Inheritable`]'s variants.
const INHERITABLE: &[&str] = &["when", "onFailure", "mode"];

const DENY_WITH: Object = Object {
    fields: &[
        Field::optional("status", Kind::Integer { min: 400, max: 599 }, "The status."),
        Field::optional(
            "headers",
            Kind::Map { key: &Kind::EditedHeader(HeaderUse::Set), value: &Kind::HeaderValue },
            "Headers, in place of those of the same name.",
        ),
        Field::optional("body", Kind::Text, "The body, as `text/plain` unless `headers` says otherwise."),
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `RoutePolicy`: it has at least one step, or is `public`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoutePolicy {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// Which requests take the target, if it is a route without a name in Envoy.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub matching: Option<OverlayMatch>,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Steps for all traffic.
    #[serde(flatten)]
    pub chains: Chains,
    /// Steps for some sources.
    #[serde(default)]
    pub from: Vec<Directed>,
    /// Steps for some destinations.
    #[serde(default)]
    pub to: Vec<Directed>,
    /// Whether the chains are enforced, or only evaluated and reported.
    #[serde(default)]
    pub mode: Mode,
    /// The largest request body that is buffered, in bytes. `None` means the default.
    #[serde(default, deserialize_with = "unit::deserialize_some_size")]
    pub max_body_size: Option<u32>,
    /// The declaration that its route needs no authentication. The target must be a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<Public>,
    /// Whether it stands in for resources that are invalid, so that its routes answer `Settings.policyNotSupported`. No
    /// document can say it: see [`Bundle::refuse`](super::Bundle::refuse).
    #[serde(skip_deserializing, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// The steps of both phases.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chains {
    /// The steps of the request phase, before the request is sent upstream. Names are unique.
    #[serde(default)]
    pub request: Vec<Step>,
    /// The steps of the response phase, before the response is sent downstream. Names are unique.
    #[serde(default)]
    pub response: Vec<Step>,
}

impl Chains {
    /// The steps of one phase.
    pub fn of(&self, phase: Phase) -> &[Step] {
        match phase {
            Phase::Request => &self.request,
            Phase::Response => &self.response,
        }
    }
}

/// Steps for traffic from some sources, or to some destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directed {
    /// The sources or destinations.
    pub target_ref: TargetRef,
    /// The steps.
    #[serde(flatten)]
    pub chains: Chains,
}

impl Targeted for RoutePolicy {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Spec for RoutePolicy {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        let mut steps = chains(spec, path, report);
        if let Some(target) = spec.get("targetRef") {
            target_ref::rules(target, &path.field("targetRef"), report);
        }
        for list in ["from", "to"] {
            for (index, entry) in spec.get(list).map_or(&[][..], Node::items).iter().enumerate() {
                let list = path.field(list);
                let path = list.item(index);
                if let Some(target) = entry.get("targetRef") {
                    target_ref::rules(target, &path.field("targetRef"), report);
                }
                refuse_audits(entry, &path, report);
                if chains(entry, &path, report) == 0 && matches!(entry.value, Value::Map(_)) {
                    report.error(entry.at, &path, "expected at least one step in `request` or `response`");
                }
                steps = steps.saturating_add(1);
            }
        }
        overlay_match::rules(spec, path, report);
        public::rules(spec, path, report);
        public_route(spec, path, report);
        if steps == 0 && spec.get("public").is_none() && matches!(spec.value, Value::Map(_)) {
            report.error(spec.at, path, "expected at least one step in `request` or `response`");
        }
    }
}

/// Reports `public` on a target other than a route: to open a whole mesh is a mistake.
fn public_route(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let kind = spec.get("targetRef").and_then(|target| target.get("kind")).and_then(Node::text);
    if let (Some(public), Some(kind)) = (spec.get("public"), kind)
        && !["HTTPRoute", "MeshGatewayRoute"].contains(&kind)
    {
        let message = format!("only a route can be public, and the target is a {}", quote(kind));
        report.error(public.at, &path.field("public"), message);
    }
}

/// Reports `auditLog` in `from` and `to`: it records every message of its chain, and cannot be limited to sources.
fn refuse_audits(entry: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    for name in ["request", "response"] {
        for (index, step) in entry.get(name).map_or(&[][..], Node::items).iter().enumerate() {
            if step.get("policy").and_then(Node::text) == Some("auditLog") {
                let message =
                    "`auditLog` records all messages of a chain: put it outside of `from` and `to`, with a `when`";
                report.error(step.at, &path.field(name).item(index), message);
            }
        }
    }
}

/// Checks both chains of a mapping. Returns the number of steps; a chain that is not a list counts as one.
fn chains(node: &Node, path: &Path<'_>, report: &mut Report<'_>) -> usize {
    let mut count: usize = 0;
    for (phase, name) in [(Phase::Request, "request"), (Phase::Response, "response")] {
        let Some(list) = node.get(name) else { continue };
        chain(list.items(), phase, &path.field(name), report);
        count = count.saturating_add(if matches!(list.value, Value::List(_)) { list.items().len() } else { 1 });
    }
    count
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
    use crate::{File, read};

    fn read_spec(spec: &str) -> Result<RoutePolicy, String> {
        let head = "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {name: users-api}\nspec:";
        let bytes = format!("{head}{spec}").into_bytes();
        let mut bundle = read(&[File { name: "p".to_owned(), bytes }]).map_err(|errors| errors.to_string())?;
        Ok(bundle.route_policies.remove(0).spec.clone())
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
        assert_eq!(policy.target_ref, TargetRef::HttpRoute { name: "users".to_owned(), optional: false });
        let step = |name: &str, policy: &str, params: serde_json::Value| -> Step {
            serde_json::from_value(json!({"name": name, "policy": policy, "params": params})).unwrap()
        };
        let request = [
            step("apiKeyAuth", "apiKeyAuth", json!({"header": "X-Api-Key"})),
            step("clean", "headers", json!({"remove": ["X-Internal"]})),
        ];
        assert_eq!(policy.chains.request, request);
        assert_eq!(policy.chains.response, [step("headers", "headers", json!({}))]);
    }

    #[test]
    fn wants_a_step() {
        let message = "p:5:3: RoutePolicy `users-api`: spec: expected at least one step in `request` or `response`";
        check("\n  targetRef: {kind: HTTPRoute, name: users}", &[message]);
        check("\n  targetRef: {kind: HTTPRoute, name: users}\n  request: []\n  response: []", &[message]);
    }

    #[test]
    fn reads_entries_for_sources_and_destinations() {
        let policy = read_spec(
            "
  targetRef: { kind: Service, name: api }
  override: true
  from:
    - targetRef: { kind: ServiceSubset, name: web, tags: { version: v1 } }
      request: [{ policy: headers }]
  to:
    - targetRef: { kind: Service, name: db }
      response: [{ policy: headers, mode: shadow }]",
        )
        .unwrap();
        assert!(policy.overrides && policy.chains == Chains::default());
        assert_eq!((policy.from.len(), policy.from[0].chains.request.len()), (1, 1));
        assert_eq!(policy.to[0].target_ref, TargetRef::Service { name: "db".to_owned(), optional: false });
        assert_eq!(policy.to[0].chains.response[0].mode, Some(Mode::Shadow));
    }

    #[test]
    fn checks_entries_for_sources_and_destinations() {
        check(
            "
  targetRef: { kind: Mesh }
  from:
    - targetRef: { kind: Proxy, name: a }
      request: [{ policy: headers }]
    - targetRef: { kind: Service }
      request: []
  to:
    - targetRef: { kind: MeshSubset, tags: { a: b } }
      response: [{ policy: rateLimit }]",
            &[
                "p:7:26: RoutePolicy `users-api`: spec.from[0].targetRef.kind: expected one of `Mesh`, `MeshSubset`, \
                 `Service`, `ServiceSubset`, found `Proxy`",
                "p:9:7: RoutePolicy `users-api`: spec.from[1]: expected at least one step in `request` or `response`",
                "p:9:18: RoutePolicy `users-api`: spec.from[1].targetRef.name: `Service` needs `name`",
                "p:12:26: RoutePolicy `users-api`: spec.to[0].targetRef.kind: expected one of `Mesh`, `Service`, \
                 `MeshGatewayRoute`, `HTTPRoute`, found `MeshSubset`",
                "p:12:38: RoutePolicy `users-api`: spec.to[0].targetRef.tags: unknown field `tags`",
                "p:13:18: RoutePolicy `users-api`: spec.to[0].response[0]: policy `rateLimit` cannot run in `response`",
                "p:13:18: RoutePolicy `users-api`: spec.to[0].response[0].params.per: missing required field `per`",
                "p:13:18: RoutePolicy `users-api`: spec.to[0].response[0].params.requests: missing required field `requests`",
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
