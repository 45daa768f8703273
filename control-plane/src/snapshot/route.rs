//! `Gateway` → Envoy's route configuration. Every Envoy route has the user's name for it: the filter finds the chain by it.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::{
    config::route::v3::{
        HeaderMatcher, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
        header_matcher::HeaderMatchSpecifier,
        route::Action,
        route_action::{ClusterSpecifier, HostRewriteSpecifier},
        route_match::PathSpecifier,
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};

use super::Resource;
use crate::model::{self, Bundle, Gateway, PathMatch, RoutePolicy};

const ANY_HOST: &str = "*";
/// What the filter leaves for the router; a path that it did not leave stays as it is.
const NEW_PATH: &str = "%FILTER_STATE(wasm.postern_path:PLAIN)%";
/// For the host, Envoy writes `-` for what is not there: then it is the host that came.
const NEW_HOST: &str = concat!(
    r#"%COALESCE({"operators": [{"command": "FILTER_STATE", "param": "wasm.postern_host:PLAIN"}, "#,
    r#"{"command": "REQ", "param": ":authority"}]})%"#
);

/// What a route's chain may rewrite.
#[derive(Debug, Clone, Copy, Default)]
struct Rewrites {
    path: bool,
    host: bool,
}

impl Rewrites {
    fn of(policy: &RoutePolicy) -> Self {
        let steps = || policy.request.iter().filter(|step| step.policy == "rewrite");
        let has = |names: &[&str]| steps().any(|step| names.iter().any(|name| step.params.get(*name).is_some()));
        Self { path: has(&["prefix", "template", "regex"]), host: has(&["host"]) }
    }
}

/// The routes of a gateway, under its name.
pub(super) fn route_configuration(gateway: &model::Resource<Gateway>, bundle: &Bundle) -> Resource {
    let routes = &gateway.spec.routes;
    let rewritten: BTreeMap<&str, Rewrites> = bundle
        .route_policies
        .iter()
        .map(|policy| (policy.spec.target_ref.name.as_str(), Rewrites::of(&policy.spec)))
        .collect();
    let hosts: BTreeSet<&str> = routes.iter().flat_map(|route| &route.hosts).map(String::as_str).collect();
    let message = RouteConfiguration {
        name: gateway.name.clone(),
        virtual_hosts: hosts.into_iter().map(|host| virtual_host(host, routes, &rewritten)).collect(),
        ..Default::default()
    };
    Resource::new(&gateway.name, &message)
}

/// Envoy picks the most specific virtual host and looks no further, so each holds all routes that its host can reach.
fn virtual_host(host: &str, routes: &[model::Route], rewritten: &BTreeMap<&str, Rewrites>) -> VirtualHost {
    let reachable =
        routes.iter().filter(|route| route.hosts.is_empty() || route.hosts.iter().any(|pattern| covers(pattern, host)));
    VirtualHost {
        name: host.to_owned(),
        domains: vec![host.to_owned()],
        routes: reachable.flat_map(|route| envoy_routes(route, rewritten.get(route.name.as_str()).copied())).collect(),
        ..Default::default()
    }
}

/// Whether every host that `host` stands for is one that `pattern` stands for.
fn covers(pattern: &str, host: &str) -> bool {
    pattern == host
        || pattern == ANY_HOST
        || pattern.strip_prefix('*').is_some_and(|suffix| host.len() > suffix.len() && host.ends_with(suffix))
}

/// One Envoy route for each method, all under the one name.
fn envoy_routes(route: &model::Route, rewrites: Option<Rewrites>) -> Vec<Route> {
    let rewrites = rewrites.unwrap_or_default();
    let methods = &route.matching.methods;
    if methods.is_empty() {
        return vec![envoy_route(route, None, rewrites)];
    }
    methods.iter().map(|method| envoy_route(route, Some(method), rewrites)).collect()
}

fn envoy_route(route: &model::Route, method: Option<&String>, rewrites: Rewrites) -> Route {
    let matching = RouteMatch {
        path_specifier: Some(path_specifier(&route.matching.path)),
        headers: method.map(|method| method_matcher(method)).into_iter().collect(),
        ..Default::default()
    };
    let cluster = ClusterSpecifier::Cluster(route.service.clone());
    let action = RouteAction {
        cluster_specifier: Some(cluster),
        path_rewrite: if rewrites.path { NEW_PATH.to_owned() } else { String::new() },
        host_rewrite_specifier: rewrites.host.then(|| HostRewriteSpecifier::HostRewrite(NEW_HOST.to_owned())),
        ..Default::default()
    };
    Route {
        name: route.name.clone(),
        r#match: Some(matching),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}

/// A prefix ends where a segment ends: `/users` is `/users` and `/users/7`, never `/userspace`.
fn path_specifier(path: &PathMatch) -> PathSpecifier {
    match path {
        PathMatch::Exact(path) => PathSpecifier::Path(path.clone()),
        PathMatch::Prefix(prefix) if prefix.ends_with('/') => PathSpecifier::Prefix(prefix.clone()),
        PathMatch::Prefix(prefix) => PathSpecifier::PathSeparatedPrefix(prefix.clone()),
    }
}

fn method_matcher(method: &str) -> HeaderMatcher {
    let exact = StringMatcher { match_pattern: Some(MatchPattern::Exact(method.to_owned())), ..Default::default() };
    HeaderMatcher {
        name: ":method".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact)),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_which_hosts_a_pattern_covers() {
        let check = |pattern, host, expect| assert_eq!(covers(pattern, host), expect, "{pattern} {host}");
        check("a.example.com", "a.example.com", true);
        check("a.example.com", "b.example.com", false);
        check("*.example.com", "a.example.com", true);
        check("*.example.com", "*.a.example.com", true);
        check("*.example.com", "*.example.com", true);
        check("*.example.com", "example.com", false);
        check("*", "a.example.com", true);
        check("a.example.com", "*", false);
    }
}
