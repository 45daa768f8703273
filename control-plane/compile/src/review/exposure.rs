//! The routes of a group of nodes, as far as resources tell, and whether each is guarded.

use std::{borrow::Cow, collections::HashMap};

use postern_model::{Diagnostic, EnvoyResource, Gateway, Resource, Route, RoutePolicy, TrafficPermission};

use super::guard::{Gaps, guarded};
use crate::attach::{Attachment, Scope};

/// The routes of a group of nodes by name. The empty name stands for all routes that no resource names.
pub(super) struct Exposure<'a> {
    pub(super) routes: HashMap<Cow<'a, str>, Exposed<'a>>,
    /// Whether each chain has a guard, by its index.
    guards: HashMap<Option<usize>, Result<(), Gaps>>,
}

/// A route, with what makes it open or guarded.
pub(super) struct Exposed<'a> {
    pub(super) place: RouteOrigin<'a>,
    /// Whether it needs no guard: it is declared `public`, or has no upstream.
    pub(super) public: bool,
    chain: Option<usize>,
}

/// The resource that names a route.
pub(super) enum RouteOrigin<'a> {
    /// A gateway, and the route's index in it.
    Gateway(&'a Resource<Gateway>, usize),
    /// An `EnvoyResource`, and the path of the name.
    Raw(&'a Resource<EnvoyResource>, String),
    /// Only a RoutePolicy: the route is Envoy's own.
    Policy(&'a Resource<RoutePolicy>),
    /// Only a TrafficPermission: the route is Envoy's own.
    Permission(&'a Resource<TrafficPermission>),
    /// None.
    Unnamed,
}

impl<'a> RouteOrigin<'a> {
    /// A diagnostic where the route is named. `None` for unnamed routes.
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

    /// The route, if a gateway declares it.
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
    /// All routes of a scope.
    pub(super) fn of(scope: &Scope<'a>, attachment: &Attachment<'_>) -> Self {
        Self::of_routes(scope, attachment, |_| true)
    }

    /// Like [`Self::of`], only for routes for which `concerns` returns true, and for unnamed routes.
    pub(super) fn of_routes(scope: &Scope<'a>, attachment: &Attachment<'_>, concerns: impl Fn(&str) -> bool) -> Self {
        let mut routes = HashMap::new();
        let mut add = |name: Cow<'a, str>, place: RouteOrigin<'a>, public: bool| {
            if !name.is_empty() && !concerns(&name) {
                return;
            }
            routes.entry(name).or_insert_with_key(|name| {
                let chain = attachment.routes.get(&**name).copied().or(attachment.default);
                Exposed { place, public, chain }
            });
        };
        for gateway in &scope.gateways {
            for (index, route) in gateway.spec.routes.iter().enumerate() {
                add(Cow::Borrowed(&route.name), RouteOrigin::Gateway(gateway, index), route.public.is_some());
            }
        }
        for raw in &scope.envoy_resources {
            for route in raw.spec.resource.routes() {
                add(Cow::Owned(route.name), RouteOrigin::Raw(raw, route.field), route.answers);
            }
        }
        for policy in &scope.route_policies {
            if let Some(route) = policy.spec.target_ref.route() {
                add(Cow::Borrowed(route), RouteOrigin::Policy(policy), false);
            }
        }
        for permission in &scope.traffic_permissions {
            if let Some(route) = permission.spec.target_ref.route() {
                add(Cow::Borrowed(route), RouteOrigin::Permission(permission), false);
            }
        }
        // Without our listeners, nodes have routes that are not known here.
        if !scope.has_gateways() {
            add(Cow::Borrowed(""), RouteOrigin::Unnamed, false);
        }
        for policy in scope.route_policies.iter().filter(|policy| policy.spec.public.is_some()) {
            if let Some(route) = policy.spec.target_ref.route().and_then(|route| routes.get_mut(route)) {
                route.public = true;
            }
        }
        Self { guards: guards(attachment), routes }
    }

    /// `Ok` if the route has a guard, else the steps that nearly are one.
    pub(super) fn guard(&self, route: &Exposed<'_>) -> Result<(), &[Diagnostic]> {
        match self.guards.get(&route.chain) {
            Some(Ok(())) => Ok(()),
            Some(Err(gaps)) => Err(gaps),
            None => Err(&[]),
        }
    }
}

fn guards(attachment: &Attachment<'_>) -> HashMap<Option<usize>, Result<(), Gaps>> {
    let guard = |(index, chain)| (Some(index), guarded(chain, &attachment.expressions));
    attachment.chains.iter().enumerate().map(guard).collect()
}
