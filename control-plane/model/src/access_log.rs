//! `AccessLog`: which requests the proxies that it is attached to log, and to which backends.

use postern_base::{
    diagnostic::Path,
    yaml::{Node, Value},
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    report::Report,
    target_ref::{self, Reach, TargetRef, Targeted},
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "AccessLog",
    about: "Where proxies log requests. A proxy that none is attached to logs on its standard output.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["AccessLog"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "What is logged where."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: AccessLog
metadata: { name: logs }
spec:
  targetRef: { kind: Mesh }
  to:
    - { targetRef: { kind: Service, name: users }, backends: [{ name: audit }] }
    - { targetRef: { kind: Mesh }, backends: [{ name: stdout }] }
";

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::TARGET, "Who logs."),
        kind::OVERRIDE,
        Field::optional(
            "to",
            Kind::List { item: &Kind::Object(&TO), at_least: 1 },
            "Requests by where they go; for one destination, the first entry counts.",
        ),
        Field::optional(
            "from",
            Kind::List { item: &Kind::Object(&FROM), at_least: 1 },
            "Requests by where they come from; for one source, the first entry counts.",
        ),
    ],
    exactly_one_of: &[],
};

const BACKENDS: Field = Field::required(
    "backends",
    Kind::List { item: &Kind::Object(&BACKEND), at_least: 0 },
    "Where they are logged; nowhere if empty. Where nothing is logged at all, the filter gives no account either.",
);

const TO: Object = Object {
    fields: &[Field::required("targetRef", target_ref::DESTINATION, "Where the traffic goes."), BACKENDS],
    exactly_one_of: &[],
};

const FROM: Object = Object {
    fields: &[Field::required("targetRef", SOURCE, "Where the traffic comes from, by its certificate."), BACKENDS],
    exactly_one_of: &[],
};

const BACKEND: Object = Object {
    fields: &[Field::required(
        "name",
        Kind::Name,
        "A backend of Settings' `logBackends`, or `stdout`, which is always there.",
    )],
    exactly_one_of: &[],
};

/// The sources of an entry.
const SOURCE: Kind = target_ref::SOURCE;

/// The name of the predefined backend, standard output.
pub const STDOUT: &str = "stdout";

/// The `spec` of an `AccessLog`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessLog {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Entries by destination.
    #[serde(default)]
    pub to: Vec<LogEntry>,
    /// Entries by source.
    #[serde(default)]
    pub from: Vec<LogEntry>,
}

/// The backends for requests from some sources or to some destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogEntry {
    /// The sources or destinations of the entry.
    pub target_ref: TargetRef,
    /// The backends, by name.
    pub backends: Vec<LogBackendRef>,
}

/// A reference to a backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogBackendRef {
    /// The name: one that `Settings` declares, or [`STDOUT`].
    pub name: String,
}

impl Targeted for AccessLog {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Spec for AccessLog {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &["to", "from"], path, report);
        let neither = spec.get("to").is_none() && spec.get("from").is_none();
        if neither && matches!(spec.value, Value::Map(_)) {
            report.error(spec.at, path, "expected an entry in `to` or `from`");
        }
    }
}
