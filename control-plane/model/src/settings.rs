//! `Settings`: configuration of a whole mesh. There is at most one for each mesh.

use std::{collections::BTreeMap, time::Duration};

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::{
    header::HeaderUse,
    schema::{Field, Kind, Object},
};
use serde::{Deserialize, Serialize};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    log_backend::{self, LogBackend},
    report::Report,
    target_ref::Reach,
    unit::{self, Percent},
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Settings",
    about: "What holds for the whole mesh; at most one.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Settings"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "The settings."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::MayOpen,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Settings
metadata: { name: default }
spec:
  agentUnavailable: { status: 503, headers: { retry-after: \"5\" }, body: try again soon }
  logBackends:
    - { name: audit, file: { path: /var/log/envoy/audit.json } }
    - { name: short, stdout: {}, format: { text: '%START_TIME% %RESPONSE_CODE% %REQ(:PATH)%' } }
    - { name: telemetry, otlp: { address: otel.internal, port: 4317 } }
  logSampling: 10
  retention: { revisions: 50 }
  rollout:
    steps:
      - { tags: { stage: canary }, pause: 1m }
      - { share: 25, pause: 5m }
";

const SPEC: Object = Object {
    fields: &[
        Field::optional(
            "policyNotSupported",
            Kind::Object(&ANSWER),
            "What a route answers whose chain names a policy that nobody supports, or is not valid. What it does not say is the \
             default: status 500, `content-type: application/json`, `x-policy-error: configuration`, and a body with the code \
             `POLICY_NOT_SUPPORTED`.",
        ),
        Field::optional(
            "agentUnavailable",
            Kind::Object(&ANSWER),
            "What a route answers while an agent that its chain needs is not healthy. What it does not say is the default: status \
             503, `content-type: application/json`, `x-policy-error: temporary`, `retry-after: 30`, and a body with the code \
             `AGENT_UNAVAILABLE`.",
        ),
        Field::optional(
            "logBackends",
            Kind::List { item: &Kind::Object(&log_backend::SCHEMA), at_least: 0 },
            "Where AccessLogs may log to, beside `stdout`.",
        ),
        Field::optional(
            "logSampling",
            Kind::Percent,
            "How many in a hundred requests are in access logs; all by default. Those answered with a status of 400 and \
             above, as denials are, always are.",
        ),
        Field::optional(
            "routeHeaders",
            Kind::List { item: &Kind::HeaderName, at_least: 0 },
            "The request headers that routes of Envoys with routes of their own match on; empty if they match on none. Without \
             this list, a chain that edits request headers needs the filter `postern-verify` on such an Envoy; with it, only a \
             chain that edits one of these does. Match on cookies is `cookie`. Routes of Gateways are known, and not listed.",
        ),
        Field::optional(
            "requestBudgetMs",
            Kind::Integer { min: 1, max: 100 },
            "How much work a request may cause in the filter, in milliseconds, counted in steps of about 10 ns: expressions, \
             patterns, schemas, keys that are tried. A body that a step reads adds 80 ns a byte, and the rounds of a password \
             and one check of a signature are always allowed. Past it, the step under way fails with `budget_exhausted`.",
        )
        .or("1"),
        Field::optional(
            "retention",
            Kind::Object(&RETENTION),
            "What the control plane keeps. It holds for all meshes, so that only one of them can say it.",
        ),
        Field::optional(
            "rollout",
            Kind::Object(&ROLLOUT),
            "How a revision that says so spreads, and those after it; what `postern serve` was started with by default. It \
             holds for all meshes, so that only one of them can say it.",
        ),
        Field::optional(
            "unguarded",
            Kind::Choice(&["deny", "warn", "allow"]),
            "What a route without authentication is, unless it says `public`: an error, a warning, or fine.",
        )
        .or("warn"),
    ],
    exactly_one_of: &[],
};

const RETENTION: Object = Object {
    fields: &[Field::required(
        "revisions",
        Kind::Integer { min: 1, max: 1_000 },
        "How many revisions are kept to go back to.",
    )],
    exactly_one_of: &[],
};

const ROLLOUT: Object = Object {
    fields: &[
        Field::optional(
            "steps",
            Kind::List { item: &Kind::Object(&STEP), at_least: 0 },
            "Which nodes get it first, one step after the other; all others follow the last. All at once if empty.",
        ),
        Field::optional(
            "maxRefused",
            Kind::Object(&MAX_REFUSED),
            "How many nodes may refuse it before all go back; none by default. Nodes count that ran the last good revision when \
             this one started: one that never did proves nothing about it.",
        ),
    ],
    exactly_one_of: &[],
};

const MAX_REFUSED: Object = Object {
    fields: &[
        Field::optional("nodes", Kind::Integer { min: 0, max: 1_000_000 }, "So many."),
        Field::optional("share", Kind::Integer { min: 0, max: 99 }, "So many in a hundred, rounded down."),
    ],
    exactly_one_of: &["nodes", "share"],
};

const STEP: Object = Object {
    fields: &[
        Field::optional(
            "share",
            Kind::Integer { min: 1, max: 100 },
            "So many in a hundred of the nodes that are there when the step starts; at least one.",
        ),
        Field::optional(
            "tags",
            Kind::Map { key: &Kind::Text, value: &Kind::Text },
            "The nodes that have all of these tags.",
        ),
        Field::optional("pause", Kind::Timeout, "How long all of them must have run it before the next step.").or("0s"),
    ],
    exactly_one_of: &["share", "tags"],
};

const ANSWER: Object = Object {
    fields: &[
        Field::optional("status", Kind::Integer { min: 400, max: 599 }, "The status."),
        Field::optional(
            "headers",
            Kind::Map { key: &Kind::EditedHeader(HeaderUse::Set), value: &Kind::HeaderValue },
            "The headers of the answer, in place of all of the default ones.",
        ),
        Field::optional("body", Kind::Text, "The body of the answer."),
    ],
    exactly_one_of: &[],
};

/// The `spec` of `Settings`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The response of a route whose chain has a policy that no agent supports.
    pub policy_not_supported: Option<ErrorAnswer>,
    /// The response of a route while an agent of its chain is unavailable.
    pub agent_unavailable: Option<ErrorAnswer>,
    /// The backends of access logs. Names are unique.
    #[serde(default)]
    pub log_backends: Vec<LogBackend>,
    /// The percentage of requests with a status below 400 that is logged. `None` means all.
    pub log_sampling: Option<Percent>,
    /// The request headers that an Envoy's own routes match on. `None` means that they are unknown.
    pub route_headers: Option<Vec<String>>,
    /// The budget of a request, in milliseconds.
    pub request_budget_ms: Option<u32>,
    /// What is kept in the store.
    pub retention: Option<Retention>,
    /// How revisions roll out.
    pub rollout: Option<RolloutSettings>,
    /// How routes without authentication are treated. `None` means the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unguarded: Option<Unguarded>,
}

/// How routes without authentication are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unguarded {
    /// As an error: a change that has one is refused.
    Deny,
    /// As a warning.
    #[default]
    Warn,
    /// As allowed.
    Allow,
}

/// What is kept in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// The number of revisions.
    pub revisions: usize,
}

/// How revisions roll out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutSettings {
    /// The steps before all nodes get a revision. `None` means no steps.
    pub steps: Option<Vec<RolloutStep>>,
    /// How many nodes may refuse a revision. `None` means the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_refused: Option<MaxRefused>,
}

/// How many nodes may refuse a revision: a number or a percentage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxRefused {
    /// A number of nodes.
    pub nodes: Option<u32>,
    /// A percentage.
    pub share: Option<u8>,
}

/// One step of a rollout: a percentage of the nodes, or the nodes with some tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutStep {
    /// A percentage of the nodes.
    pub share: Option<u8>,
    /// The nodes that have all of these tags.
    pub tags: Option<BTreeMap<String, String>>,
    /// How long these nodes must have run the revision before the next step.
    #[serde(default, deserialize_with = "unit::deserialize_duration")]
    pub pause: Duration,
}

/// The answer to a request whose chain cannot run. Each part has a default of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorAnswer {
    /// The status. `None` means the default.
    pub status: Option<u16>,
    /// The headers. Names can be in any case. `None` means the default ones.
    pub headers: Option<BTreeMap<String, String>>,
    /// The body. `None` means the default.
    pub body: Option<String>,
}

impl Spec for Settings {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::Mesh
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        let backends = path.field("logBackends");
        for (index, backend) in spec.get("logBackends").map_or(&[][..], Node::items).iter().enumerate() {
            log_backend::rules(backend, &backends.item(index), report);
        }
    }
}
