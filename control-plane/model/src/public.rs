//! `public`: declares that a route needs no authentication, with a reason.

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::report::Report;

/// The schema of `public`.
pub(super) const PUBLIC: Kind = Kind::Object(&Object {
    fields: &[Field::required("reason", Kind::Text, "Why no authentication is needed, for whoever reads this later.")],
    exactly_one_of: &[],
});

/// The declaration that a route needs no authentication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Public {
    /// The reason, not blank.
    pub reason: String,
}

/// Reports a blank reason.
pub(super) fn rules(parent: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let reason = parent.get("public").and_then(|public| public.get("reason"));
    if let Some(reason) = reason.filter(|reason| reason.text().is_some_and(|text| text.trim().is_empty())) {
        let message = "expected a reason: why may anybody call this?";
        report.error(reason.at, &path.field("public").field("reason"), message);
    }
}
