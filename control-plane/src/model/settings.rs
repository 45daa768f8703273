//! `Settings`: what holds for a whole mesh. There is at most one.

use std::collections::BTreeMap;

use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::kinds::{self, KindSchema, Spec};

/// The whole document.
pub(super) const SCHEMA: KindSchema = KindSchema {
    name: "Settings",
    about: "What holds for the whole mesh; at most one.",
    document: Object {
        fields: &[
            kinds::API_VERSION,
            kinds::kind(&["Settings"]),
            kinds::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "The settings."),
        ],
        exactly_one_of: &[],
    },
};

const SPEC: Object = Object {
    fields: &[
        Field::optional(
            "policyNotSupported",
            Kind::Object(&ANSWER),
            "What a route answers whose chain names a policy that nobody supports; 500 by default.",
        ),
        Field::optional(
            "agentUnavailable",
            Kind::Object(&ANSWER),
            "What a route answers while an agent that its chain needs is not healthy; 503 by default.",
        ),
        Field::optional(
            "logBackends",
            Kind::List { item: &Kind::Object(&LOG_BACKEND), at_least: 0 },
            "Where AccessLogs may log to, beside `stdout`.",
        ),
    ],
    exactly_one_of: &[],
};

const LOG_BACKEND: Object = Object {
    fields: &[
        Field::required("name", Kind::Name, "What AccessLogs call it."),
        Field::required("file", Kind::Object(&LOG_FILE), "A file on the proxy's machine."),
    ],
    exactly_one_of: &[],
};

const LOG_FILE: Object = Object { fields: &[Field::required("path", Kind::Path, "Its path.")], exactly_one_of: &[] };

const ANSWER: Object = Object {
    fields: &[
        Field::required("status", Kind::Integer { min: 400, max: 599 }, "The status."),
        Field::optional(
            "headers",
            Kind::Map { key: &Kind::HeaderName, value: &Kind::HeaderValue },
            "The headers of the answer.",
        ),
        Field::optional("body", Kind::Text, "The body of the answer; empty by default."),
    ],
    exactly_one_of: &[],
};

/// What holds for the whole mesh.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// What a route answers whose chain names a policy that nobody supports.
    pub policy_not_supported: Option<Answer>,
    /// What a route answers while an agent that its chain needs is not healthy.
    pub agent_unavailable: Option<Answer>,
    /// Where access logs may go; names are unique.
    #[serde(default)]
    pub log_backends: Vec<LogBackend>,
}

/// Where an access log may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogBackend {
    /// What AccessLogs call it.
    pub name: String,
    /// A file on the proxy's machine.
    pub file: LogFile,
}

/// A file on the proxy's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogFile {
    /// Its path.
    pub path: String,
}

/// A whole answer to a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers; names can be of any case.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(default)]
    pub body: String,
}

impl Spec for Settings {
    const SCHEMA: &'static KindSchema = &SCHEMA;
}
