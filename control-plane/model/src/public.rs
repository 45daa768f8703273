//! `public`: a route that is meant to be open says so, and why.

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::report::Report;

/// What a user may write.
pub(super) const PUBLIC: Kind = Kind::Object(&Object {
    fields: &[Field::required("reason", Kind::Text, "Why no authentication is needed, for whoever reads this later.")],
    exactly_one_of: &[],
});

/// A route that needs no authentication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Public {
    /// Why; not blank.
    pub reason: String,
}

/// Reports a reason that says nothing.
pub(super) fn rules(parent: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let reason = parent.get("public").and_then(|public| public.get("reason"));
    if let Some(reason) = reason.filter(|reason| reason.text().is_some_and(|text| text.trim().is_empty())) {
        let message = "expected a reason: why may anybody call this?";
        report.error(reason.at, &path.field("public").field("reason"), message);
    }
}
