//! Permissions: all entries that concern a route, in the order of priority. The first that selects a source decides.

use postern_model::{Action, Resource, TargetRef, TrafficPermission};

use super::{scope::Scope, source::Source};

/// One entry.
#[derive(Debug, Clone)]
pub struct Rule<'a> {
    /// Whom it selects.
    pub source: Source,
    /// Whether they may call.
    pub action: Action,
    /// Where it is written.
    pub permission: &'a Resource<TrafficPermission>,
    /// Which entry of `spec.from` it is.
    pub entry: usize,
}

/// The rules for a route, or for what is no known route.
pub(super) fn rules<'a>(scope: &Scope<'a>, route: Option<&str>) -> Vec<Rule<'a>> {
    let here = |target: &TargetRef| target.route().is_none_or(|target| Some(target) == route);
    let mut found = Vec::new();
    for permission in scope.traffic_permissions.iter().filter(|permission| here(&permission.spec.target_ref)) {
        for (entry, written) in permission.spec.from.iter().enumerate() {
            let source = Source::of(&written.target_ref, permission.mesh());
            found.push(Rule { source, action: written.action, permission, entry });
        }
    }
    found
}
