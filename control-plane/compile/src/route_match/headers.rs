//! The headers that decide which route a request takes.

use std::collections::BTreeSet;

use postern_model::{Gateway, PathMatch, Route};

/// The headers that any route of a gateway matches on, in lower case. Editing other headers cannot change the route.
pub fn matched_headers(gateway: &Gateway) -> BTreeSet<String> {
    gateway.routes.iter().flat_map(headers_of_route).collect()
}

/// The headers that a route matches on, in lower case: `:authority` for hosts, `:path` for paths and query parameters,
/// `:method` for methods, `cookie` for cookies, and headers by name.
pub fn headers_of_route(route: &Route) -> BTreeSet<String> {
    let matching = &route.matching;
    let parts = [
        (":authority", route.hosts.iter().any(|host| host != "*")),
        (":path", matching.path != PathMatch::default() || !matching.query.is_empty()),
        (":method", !matching.methods.is_empty()),
        ("cookie", !matching.cookies.is_empty()),
    ];
    let parts = parts.into_iter().filter(|(_, matched)| *matched).map(|(name, _)| name.to_owned());
    parts.chain(matching.headers.iter().map(|header| header.name.to_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route_match::testing::gateway;

    fn check(routes: &str, expect: &[&str]) {
        let names = matched_headers(&gateway(routes));
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), expect, "for `{routes}`");
    }

    #[test]
    fn names_what_each_kind_of_match_looks_at() {
        check("[{name: a, service: s}]", &[]);
        check("[{name: a, service: s, hosts: ['*'], match: {path: {prefix: /}}}]", &[]);
        check("[{name: a, service: s, hosts: [a.example]}]", &[":authority"]);
        check("[{name: a, service: s, match: {path: {prefix: /a}}}]", &[":path"]);
        check("[{name: a, service: s, match: {path: {regex: '/.*'}}}]", &[":path"]);
        check("[{name: a, service: s, match: {methods: [GET]}}]", &[":method"]);
        check("[{name: a, service: s, match: {headers: [{name: X-Preview, present: false}]}}]", &["x-preview"]);
        check("[{name: a, service: s, match: {query: [{name: v, exact: '1'}]}}]", &[":path"]);
        check("[{name: a, service: s, match: {cookies: [{name: v, regex: '1+'}]}}]", &["cookie"]);
    }

    #[test]
    fn collects_those_of_all_routes() {
        check(
            "[{name: a, service: s, hosts: ['*', '*.a.example'], match: {headers: [{name: b, exact: '1'}]}}, {name: b, \
             service: s, match: {methods: [GET], cookies: [{name: v, present: true}], headers: [{name: A, regex: x}]}}]",
            &[":authority", ":method", "a", "b", "cookie"],
        );
    }
}
