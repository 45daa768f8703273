//! Routes without authentication, as errors or warnings by `Settings.unguarded`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
};

use postern_base::{diagnostic::quote, node::NodeIdentity};
use postern_model::{Bundle, Diagnostic, Unguarded};

use super::{exposure::Exposure, listed};
use crate::{
    attach::{Attachment, Scope},
    lint::Finding,
};

/// The code of the finding about a route without authentication.
const ROUTE: &str = "unguarded-route";
/// The code of the finding about a step that does not count as authentication.
const STEP: &str = "open-door";

/// Collects the routes without authentication, group by group.
#[derive(Default)]
pub(super) struct Doors<'a> {
    meshes: BTreeMap<String, Found<'a>>,
}

/// Errors in meshes that deny unguarded routes, and findings in those that warn.
pub(super) fn judge(doors: Doors<'_>, bundle: &Bundle) -> (Vec<Diagnostic>, Vec<Finding>) {
    let (mut errors, mut findings) = (Vec::new(), Vec::new());
    for (mesh, found) in doors.meshes {
        let settings = bundle.settings.iter().find(|settings| settings.mesh() == mesh);
        let found = found.into_findings();
        match settings.and_then(|settings| settings.spec.unguarded).unwrap_or_default() {
            Unguarded::Deny => errors.extend(found.into_iter().map(|finding| finding.at)),
            Unguarded::Warn => findings.extend(found),
            Unguarded::Allow => {}
        }
    }
    (errors, findings)
}

/// The unguarded routes of a mesh.
#[derive(Default)]
struct Found<'a> {
    /// By route: where it is named, and on which nodes it is open.
    open: BTreeMap<String, Open>,
    /// The routes that are guarded on some nodes.
    guarded: HashSet<Cow<'a, str>>,
    /// By fault of a step: the routes that have the step.
    steps: BTreeMap<Diagnostic, BTreeSet<String>>,
}

struct Open {
    /// Where the route is named.
    place: Diagnostic,
    /// Whether a step nearly counts as its guard.
    nearly: bool,
    /// Nodes on which it is open, in words.
    nodes: String,
}

impl<'a> Doors<'a> {
    /// Records the routes of a group of nodes. `node` represents the group.
    pub(super) fn look(&mut self, node: &NodeIdentity, scope: &Scope<'a>, attachment: &Attachment<'_>) {
        let exposure = Exposure::of(scope, attachment);
        let found = self.meshes.entry(node.mesh.clone()).or_default();
        for (name, route) in exposure.routes.iter().filter(|(_, route)| !route.public) {
            let Err(gaps) = exposure.guard(route) else {
                found.guarded.insert(name.clone());
                continue;
            };
            let Some(place) = route.place.diagnose(String::new()) else { continue };
            let (nearly, nodes) = (!gaps.is_empty(), described(node));
            found.open.entry(name.clone().into_owned()).or_insert(Open { place, nearly, nodes });
            for gap in gaps {
                found.steps.entry(gap.clone()).or_default().insert(quote(name));
            }
        }
    }
}

impl Found<'_> {
    fn into_findings(self) -> Vec<Finding> {
        let routes = self.open.into_iter().map(|(name, Open { place, nearly, nodes })| {
            let nodes = if self.guarded.contains(name.as_str()) { format!(" on {nodes}") } else { String::new() };
            let has = match nearly {
                true => "no authentication that every request must pass",
                false => "no authentication",
            };
            let message = format!(
                "route {} has {has}{}: add a step such as `apiKeyAuth` or `jwtValidation`, or say `public: {{ reason: … }}`",
                quote(&name),
                nodes
            );
            Finding { at: Diagnostic { message, ..place }, code: ROUTE }
        });
        let steps = self.steps.into_iter().map(|(gap, routes)| {
            let what = if routes.len() == 1 { "route" } else { "routes" };
            let message = format!("{}: it does not count as authentication of {what} {}", gap.message, listed(routes));
            Finding { at: Diagnostic { message, ..gap }, code: STEP }
        });
        routes.chain(steps).collect()
    }
}

/// The nodes that a representative stands for, in words.
fn described(node: &NodeIdentity) -> String {
    let tags: Vec<_> = node.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let tags = if tags.is_empty() { String::new() } else { format!(" with {}", tags.join(",")) };
    match (node.id.as_str(), node.service.as_str(), tags.is_empty()) {
        ("", "", true) => "nodes that no target selects".to_owned(),
        ("", "", false) => format!("nodes{tags}"),
        ("", service, _) => format!("nodes of service {}{tags}", quote(service)),
        (id, ..) => format!("node {}", quote(id)),
    }
}
