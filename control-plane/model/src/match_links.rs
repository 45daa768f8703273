//! Rules across the matches of routes without names: each route has one, and of two matches one is more specific.

use std::collections::HashMap;

use postern_base::diagnostic::{Diagnostic, quote};

use super::{
    Bundle, OverlayMatch, Resource, RoutePolicy,
    claims::{collisions, owner},
};

/// All errors of matches across resources.
pub(super) fn check(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut found = one_match_a_route(bundle);
    found.extend(matches_of_declared_routes(bundle));
    found.extend(equal_matches(bundle));
    found
}

fn one_match_a_route(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims =
        matches(bundle).map(|(policy, route, _)| ((policy.mesh(), route), || policy.diagnose("spec.match", "")));
    collisions(claims.collect(), |(_, name), first| format!("{} has the match of route {}", owner(first), quote(name)))
}

/// Reports matches of routes that resources declare: what these match is said there.
fn matches_of_declared_routes(bundle: &Bundle) -> Vec<Diagnostic> {
    // Most directories have no such matches, and many routes.
    if matches(bundle).next().is_none() {
        return Vec::new();
    }
    let mut declared: HashMap<(&str, String), String> = HashMap::new();
    for gateway in &bundle.gateways {
        let routes = gateway.spec.routes.iter();
        declared.extend(routes.map(|route| ((gateway.mesh(), route.name.clone()), gateway.label())));
    }
    for raw in &bundle.envoy_resources {
        declared.extend(raw.spec.resource.routes().into_iter().map(|route| ((raw.mesh(), route.name), raw.label())));
    }
    let by = |(policy, route, _): (&Resource<RoutePolicy>, &str, _)| {
        let by = declared.get(&(policy.mesh(), route.to_owned()))?;
        let message = format!("route {} is one of {by}, and is found by its name", quote(route));
        Some(policy.diagnose("spec.match", message))
    };
    matches(bundle).filter_map(by).collect()
}

/// Reports matches that are equally specific for the same requests: neither would be chosen.
fn equal_matches(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut claims = Vec::new();
    for (policy, _, matching) in matches(bundle) {
        let found =
            matching.claims().into_iter().map(|claim| ((policy.mesh(), claim), || policy.diagnose("spec.match", "")));
        claims.extend(found);
    }
    collisions(claims, |(_, (host, _, method)), first| {
        let host = if host == "*" { "any host".to_owned() } else { format!("host {}", quote(host)) };
        let method = method.map_or_else(|| "any method".to_owned(), |method| format!("method {}", quote(method)));
        format!("{} matches the same path for {host} and {method}: neither is more specific", owner(first))
    })
}

/// The policies that say which requests take their route.
fn matches(bundle: &Bundle) -> impl Iterator<Item = (&Resource<RoutePolicy>, &str, &OverlayMatch)> {
    bundle
        .route_policies
        .iter()
        .filter_map(|policy| Some((policy, policy.spec.target_ref.route()?, policy.spec.matching.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use crate::{File, read};

    /// Reads the text as a file named `0`, and compares the errors.
    fn check(text: &str, expect: &[&str]) {
        let errors = read(&[File { name: "0".to_owned(), bytes: text.into() }]).err();
        let errors = errors.map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }

    fn document(kind: &str, name: &str, spec: &str) -> String {
        format!("---\napiVersion: postern/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    }

    fn matched(name: &str, route: &str, matching: &str) -> String {
        let target = format!("{{kind: HTTPRoute, name: {route}}}");
        document(
            "RoutePolicy",
            name,
            &format!("{{targetRef: {target}, match: {matching}, request: [{{policy: headers}}]}}"),
        )
    }

    #[test]
    fn refuses_matches_of_which_neither_is_more_specific() {
        let admin = matched("admin", "admin", "{path: {prefix: /admin}}");
        let said = |other: &str, of: &str| {
            format!(
                "0:10:54: RoutePolicy `{other}`: spec.match: RoutePolicy `admin` (0:5) matches the same path for any host and \
                 {of}: neither is more specific"
            )
        };
        for equal in ["{path: {prefix: /admin/}}", "{hosts: ['*'], path: {template: '/%61dmin/{rest=**}'}}"] {
            check(&format!("{admin}{}", matched("b", "b", equal)), &[&said("b", "any method")]);
        }
        for other in [
            "{path: {exact: /admin}}",
            "{path: {prefix: /admin}, methods: [GET]}",
            "{hosts: [a.example], path: {prefix: /admin}}",
            "{path: {regex: /admin.*}}",
        ] {
            check(&format!("{admin}{}", matched("b", "b", other)), &[]);
        }
        let get = matched("admin", "admin", "{methods: [PUT, GET], path: {prefix: /admin}}");
        check(
            &format!("{get}{}", matched("b", "b", "{methods: [GET], path: {prefix: /admin}}")),
            &[&said("b", "method `GET`")],
        );
    }

    #[test]
    fn refuses_a_second_match_of_a_route_and_one_of_a_declared_route() {
        let admin = matched("a", "admin", "{path: {prefix: /admin}}");
        check(
            &format!("{admin}{}", matched("b", "admin", "{path: {prefix: /b}}")),
            &["0:10:58: RoutePolicy `b`: spec.match: RoutePolicy `a` (0:5) has the match of route `admin`"],
        );
        let declared =
            document("Gateway", "g", "{listeners: [{name: http, port: 80}], routes: [{name: admin, service: s}]}")
                + &document("Service", "s", "{endpoints: [{address: 127.0.0.1, port: 80}]}");
        check(
            &format!("{admin}{declared}"),
            &["0:5:58: RoutePolicy `a`: spec.match: route `admin` is one of Gateway `g`, and is found by its name"],
        );
    }
}
