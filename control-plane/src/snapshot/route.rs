//! `Gateway` → Envoy's route configuration. Every Envoy route has the user's name for it: the filter finds the chain by it.

use std::collections::BTreeSet;

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

use super::{Resource, timeout};
use crate::{
    attach::{self, Attachment, Scope},
    model::{self, Gateway, PathMatch, Timeouts},
};

const ANY_HOST: &str = "*";
/// What the filter leaves for the router; a path that it did not leave stays as it is.
const NEW_PATH: &str = "%FILTER_STATE(wasm.postern_path:PLAIN)%";
/// For the host, Envoy writes `-` for what is not there: then it is the host that came.
const NEW_HOST: &str = concat!(
    r#"%COALESCE({"operators": [{"command": "FILTER_STATE", "param": "wasm.postern_host:PLAIN"}, "#,
    r#"{"command": "REQ", "param": ":authority"}]})%"#
);

/// What is said of a route elsewhere than in its gateway.
#[derive(Debug, Default)]
struct Said {
    rewrites_path: bool,
    rewrites_host: bool,
    timeouts: Timeouts,
}

impl Said {
    fn of(route: &model::Route, scope: &Scope<'_>, attachment: &Attachment<'_>) -> Self {
        let chain = attachment.routes.get(route.name.as_str()).and_then(|chain| attachment.chains.get(*chain));
        let rewrites =
            || chain.into_iter().flat_map(|chain| &chain.request).filter(|step| step.step.policy == "rewrite");
        let has =
            |names: &[&str]| rewrites().any(|step| names.iter().any(|name| step.step.params.get(*name).is_some()));
        Self {
            rewrites_path: has(&["prefix", "template", "regex"]),
            rewrites_host: has(&["host"]),
            timeouts: attach::for_route(scope, route).conf,
        }
    }
}

/// The routes of a gateway, under its name.
pub(super) fn route_configuration(
    gateway: &model::Resource<Gateway>,
    scope: &Scope<'_>,
    attachment: &Attachment<'_>,
) -> Resource {
    let routes: Vec<_> = gateway.spec.routes.iter().map(|route| (route, Said::of(route, scope, attachment))).collect();
    let hosts: BTreeSet<&str> = routes.iter().flat_map(|(route, _)| &route.hosts).map(String::as_str).collect();
    let message = RouteConfiguration {
        name: gateway.name.clone(),
        virtual_hosts: hosts.into_iter().map(|host| virtual_host(host, &routes)).collect(),
        ..Default::default()
    };
    Resource::new(&gateway.name, &message)
}

/// Envoy picks the most specific virtual host and looks no further, so each holds all routes that its host can reach.
fn virtual_host(host: &str, routes: &[(&model::Route, Said)]) -> VirtualHost {
    let reachable = routes
        .iter()
        .filter(|(route, _)| route.hosts.is_empty() || route.hosts.iter().any(|pattern| covers(pattern, host)));
    VirtualHost {
        name: host.to_owned(),
        domains: vec![host.to_owned()],
        routes: reachable.flat_map(|(route, said)| envoy_routes(route, said)).collect(),
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
fn envoy_routes(route: &model::Route, said: &Said) -> Vec<Route> {
    let methods = &route.matching.methods;
    if methods.is_empty() {
        return vec![envoy_route(route, None, said)];
    }
    methods.iter().map(|method| envoy_route(route, Some(method), said)).collect()
}

fn envoy_route(route: &model::Route, method: Option<&String>, said: &Said) -> Route {
    let matching = RouteMatch {
        path_specifier: Some(path_specifier(&route.matching.path)),
        headers: method.map(|method| method_matcher(method)).into_iter().collect(),
        ..Default::default()
    };
    let cluster = ClusterSpecifier::Cluster(route.service.clone());
    let mut action = RouteAction {
        cluster_specifier: Some(cluster),
        path_rewrite: if said.rewrites_path { NEW_PATH.to_owned() } else { String::new() },
        host_rewrite_specifier: said.rewrites_host.then(|| HostRewriteSpecifier::HostRewrite(NEW_HOST.to_owned())),
        ..Default::default()
    };
    timeout::set_on_route(&mut action, &said.timeouts);
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
