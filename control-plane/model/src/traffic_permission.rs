//! `TrafficPermission`: which sources may call what it is attached to.

use postern_base::{
    diagnostic::{Path, quote},
    yaml::Node,
};
use postern_engine::schema::{Field, Kind, Object};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    report::Report,
    target_ref::{self, Reach, TargetRef, Targeted},
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "TrafficPermission",
    about: "Which sources may call what it is attached to. Where one is attached, a source that no entry selects is refused.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["TrafficPermission"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Who may call what."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::MayOpen,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: users-callers }
spec:
  targetRef: { kind: Service, name: users }
  from:
    - { targetRef: { kind: ServiceSubset, name: web, tags: { version: v1 } }, action: DENY }
    - { targetRef: { kind: Service, name: web }, action: ALLOW }
";

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::TARGET, "What is called."),
        kind::OVERRIDE,
        Field::required(
            "from",
            Kind::List { item: &Kind::Object(&FROM), at_least: 1 },
            "The sources; the first entry that selects one decides.",
        ),
    ],
    exactly_one_of: &[],
};

const FROM: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::SOURCE, "Who calls, by its certificate."),
        Field::required("action", Kind::Choice(&["ALLOW", "DENY"]), "What becomes of its requests."),
        Field::optional(
            "anonymous",
            Kind::Boolean,
            "Whether `ALLOW` from `Mesh` admits everybody, callers without a certificate and of other meshes included. \
             `DENY` from `Mesh` refuses everybody anyway.",
        )
        .or("false"),
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `TrafficPermission`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrafficPermission {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Entries by source: at least one.
    pub from: Vec<Permission>,
}

/// The permission of some sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Permission {
    /// The sources.
    pub target_ref: TargetRef,
    /// Whether their requests are allowed.
    pub action: Action,
    /// Whether callers without a certificate are allowed. Only for `ALLOW` from `Mesh`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anonymous: bool,
}

/// What becomes of a source's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Action {
    /// They pass.
    Allow,
    /// They are refused.
    Deny,
}

impl Targeted for TrafficPermission {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Spec for TrafficPermission {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &["from"], path, report);
        for (index, entry) in spec.get("from").map_or(&[][..], Node::items).iter().enumerate() {
            anonymous(entry, &path.field("from").item(index), report);
        }
    }
}

/// Reports `anonymous` on an entry that does not allow the whole mesh.
fn anonymous(entry: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(node) = entry.get("anonymous") else { return };
    let text = |node: Option<&Node>| node.and_then(Node::text).map(str::to_owned);
    let kind = text(entry.get("targetRef").and_then(|target| target.get("kind")));
    let message = match (kind.as_deref(), text(entry.get("action")).as_deref()) {
        (Some("Mesh"), Some("ALLOW")) | (None, _) | (_, None) => return,
        (Some("Mesh"), Some(_)) => "only `ALLOW` has `anonymous`: `DENY` from `Mesh` refuses everybody".to_owned(),
        (Some(kind), _) => format!("only `Mesh` has `anonymous`: {} is known by its certificate", quote(kind)),
    };
    report.error(node.at, &path.field("anonymous"), message);
}

#[cfg(test)]
mod tests {
    use crate::{File, read};

    fn check(entry: &str, expect: Option<&str>) {
        let document = format!(
            "apiVersion: postern/v1\nkind: TrafficPermission\nmetadata: {{name: p}}\n\
             spec: {{targetRef: {{kind: Mesh}}, from: [{entry}]}}\n"
        );
        let found = read(&[File { name: "f".to_owned(), bytes: document.into_bytes() }]);
        let found = found.err().map(|errors| errors.to_string());
        assert_eq!(found.as_deref(), expect, "{entry}");
    }

    #[test]
    fn only_an_allowed_mesh_is_anonymous() {
        check("{targetRef: {kind: Mesh}, action: ALLOW, anonymous: true}", None);
        check("{targetRef: {kind: Mesh}, action: ALLOW, anonymous: false}", None);
        check(
            "{targetRef: {kind: Mesh}, action: DENY, anonymous: true}",
            Some(
                "f:4:91: TrafficPermission `p`: spec.from[0].anonymous: only `ALLOW` has `anonymous`: `DENY` from `Mesh` \
                 refuses everybody",
            ),
        );
        check(
            "{targetRef: {kind: Service, name: web}, action: ALLOW, anonymous: true}",
            Some(
                "f:4:106: TrafficPermission `p`: spec.from[0].anonymous: only `Mesh` has `anonymous`: `Service` is known by \
                 its certificate",
            ),
        );
    }
}
