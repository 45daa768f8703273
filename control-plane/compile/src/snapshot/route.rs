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
use postern_model::{ANY_HOST, Backend, EdgeHttp, Gateway, MISDIRECTED_ROUTE, Timeouts, covers};

use super::{
    Kept, Resource, edge,
    matcher::{Regexes, exact, header_match, header_matcher},
    path::path_specifier,
    request_match, retry, timeout,
};
use crate::{
    attach::{self, Attachment, Scope},
    params::Params,
    port::{Behind, Port},
    route_match,
};

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
        // By the name first: most steps are others, and routes are many.
        let steps = chain.into_iter().flat_map(|chain| &chain.request);
        for step in steps.filter(|step| step.step.policy == "rewrite") {
            if let Ok(Params::Rewrite(params)) = step.params() {
                rewrites.path |= params.of_path().is_some();
                rewrites.host |= params.host.is_some();
            }
        }
        rewrites
    }
}

/// The route configurations of a gateway: one with all of its routes, which has the gateway's name, and one for each
/// kind of connections that serves some hosts only.
pub(super) fn route_configurations(
    gateway: &postern_model::Resource<Gateway>,
    ports: &[Port<'_>],
    scope: &Scope<'_>,
    attachment: &Attachment<'_>,
    kept: &Kept,
) -> Vec<Arc<Resource>> {
    let rewrites: Vec<_> = gateway.spec.routes.iter().map(|route| Rewrites::of(route, attachment)).collect();
    let guarded = route_match::guarded_services(scope.route_policies.iter().map(|policy| &policy.spec));
    let made_of = made_of(gateway, scope, &rewrites, &guarded);
    let hosts = gateway.spec.routes.iter().flat_map(|route| &route.hosts).map(String::as_str);
    // There is always a virtual host for all other hosts, so that invalid hosts are refused whatever the routes are.
    let served = hosts.chain([ANY_HOST]).collect();
    let whole = (gateway.name.clone(), Behind { served, ..Behind::default() });
    let several = ports.iter().filter(|port| port.has_several_doors());
    let doors = several.flat_map(|port| port.doors.iter().map(move |door| (port, door)));
    let own = doors.filter(|(_, door)| door.gateway.name == gateway.name);
    let parts = own.map(|(port, door)| (door.routes(port), port.behind(door)));
    let make = |(name, behind): (String, Behind<'_>)| {
        let made_of = match name == gateway.name {
            true => made_of.clone(),
            false => Digest::of_parts(
                [made_of.as_str(), &name]
                    .into_iter()
                    .chain(behind.served.iter().copied())
                    .chain([""])
                    .chain(behind.misdirected.iter().copied())
                    .map(str::as_bytes),
            ),
        };
        kept.get_or_make(made_of, || made(&name, &behind, gateway, scope, &rewrites, &guarded))
    };
    [whole].into_iter().chain(parts).map(make).collect()
}

/// The digest of all inputs of [`made`] for all hosts.
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
    name: &str,
    behind: &Behind<'_>,
    gateway: &postern_model::Resource<Gateway>,
    scope: &Scope<'_>,
    rewrites: &[Rewrites],
    guarded: &BTreeSet<&str>,
) -> Resource {
    let names = route_match::marked_names(&gateway.spec, guarded);
    let routes = gateway.spec.routes.iter().zip(names).zip(rewrites);
    let routes: Vec<_> =
        routes.map(|((route, name), rewrites)| (route, Said::of(route, name, *rewrites, scope))).collect();
    let http = &gateway.spec.http;
    let hosts = behind.served.iter().map(|host| virtual_host(host, http, &routes));
    let message = RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: hosts.chain(misdirected(&behind.misdirected, http)).collect(),
        ignore_port_in_host_matching: true,
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// The virtual host of all hosts that are not served.
fn misdirected(hosts: &BTreeSet<&str>, http: &EdgeHttp) -> Option<VirtualHost> {
    (!hosts.is_empty()).then(|| VirtualHost {
        name: MISDIRECTED_ROUTE.to_owned(),
        domains: hosts.iter().map(|host| (*host).to_owned()).collect(),
        routes: edge::refusals(http).chain([edge::misdirected()]).collect(),
        ..Default::default()
    })
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
