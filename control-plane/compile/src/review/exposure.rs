//! The routes that a group of nodes has, as far as resources say, and what guards each of them.

use std::collections::{BTreeMap, HashMap};

use postern_model::{Diagnostic, EnvoyResource, Gateway, Resource, Route, RoutePolicy, TrafficPermission};

use super::guard::{Gaps, guarded};
use crate::attach::{Attachment, Scope};

/// All routes of a group of nodes by name. The empty name stands for those that no resource names.
pub(super) struct Exposure<'a> {
    pub(super) routes: BTreeMap<String, Exposed<'a>>,
    /// By chain.
    guards: HashMap<Option<usize>, Result<(), Gaps>>,
}

/// A route.
pub(super) struct Exposed<'a> {
    pub(super) place: RouteOrigin<'a>,
    /// Whether it is meant to be open, or has nothing behind it.
    pub(super) public: bool,
    chain: Option<usize>,
}

/// Where a route is written.
pub(super) enum RouteOrigin<'a> {
    /// A route of a gateway, by its place there.
    Gateway(&'a Resource<Gateway>, usize),
    /// In a resource that is written as Envoy's own.
    Raw(&'a Resource<EnvoyResource>, String),
    /// Nowhere: a policy names it, and only Envoy can have it.
    Policy(&'a Resource<RoutePolicy>),
    /// The same by a permission.
    Permission(&'a Resource<TrafficPermission>),
    /// Nowhere at all.
    Unnamed,
}

impl<'a> RouteOrigin<'a> {
    /// Something that is to be said of the route, where it is written.
    pub(super) fn diagnose(&self, message: String) -> Option<Diagnostic> {
        const TARGET: &str = "spec.targetRef.name";
        match self {
            Self::Gateway(gateway, index) => Some(gateway.diagnose(&format!("spec.routes[{index}].name"), message)),
            Self::Raw(raw, field) => Some(raw.diagnose(field, message)),
            Self::Policy(policy) => Some(policy.diagnose(TARGET, message)),
            Self::Permission(permission) => Some(permission.diagnose(TARGET, message)),
            Self::Unnamed => None,
        }
    }

    /// The route as its gateway declares it.
    pub(super) fn declared(&self) -> Option<&'a Route> {
        match self {
            Self::Gateway(gateway, index) => gateway.spec.routes.get(*index),
            _ => None,
        }
    }

    /// Whether nodes have the route because of these resources.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Gateway(..) | Self::Raw(..))
    }
}

impl<'a> Exposure<'a> {
    /// The routes of a scope, with what is attached to them.
    pub(super) fn of(scope: &Scope<'a>, attachment: &Attachment<'_>) -> Self {
        Self::of_routes(scope, attachment, |_| true)
    }

    /// The same for some of them, and for those that no resource names.
    pub(super) fn of_routes(scope: &Scope<'a>, attachment: &Attachment<'_>, concerns: impl Fn(&str) -> bool) -> Self {
        let mut routes = BTreeMap::new();
        let mut add = |name: &str, place: RouteOrigin<'a>, public: bool| {
            if !name.is_empty() && !concerns(name) {
                return;
            }
            let name = name.to_owned();
            let chain = attachment.routes.get(name.as_str()).copied().or(attachment.default);
            routes.entry(name).or_insert(Exposed { place, public, chain });
        };
        for gateway in &scope.gateways {
            for (index, route) in gateway.spec.routes.iter().enumerate() {
                add(&route.name, RouteOrigin::Gateway(gateway, index), route.public.is_some());
            }
        }
        for raw in &scope.envoy_resources {
            for route in raw.spec.resource.routes() {
                add(&route.name, RouteOrigin::Raw(raw, route.field), route.answers);
            }
        }
        for policy in &scope.route_policies {
            if let Some(route) = policy.spec.target_ref.route() {
                add(route, RouteOrigin::Policy(policy), false);
            }
        }
        for permission in &scope.traffic_permissions {
            if let Some(route) = permission.spec.target_ref.route() {
                add(route, RouteOrigin::Permission(permission), false);
            }
        }
        // Nodes that get no listeners from us have routes that nobody here knows.
        if scope.gateways.is_empty() {
            add("", RouteOrigin::Unnamed, false);
        }
        for policy in scope.route_policies.iter().filter(|policy| policy.spec.public.is_some()) {
            if let Some(route) = policy.spec.target_ref.route().and_then(|route| routes.get_mut(route)) {
                route.public = true;
            }
        }
        Self { guards: guards(attachment), routes }
    }

    /// What guards a route, or why nothing does.
    pub(super) fn guard(&self, route: &Exposed<'_>) -> Result<(), &[Diagnostic]> {
        match self.guards.get(&route.chain) {
            Some(Ok(())) => Ok(()),
            Some(Err(gaps)) => Err(gaps),
            None => Err(&[]),
        }
    }
}

fn guards(attachment: &Attachment<'_>) -> HashMap<Option<usize>, Result<(), Gaps>> {
    attachment.chains.iter().enumerate().map(|(index, chain)| (Some(index), guarded(chain))).collect()
}
