//! Projects `Gateway` to Envoy's route configuration. Each Envoy route has the user's name with a mark, by which the
//! filter finds the chain.

use std::{collections::BTreeSet, sync::Arc};

use envoy_types::pb::{
    envoy::config::route::v3::{
        RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, WeightedCluster,
        route::Action,
        route_action::{ClusterSpecifier, HostRewriteSpecifier},
        weighted_cluster::ClusterWeight,
    },
    google::protobuf::{UInt32Value, UInt64Value},
};
use postern_base::digest::Digest;
use postern_model::{Backend, EdgeHttp, Gateway, Timeouts};

use super::{
    Kept, Resource, edge,
    matcher::{Regexes, exact, header_match, header_matcher},
    path::path_specifier,
    request_match, retry, timeout,
};
use crate::{
    attach::{self, Attachment, Scope},
    params::Params,
    route_match,
};

const ANY_HOST: &str = "*";
/// The new path that the filter left. Without one, the path is not changed.
const NEW_PATH: &str = "%FILTER_STATE(wasm.postern_path:PLAIN)%";
/// The new host that the filter left, or the original one. A fallback is needed, since Envoy would write `-`.
const NEW_HOST: &str = concat!(
    r#"%COALESCE({"operators": [{"command": "FILTER_STATE", "param": "wasm.postern_host:PLAIN"}, "#,
    r#"{"command": "REQ", "param": ":authority"}]})%"#
);

/// The configuration of a route that is not in its gateway.
#[derive(Debug)]
struct Said {
    /// The marked name in Envoy.
    name: String,
    rewrites_path: bool,
    rewrites_host: bool,
    regexes: Regexes,
    timeouts: Timeouts,
    retry_policy: Option<RetryPolicy>,
}

impl Said {
    fn of(route: &postern_model::Route, name: String, rewrites: Rewrites, scope: &Scope<'_>) -> Self {
        Self {
            name,
            rewrites_path: rewrites.path,
            rewrites_host: rewrites.host,
            regexes: Regexes::of(scope.support),
            timeouts: attach::for_route(&scope.timeouts, route).conf,
            retry_policy: retry_policy(route, scope),
        }
    }
}

/// The retries of a route: its own, unless an attached Retry overrides them.
fn retry_policy(route: &postern_model::Route, scope: &Scope<'_>) -> Option<RetryPolicy> {
    match attach::own_retries(scope, route) {
        Some(own) => Some(retry::own(own)),
        None => retry::attached(&attach::for_route(&scope.retries, route).conf),
    }
}

/// What the chain of a route rewrites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rewrites {
    path: bool,
    host: bool,
}

impl Rewrites {
    fn of(route: &postern_model::Route, attachment: &Attachment<'_>) -> Self {
        let chain = attachment.routes.get(route.name.as_str()).and_then(|chain| attachment.chains.get(*chain));
        let mut rewrites = Self::default();
        for step in chain.into_iter().flat_map(|chain| &chain.request) {
            if let Ok(Params::Rewrite(params)) = step.params() {
                rewrites.path |= params.of_path().is_some();
                rewrites.host |= params.host.is_some();
            }
        }
        rewrites
    }
}

/// The route configuration of a gateway, which has the gateway's name.
pub(super) fn route_configuration(
    gateway: &postern_model::Resource<Gateway>,
    scope: &Scope<'_>,
    attachment: &Attachment<'_>,
    kept: &Kept,
) -> Arc<Resource> {
    let rewrites: Vec<_> = gateway.spec.routes.iter().map(|route| Rewrites::of(route, attachment)).collect();
    let guarded = route_match::guarded_services(scope.route_policies.iter().map(|policy| &policy.spec));
    let made_of = made_of(gateway, scope, &rewrites, &guarded);
    kept.get_or_make(made_of, || made(gateway, scope, &rewrites, &guarded))
}

/// The digest of all inputs of [`made`].
fn made_of(
    gateway: &postern_model::Resource<Gateway>,
    scope: &Scope<'_>,
    rewrites: &[Rewrites],
    guarded: &BTreeSet<&str>,
) -> Digest {
    let rewrites: Vec<u8> = rewrites.iter().map(|to| u8::from(to.path) | u8::from(to.host) << 1).collect();
    let support = format!("{:?}", scope.support);
    let guarded = Digest::of_parts(guarded.iter().map(|service| service.as_bytes()));
    let timeouts = scope.timeouts.iter().map(|timeout| timeout.digest().as_str().as_bytes());
    let retries = scope.retries.iter().map(|retry| retry.digest().as_str().as_bytes());
    let (timeouts, retries) = (Digest::of_parts(timeouts), Digest::of_parts(retries));
    Digest::of_parts(
        [gateway.digest().as_str(), guarded.as_str(), timeouts.as_str(), retries.as_str(), &support]
            .map(str::as_bytes)
            .into_iter()
            .chain([rewrites.as_slice()]),
    )
}

fn made(
    gateway: &postern_model::Resource<Gateway>,
    scope: &Scope<'_>,
    rewrites: &[Rewrites],
    guarded: &BTreeSet<&str>,
) -> Resource {
    let names = route_match::marked_names(&gateway.spec, guarded);
    let routes = gateway.spec.routes.iter().zip(names).zip(rewrites);
    let routes: Vec<_> =
        routes.map(|((route, name), rewrites)| (route, Said::of(route, name, *rewrites, scope))).collect();
    let hosts: BTreeSet<&str> = routes.iter().flat_map(|(route, _)| &route.hosts).map(String::as_str).collect();
    // There is always a virtual host for all other hosts, so that invalid hosts are refused whatever the routes are.
    let hosts = hosts.into_iter().chain([ANY_HOST]).collect::<BTreeSet<_>>();
    let message = RouteConfiguration {
        name: gateway.name.clone(),
        virtual_hosts: hosts.into_iter().map(|host| virtual_host(host, &gateway.spec.http, &routes)).collect(),
        ignore_port_in_host_matching: true,
        ..Default::default()
    };
    Resource::new(&gateway.name, &message)
}

/// A virtual host with all routes that its host can take, since Envoy searches only the most specific one.
fn virtual_host(host: &str, http: &EdgeHttp, routes: &[(&postern_model::Route, Said)]) -> VirtualHost {
    let reachable = routes
        .iter()
        .filter(|(route, _)| route.hosts.is_empty() || route.hosts.iter().any(|pattern| covers(pattern, host)));
    VirtualHost {
        name: host.to_owned(),
        domains: vec![host.to_owned()],
        routes: edge::refusals(http).chain(reachable.flat_map(|(route, said)| envoy_routes(route, said))).collect(),
        // Without it, requests by HTTP/2 are buffered only up to the stream window.
        request_body_buffer_limit: Some(UInt64Value { value: http.buffer_limit.into() }),
        ..Default::default()
    }
}

/// Whether `pattern` matches all hosts that `host` matches.
fn covers(pattern: &str, host: &str) -> bool {
    pattern == host
        || pattern == ANY_HOST
        || pattern.strip_prefix('*').is_some_and(|suffix| host.len() > suffix.len() && host.ends_with(suffix))
}

/// Envoy's routes for a route: one for each method, all with the same name.
fn envoy_routes(route: &postern_model::Route, said: &Said) -> Vec<Route> {
    let methods = &route.matching.methods;
    if methods.is_empty() {
        return vec![envoy_route(route, None, said)];
    }
    methods.iter().map(|method| envoy_route(route, Some(method), said)).collect()
}

fn envoy_route(route: &postern_model::Route, method: Option<&String>, said: &Said) -> Route {
    let methods = method.map(|method| header_matcher(":method", exact(method)));
    let matching = RouteMatch {
        path_specifier: Some(path_specifier(&route.matching.path, said.regexes)),
        headers: methods
            .into_iter()
            .chain(route.matching.headers.iter().map(|header| header_match(header, said.regexes)))
            .chain(route.matching.cookies.iter().map(|cookie| request_match::cookie(cookie, said.regexes)))
            .collect(),
        query_parameters: route.matching.query.iter().map(|query| request_match::query(query, said.regexes)).collect(),
        ..Default::default()
    };
    let mut action = RouteAction {
        cluster_specifier: Some(clusters(&route.backends)),
        retry_policy: said.retry_policy.clone(),
        path_rewrite: if said.rewrites_path { NEW_PATH.to_owned() } else { String::new() },
        host_rewrite_specifier: said.rewrites_host.then(|| HostRewriteSpecifier::HostRewrite(NEW_HOST.to_owned())),
        ..Default::default()
    };
    timeout::set_on_route(&mut action, &said.timeouts);
    Route {
        name: said.name.clone(),
        r#match: Some(matching),
        action: Some(Action::Route(action)),
        metadata: Some(edge::named(&route.name)),
        ..Default::default()
    }
}

fn clusters(backends: &[Backend]) -> ClusterSpecifier {
    if let [only] = backends {
        return ClusterSpecifier::Cluster(only.service.clone());
    }
    let weight = |backend: &Backend| ClusterWeight {
        name: backend.service.clone(),
        weight: Some(UInt32Value { value: backend.weight }),
        ..Default::default()
    };
    ClusterSpecifier::WeightedClusters(WeightedCluster {
        clusters: backends.iter().map(weight).collect(),
        ..Default::default()
    })
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
