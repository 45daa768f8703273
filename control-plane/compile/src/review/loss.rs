//! What a change would leave open: routes that are guarded now and would not be afterwards.

use std::{cmp::Ordering, collections::BTreeSet};

use postern_base::node::NodeIdentity;
use postern_model::{Bundle, Resource, Route};

use super::{
    exposure::{Exposed, Exposure},
    guard::route_label,
};
use crate::attach::{Scope, attach_routes, groups};

/// The routes that lose their last guard by a change, on any of these nodes and all that targets could select, as people
/// call them. One that becomes `public` says so itself, and is not among them.
pub fn lost_guards(before: &Bundle, after: &Bundle, live: &[NodeIdentity]) -> Vec<String> {
    let touched = touched(before, after);
    if touched.as_ref().is_some_and(BTreeSet::is_empty) {
        return Vec::new();
    }
    let is_touched = |route: &str| touched.as_ref().is_none_or(|touched| touched.contains(route));
    let mut lost = BTreeSet::new();
    for (node, _) in groups(before, after, live) {
        let scopes = [before, after].map(|bundle| Scope::of(bundle, &node));
        let [was, is] =
            scopes.each_ref().map(|scope| Exposure::of_routes(scope, &attach_routes(scope, is_touched), is_touched));
        for (name, route) in was.routes.iter().filter(|(_, route)| was.guard(route).is_ok()) {
            if is_open(&is, name, route) {
                lost.insert(route_label(&node.mesh, name));
            }
        }
    }
    lost.into_iter().collect()
}

/// The routes that can be guarded in another way after a change; `None` if it can be any. A change of a few policies of
/// routes, which most are, must not have all others looked at.
fn touched<'b>(before: &'b Bundle, after: &'b Bundle) -> Option<BTreeSet<&'b str>> {
    let same = same(&before.gateways, &after.gateways)
        && same(&before.envoy_resources, &after.envoy_resources)
        && same(&before.traffic_permissions, &after.traffic_permissions);
    if !same {
        return None;
    }
    // Both stand in the order of their names, and nearly all are in both.
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

/// Whether two lists say the same.
fn same<T>(one: &[Resource<T>], other: &[Resource<T>]) -> bool {
    one.iter().map(Resource::digest).eq(other.iter().map(Resource::digest))
}

/// Whether what was reached by a guarded route can be reached without a guard now.
fn is_open(is: &Exposure<'_>, name: &str, was: &Exposed<'_>) -> bool {
    let open = |route: &Exposed<'_>| !route.public && is.guard(route).is_err();
    match is.routes.get(name) {
        Some(route) => open(route),
        // A route of ours that is gone can be there under another name. One of Envoy's own is there still.
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
