//! Marks of routes. The name of a route in Envoy ends in a mark, so that a plan and a route table of different
//! revisions are never used together: the request is refused instead.
//!
//! A node gets its plan and its routes as two resources, one shortly after the other. Names alone do not show that a
//! route means the same in both: `site` may have matched everything and now match only `/docs`, while another route
//! with another guard has the rest. A mark is a digest of all that decides which requests take a route and what guards
//! them: its hosts and conditions, its services as far as policies target them, and the hosts and conditions of
//! preceding routes that could match first.
//!
//! Routes that VirtualOutbounds come to have a host each, so that none precedes another: a new service changes no other
//! mark. Whether only the node itself reaches them is in the mark, since it decides which policies are for them.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use postern_model::{Gateway, OUTBOUND_ROUTE, PathMatch, Route, RoutePolicy, TargetRef};

/// The separator between a route's name and its mark. Names do not contain it.
pub const MARK: char = '#';

/// The services that entries of these policies target.
pub fn guarded_services<'p>(policies: impl IntoIterator<Item = &'p RoutePolicy>) -> BTreeSet<&'p str> {
    let targets = policies.into_iter().flat_map(|policy| &policy.to).map(|entry| &entry.target_ref);
    targets.filter_map(TargetRef::service).collect()
}

/// The names of a gateway's routes in Envoy, in order. `guarded` are the services that policies target.
pub fn marked_names(gateway: &Gateway, guarded: &BTreeSet<&str>) -> Vec<String> {
    let outbound = gateway.routes.iter().all(|route| route.name.starts_with(OUTBOUND_ROUTE));
    if outbound && are_apart(&gateway.routes) {
        let local = gateway.listeners.iter().all(|listener| listener.address.is_loopback());
        let first = |route: &Route| Before { all: local.into(), ..Before::default() }.mark(route, guarded);
        return gateway.routes.iter().map(|route| marked(route, first(route))).collect();
    }
    let mut before = Before::default();
    gateway.routes.iter().map(|route| marked(route, before.mark(route, guarded))).collect()
}

fn marked(route: &Route, mark: u64) -> String {
    format!("{}{MARK}{mark:016x}", route.name)
}

/// Whether no request fits two of the routes, since each is for one host of its own.
fn are_apart(routes: &[Route]) -> bool {
    let mut hosts = BTreeSet::new();
    routes.iter().all(|route| match route.hosts.as_slice() {
        [host] => !host.contains('*') && hosts.insert(host),
        _ => false,
    })
}

/// The preceding routes. Routes whose paths start with different segments never match the same request, so they are
/// kept apart by segment: a new route changes the marks of few others.
#[derive(Default)]
struct Before {
    /// The digest of all preceding routes.
    all: u64,
    /// The digest of those that can match any first segment.
    wild: u64,
    /// The digests of the others, by first segment.
    by_segment: HashMap<String, u64>,
}

impl Before {
    /// The mark of the next route, which is added to the preceding ones.
    fn mark(&mut self, route: &Route, guarded: &BTreeSet<&str>) -> u64 {
        let own = digest(&(&route.hosts, &route.matching));
        let services = route.backends.iter().map(|backend| backend.service.as_str());
        let services: Vec<_> = services.filter(|service| guarded.contains(service)).collect();
        let mark = match first_segment(&route.matching.path) {
            None => {
                let mark = digest(&(own, services, self.all));
                self.wild = digest(&(self.wild, own));
                mark
            }
            Some(segment) => {
                let earlier = self.by_segment.entry(segment.to_owned()).or_default();
                let mark = digest(&(own, services, self.wild, *earlier));
                *earlier = digest(&(*earlier, own));
                mark
            }
        };
        self.all = digest(&(self.all, own));
        mark
    }
}

/// The first segment of every path that matches. `None` if it is not fixed, or has several spellings.
fn first_segment(path: &PathMatch) -> Option<&str> {
    let text = match path {
        PathMatch::Exact(text) | PathMatch::Prefix(text) | PathMatch::Template(text) => text,
        PathMatch::Regex(_) => return None,
    };
    let segment = text.strip_prefix('/')?.split('/').next()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    (!segment.is_empty() && segment.bytes().all(plain)).then_some(segment)
}

/// A hash without a key, equal in every process of this version.
fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route_match::testing::gateway;

    /// The routes in both tables whose marks differ.
    fn changed(before: &str, after: &str) -> Vec<String> {
        let marks = |routes: &str| -> HashMap<String, String> {
            let gateway = gateway(routes);
            let names = gateway.routes.iter().map(|route| route.name.clone());
            names.zip(marked_names(&gateway, &BTreeSet::from(["t"]))).collect()
        };
        let (before, after) = (marks(before), marks(after));
        let differs = |name: &&String| after.get(*name).is_some_and(|mark| *mark != before[*name]);
        let mut changed: Vec<_> = before.keys().filter(differs).cloned().collect();
        changed.sort();
        changed
    }

    const SITE: &str = "{name: site, service: s}";
    const DOCS: &str = "{name: docs, service: s, match: {path: {prefix: /docs}}}";
    const USERS: &str = "{name: users, service: s, match: {path: {template: '/users/{id}'}}}";

    fn check(before: &[&str], after: &[&str], expect: &[&str]) {
        let list = |routes: &[&str]| format!("[{}]", routes.join(", "));
        assert_eq!(changed(&list(before), &list(after)), expect, "{before:?} {after:?}");
    }

    #[test]
    fn a_route_keeps_its_mark_while_the_same_requests_take_it() {
        check(&[DOCS, SITE], &[DOCS, SITE], &[]);
        check(&[DOCS, SITE], &[DOCS, SITE, USERS], &[]);
        // The weights of services do not change the mark.
        let weighted = |weight| {
            let services = format!("services: [{{service: s, weight: {weight}}}, {{service: t, weight: 1}}]");
            SITE.replace("service: s", &services)
        };
        check(&[&weighted(1)], &[&weighted(9)], &[]);
        // Neither does another service that no policy targets.
        check(&[SITE], &[&SITE.replace("service: s", "service: u")], &[]);
        check(&[DOCS, SITE], &[DOCS, &SITE.replace("service: s", "service: s, public: {reason: x}")], &[]);
        // A route in front of a catch-all takes requests from it, and from no other route.
        check(&[DOCS, SITE], &[USERS, DOCS, SITE], &["site"]);
        check(&[DOCS, USERS, SITE], &[USERS, SITE], &["site"]);
    }

    #[test]
    fn a_route_gets_another_mark_when_other_requests_may_take_it() {
        check(&[SITE], &[&SITE.replace("service", "match: {path: {prefix: /docs}}, service")], &["site"]);
        check(&[SITE], &[&SITE.replace("service: s", "service: t")], &["site"]);
        check(&[SITE], &[&SITE.replace("service", "hosts: [a.test], service")], &["site"]);
        check(&[SITE], &[&SITE.replace("service", "match: {methods: [GET]}, service")], &["site"]);
        check(&[DOCS, SITE], &[SITE, DOCS], &["docs", "site"]);
        check(&["{name: r, service: s, match: {path: {regex: '/.*'}}}", DOCS], &[DOCS], &["docs"]);
        // A first segment with several spellings could be any.
        let odd = "{name: odd, service: s, match: {path: {prefix: '/@me'}}}";
        check(&[odd, DOCS], &[DOCS], &["docs"]);
        let docs = "{name: all-docs, service: s, match: {path: {prefix: /docs/x}}}";
        check(&[docs, DOCS], &[DOCS], &["docs"]);
    }
}
