//! What a change would leave open: routes that are guarded now and would not be afterwards.

use std::collections::BTreeSet;

use super::{
    exposure::{Exposed, Exposure},
    guard::route_label,
};
use crate::{
    attach::Scope,
    difference::groups,
    model::{Bundle, Route},
    node::NodeIdentity,
};

/// The routes that lose their last guard by a change, on any of these nodes and all that targets could select, as people
/// call them. One that becomes `public` says so itself, and is not among them.
pub fn lost_guards(before: &Bundle, after: &Bundle, live: &[NodeIdentity]) -> Vec<String> {
    let mut lost = BTreeSet::new();
    for (node, _) in groups(before, after, live) {
        let scopes = [before, after].map(|bundle| Scope::of(bundle, &node));
        let [was, is] = scopes.each_ref().map(Exposure::of);
        for (name, route) in was.routes.iter().filter(|(_, route)| was.guard(route).is_ok()) {
            if is_open(&is, name, route) {
                lost.insert(route_label(&node.mesh, name));
            }
        }
    }
    lost.into_iter().collect()
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
