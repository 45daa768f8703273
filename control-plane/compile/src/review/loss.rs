//! Finds routes that are guarded before a change and not after it.

use std::{cmp::Ordering, collections::BTreeSet};

use postern_base::node::NodeIdentity;
use postern_model::{Bundle, Resource, Route};

use super::{
    exposure::{Exposed, Exposure},
    guard::route_label,
};
use crate::attach::{Scope, attach_routes, groups};

/// The routes that lose their last guard by a change, as labels, on live nodes and on all nodes that targets could
/// select. Routes that become `public` are not included. What stood in for something invalid is no guard: a route that is
/// refused for a mistake may be open once that is mended.
pub fn lost_guards(before: &Bundle, after: &Bundle, live: &[NodeIdentity]) -> Vec<String> {
    if before.route_policies.iter().any(|policy| policy.spec.refused) {
        let mut said = before.clone();
        said.route_policies.retain(|policy| !policy.spec.refused);
        return lost_guards(&said, after, live);
    }
    let touched = touched(before, after);
    if touched.as_ref().is_some_and(BTreeSet::is_empty) {
        return Vec::new();
    }
    let is_touched = |route: &str| touched.as_ref().is_none_or(|touched| touched.contains(route));
    let mut lost = BTreeSet::new();
    for (node, _) in groups(before, after, live) {
        let scopes = [before, after].map(|bundle| Scope::of_routes(bundle, &node, is_touched));
        let [was, is] =
            scopes.each_ref().map(|scope| Exposure::of_routes(scope, &attach_routes(scope, is_touched), is_touched));
        for (name, route) in was.routes.iter().filter(|(_, route)| was.guard(route).is_ok()) {
            if is_open(&is, name, route) || narrowed(&scopes, name) && opens(&is, "") {
                lost.insert(route_label(&node.mesh, name));
            }
        }
    }
    lost.into_iter().collect()
}

/// The routes whose guard a change can affect; `None` means any. An optimization: most changes are of a few policies,
/// and other routes need not be checked.
fn touched<'b>(before: &'b Bundle, after: &'b Bundle) -> Option<BTreeSet<&'b str>> {
    let same = same(&before.gateways, &after.gateways)
        && same(&before.envoy_resources, &after.envoy_resources)
        && same(&before.traffic_permissions, &after.traffic_permissions)
        && same(&before.virtual_outbounds, &after.virtual_outbounds)
        // Tags of services are in the names of outbound routes' hosts and in their ports.
        && (after.virtual_outbounds.is_empty() || same(&before.services, &after.services));
    if !same {
        return None;
    }
    // Both lists are sorted by name and nearly equal.
    let (mut was, mut is) = (before.route_policies.iter().peekable(), after.route_policies.iter().peekable());
    let mut touched = BTreeSet::new();
    loop {
        let next = match (was.peek(), is.peek()) {
            (None, None) => return Some(touched),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => (one.mesh(), &one.name).cmp(&(other.mesh(), &other.name)),
        };
        let pair = [was.next_if(|_| next.is_le()), is.next_if(|_| next.is_ge())];
        if let [Some(one), Some(other)] = pair
            && one.digest() == other.digest()
        {
            continue;
        }
        for policy in pair.into_iter().flatten() {
            touched.insert(policy.spec.target_ref.route()?);
        }
    }
}

/// Whether a route that is found by a `match` is no longer found by all that it was found by.
fn narrowed([before, after]: &[Scope<'_>; 2], route: &str) -> bool {
    let claims = |scope: &Scope<'_>| {
        let policies = scope.route_policies.iter().filter(|policy| policy.spec.target_ref.route() == Some(route));
        let matches = policies.filter_map(|policy| policy.spec.matching.clone()).next();
        matches.map(|matching| matching.claims().into_iter().map(|claim| format!("{claim:?}")).collect::<BTreeSet<_>>())
    };
    let (was, is) = (claims(before), claims(after).unwrap_or_default());
    was.is_some_and(|was| !was.is_subset(&is))
}

/// Whether requests of a route can pass without a guard, if there is such a route.
fn opens(is: &Exposure<'_>, name: &str) -> bool {
    is.routes.get(name).is_none_or(|route| !route.public && is.guard(route).is_err())
}

/// Whether two lists have equal content.
fn same<T>(one: &[Resource<T>], other: &[Resource<T>]) -> bool {
    one.iter().map(Resource::digest).eq(other.iter().map(Resource::digest))
}

/// Whether requests of a formerly guarded route can now pass without a guard.
fn is_open(is: &Exposure<'_>, name: &str, was: &Exposed<'_>) -> bool {
    let open = |route: &Exposed<'_>| !route.public && is.guard(route).is_err();
    match is.routes.get(name) {
        Some(route) => open(route),
        // A declared route may be there under another name. Envoy's own route still exists.
        None if was.place.is_ours() => was.place.declared().is_some_and(|was| {
            let alike = |route: &&Exposed<'_>| route.place.declared().is_some_and(|is| same_requests(was, is));
            is.routes.values().filter(alike).any(open)
        }),
        None => is.routes.get("").is_none_or(open),
    }
}

fn same_requests(a: &Route, b: &Route) -> bool {
    a.hosts == b.hosts && a.matching == b.matching
}
