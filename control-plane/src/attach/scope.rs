//! What concerns a node: of all resources, those that select it or that it may refer to.

use std::{cmp::Reverse, collections::HashMap};

use crate::{
    model::{
        AccessLog, Agent, Bundle, Consumer, EnvoyResource, Gateway, Issuer, Resource, RoutePolicy, Service, Settings,
        TargetRef, Timeout, TrafficPermission,
    },
    node::NodeIdentity,
    support::Support,
};

/// What is attached to something.
pub trait Targeted {
    /// What it is attached to.
    fn target_ref(&self) -> &TargetRef;

    /// Whether nothing more specific can change what it says.
    fn overrides(&self) -> bool;
}

macro_rules! targeted {
    ($($kind:ty),*) => {$(
        impl Targeted for $kind {
            fn target_ref(&self) -> &TargetRef {
                &self.target_ref
            }

            fn overrides(&self) -> bool {
                self.overrides
            }
        }
    )*};
}

targeted!(RoutePolicy, TrafficPermission, Timeout, AccessLog);

/// The resources that concern a group of nodes. What is attached stands in the order of priority, the first to be
/// heard first.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    /// The gateways that the nodes serve.
    pub gateways: Vec<&'a Resource<Gateway>>,
    /// The services that they may call.
    pub services: Vec<&'a Resource<Service>>,
    /// What they are served as it is.
    pub envoy_resources: Vec<&'a Resource<EnvoyResource>>,
    /// The callers that they know.
    pub consumers: Vec<&'a Resource<Consumer>>,
    /// The agents that they may call.
    pub agents: Vec<&'a Resource<Agent>>,
    /// The issuers that they know.
    pub issuers: Vec<&'a Resource<Issuer>>,
    /// What holds for their mesh.
    pub settings: Option<&'a Resource<Settings>>,
    /// Their chains.
    pub route_policies: Vec<&'a Resource<RoutePolicy>>,
    /// Who may call them.
    pub traffic_permissions: Vec<&'a Resource<TrafficPermission>>,
    /// How long they wait.
    pub timeouts: Vec<&'a Resource<Timeout>>,
    /// What they log.
    pub access_logs: Vec<&'a Resource<AccessLog>>,
    /// How much of what they are served they understand.
    pub support: Support,
}

impl<'a> Scope<'a> {
    /// What concerns this node, and every other that the same resources select.
    pub fn of(bundle: &'a Bundle, node: &NodeIdentity) -> Self {
        let mine = |gateway: &&Resource<Gateway>| {
            gateway.mesh() == node.mesh && gateway.spec.target_ref.as_ref().is_none_or(|target| target.selects(node))
        };
        let raw = |raw: &&Resource<EnvoyResource>| {
            raw.mesh() == node.mesh && raw.spec.target_ref.as_ref().is_none_or(|target| target.selects(node))
        };
        let gateways: Vec<_> = bundle.gateways.iter().filter(mine).collect();
        let routes = Routes::new(bundle, &gateways, node);
        Self {
            services: of_mesh(&bundle.services, node),
            envoy_resources: bundle.envoy_resources.iter().filter(raw).collect(),
            consumers: of_mesh(&bundle.consumers, node),
            agents: of_mesh(&bundle.agents, node),
            issuers: of_mesh(&bundle.issuers, node),
            settings: bundle.settings.iter().find(|settings| settings.mesh() == node.mesh),
            route_policies: attached(&bundle.route_policies, &routes),
            traffic_permissions: attached(&bundle.traffic_permissions, &routes),
            timeouts: attached(&bundle.timeouts, &routes),
            access_logs: attached(&bundle.access_logs, &routes),
            gateways,
            support: Support::of(node.envoy.as_deref()),
        }
    }
}

fn of_mesh<'a, T>(resources: &'a [Resource<T>], node: &NodeIdentity) -> Vec<&'a Resource<T>> {
    resources.iter().filter(|resource| resource.mesh() == node.mesh).collect()
}

/// Which routes a node may have: those of its gateways, and those that no gateway declares, which may be Envoy's own.
struct Routes<'a> {
    node: &'a NodeIdentity,
    /// Every declared route, and whether it is one of the node's.
    declared: HashMap<&'a str, bool>,
}

impl<'a> Routes<'a> {
    fn new(bundle: &'a Bundle, mine: &[&Resource<Gateway>], node: &'a NodeIdentity) -> Self {
        let mut declared = HashMap::new();
        for gateway in bundle.gateways.iter().filter(|gateway| gateway.mesh() == node.mesh) {
            let mine = mine.iter().any(|other| other.name == gateway.name);
            declared.extend(gateway.spec.routes.iter().map(|route| (route.name.as_str(), mine)));
        }
        Self { node, declared }
    }

    fn concern<T: Targeted>(&self, resource: &Resource<T>) -> bool {
        let target = resource.spec.target_ref();
        let here = target.route().is_none_or(|route| self.declared.get(route).copied().unwrap_or(true));
        resource.mesh() == self.node.mesh && here && target.selects(self.node)
    }
}

/// Those that concern the node, by priority: overrides first, among them the least specific, then the most specific; of
/// one level, the last by name.
fn attached<'a, T: Targeted>(resources: &'a [Resource<T>], routes: &Routes<'_>) -> Vec<&'a Resource<T>> {
    // They stand in the order of their names.
    let mut found: Vec<_> = resources.iter().rev().filter(|resource| routes.concern(resource)).collect();
    found.sort_by_key(|resource| {
        let level = resource.spec.target_ref().level();
        match resource.spec.overrides() {
            true => (0, Some(level), None),
            false => (1, None, Some(Reverse(level))),
        }
    });
    found
}
