//! Marks of routes: what a route is called in Envoy, so that a plan and a table of routes fit each other or the request is
//! refused.
//!
//! A node gets its plan and its routes by two resources, one a moment after the other. Names alone do not tell that a
//! route means the same in both: `site` may have been for everything and be for `/docs` now, while what it was for
//! before has another route and its own guard. So a route's name in Envoy ends in a mark, a digest of all that decides
//! which requests take it and what guards them there: its hosts and conditions, its services as far as policies are for
//! them, and the hosts and conditions of the routes before it that could take them first.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use postern_model::{Gateway, PathMatch, Route, RoutePolicy, TargetRef};

/// What stands between a route's name and its mark. No name has it.
pub const MARK: char = '#';

/// The services that policies are for.
pub fn guarded_services<'p>(policies: impl IntoIterator<Item = &'p RoutePolicy>) -> BTreeSet<&'p str> {
    let targets = policies.into_iter().flat_map(|policy| &policy.to).map(|entry| &entry.target_ref);
    targets.filter_map(TargetRef::service).collect()
}

/// The names that the routes of a gateway have in Envoy, in their order. `guarded` are the services that policies are for.
pub fn marked_names(gateway: &Gateway, guarded: &BTreeSet<&str>) -> Vec<String> {
    let mut before = Before::default();
    let name = |route: &Route| format!("{}{MARK}{:016x}", route.name, before.mark(route, guarded));
    gateway.routes.iter().map(name).collect()
}

/// The routes so far. Two that start with different segments never take the same request, so that they are told apart by
/// that: a new route changes the marks of few others.
#[derive(Default)]
struct Before {
    /// All of them.
    all: u64,
    /// Those that any first segment may lead to.
    wild: u64,
    /// The others, by their first segment.
    by_segment: HashMap<String, u64>,
}

impl Before {
    /// The mark of the next route.
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

/// The first segment of every path that is matched; `None` if there is no such segment, or it can be spelled in more than
/// one way.
fn first_segment(path: &PathMatch) -> Option<&str> {
    let text = match path {
        PathMatch::Exact(text) | PathMatch::Prefix(text) | PathMatch::Template(text) => text,
        PathMatch::Regex(_) => return None,
    };
    let segment = text.strip_prefix('/')?.split('/').next()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    (!segment.is_empty() && segment.bytes().all(plain)).then_some(segment)
}

/// The same in every process of this version: the hash has no key.
fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route_match::testing::gateway;

    /// Which of the routes that both tables have got another mark.
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
        // How many requests get to which of its services does not matter.
        let weighted = |weight| {
            let services = format!("services: [{{service: s, weight: {weight}}}, {{service: t, weight: 1}}]");
            SITE.replace("service: s", &services)
        };
        check(&[&weighted(1)], &[&weighted(9)], &[]);
        // Nor does another service, if no policy is for either.
        check(&[SITE], &[&SITE.replace("service: s", "service: u")], &[]);
        check(&[DOCS, SITE], &[DOCS, &SITE.replace("service: s", "service: s, public: {reason: x}")], &[]);
        // What is put before the one for everything takes requests from it, and from no other.
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
        // A first segment that can be spelled in other ways may be any.
        let odd = "{name: odd, service: s, match: {path: {prefix: '/@me'}}}";
        check(&[odd, DOCS], &[DOCS], &["docs"]);
        let docs = "{name: all-docs, service: s, match: {path: {prefix: /docs/x}}}";
        check(&[docs, DOCS], &[DOCS], &["docs"]);
    }
}
