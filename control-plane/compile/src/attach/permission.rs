//! Attachment of TrafficPermissions: the rules for a route by priority. The first rule that selects the source decides.

use postern_model::{Action, Resource, TargetRef, TrafficPermission};

use super::{scope::Scope, source::Source};

/// One entry of a TrafficPermission.
#[derive(Debug, Clone)]
pub struct Rule<'a> {
    /// The sources that it selects. `None` for all traffic, callers without a certificate included.
    pub source: Option<Source>,
    /// Whether their requests are allowed.
    pub action: Action,
    /// The resource that contains it.
    pub permission: &'a Resource<TrafficPermission>,
    /// Its index in `spec.from`.
    pub entry: usize,
}

impl Rule<'_> {
    /// Whether it selects all traffic that another one selects.
    pub fn covers(&self, other: Option<&Source>) -> bool {
        match (&self.source, other) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(source), Some(other)) => source.covers(other),
        }
    }
}

/// The rules for a route, or for all unnamed routes if `route` is `None`.
pub(super) fn rules<'a>(scope: &Scope<'a>, route: Option<&str>) -> Vec<Rule<'a>> {
    // They are about incoming traffic, and what a node itself sends out is not. Those of the route itself hold anyway.
    let incoming = !route.is_some_and(|route| scope.is_local(route));
    let here = |target: &TargetRef| target.route().map_or(incoming, |target| Some(target) == route);
    let mut found = Vec::new();
    for permission in scope.traffic_permissions.iter().filter(|permission| here(&permission.spec.target_ref)) {
        for (entry, written) in permission.spec.from.iter().enumerate() {
            let source = Source::of(&written.target_ref, permission.mesh()).or_else(|| {
                // To allow the mesh is not to allow those who do not say who they are, unless the entry says so.
                let everybody = written.action == Action::Deny || written.anonymous;
                (!everybody).then(|| Source::identified(permission.mesh()))
            });
            found.push(Rule { source, action: written.action, permission, entry });
        }
    }
    found
}
