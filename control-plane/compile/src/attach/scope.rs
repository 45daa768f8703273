//! The resources that concern a node: those that select it, and those that it may refer to.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, hash_map::Entry},
    ops::Deref,
};

use postern_base::node::NodeIdentity;
use postern_model::{
    Bundle, Declaration, Diagnostic, EnvoyResource, Gateway, Level, OUTBOUND_ROUTE, Reach, Resource, Selected,
    Settings, TargetRef,
};

use super::virtual_outbound::{self, Outbounds};
use crate::support::Support;

const VIRTUAL_OUTBOUND: &str = "VirtualOutbound";

/// The resources that concern a group of nodes. Attached kinds are sorted by priority, the highest first.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    resources: Selected<'a>,
    /// The Gateways that serve the nodes, and those that VirtualOutbounds come to behind them.
    pub gateways: Vec<&'a Resource<Gateway>>,
    /// The routes that only the nodes themselves reach.
    local_routes: BTreeSet<&'a str>,
    /// Why VirtualOutbounds do not come to what they say. Services concerned have no such route.
    pub outbound_faults: Vec<Diagnostic>,
    /// The resources with `omit: true`: of their type and name, the nodes have none.
    omitting: Selected<'a>,
    /// What the bootstraps of the nodes allow.
    pub support: Support,
    /// Whether every request is refused.
    pub refuses_all: bool,
}

impl<'a> Deref for Scope<'a> {
    type Target = Selected<'a>;

    fn deref(&self) -> &Selected<'a> {
        &self.resources
    }
}

impl<'a> Scope<'a> {
    /// The resources that concern a node, and all nodes of its group.
    pub fn of(bundle: &'a Bundle, node: &NodeIdentity) -> Self {
        Self::of_routes(bundle, node, |_| true)
    }

    /// Like [`Self::of`], without the resources that target a route for which `concerns` returns false.
    pub fn of_routes(bundle: &'a Bundle, node: &NodeIdentity, concerns: impl Fn(&str) -> bool) -> Self {
        let mut outbounds = outbounds_of(bundle, node);
        let routes = Routes::new(bundle, node, &outbounds, &concerns);
        let concerned =
            |resource: &Declaration<'_>| resource.reach.target().and_then(TargetRef::route).is_none_or(&concerns);
        let mut resources =
            bundle.select(|resource| (concerned(resource) && routes.concern(resource)).then(|| Rank::of(resource)));
        keep_most_specific(&mut resources.envoy_resources);
        let envoy_resources = resources.envoy_resources.extract_if(.., |resource| resource.spec.omit).collect();
        let omitting = Selected { envoy_resources, ..Selected::default() };
        let support = Support::of(node);
        virtual_outbound::separate(&mut outbounds, &resources.gateways);
        let Outbounds { gateways, faults: outbound_faults } = outbounds;
        let local = gateways.iter().filter(|gateway| gateway.is_local()).flat_map(|gateway| &gateway.spec.routes);
        let local_routes = local.map(|route| route.name.as_str()).collect();
        let gateways = resources.gateways.iter().copied().chain(gateways).collect();
        let refuses_all = bundle.refuses_all;
        Self { resources, gateways, local_routes, outbound_faults, omitting, support, refuses_all }
    }

    /// Whether Gateways of users serve the nodes. Otherwise the nodes may have routes that are not known here.
    pub fn has_gateways(&self) -> bool {
        !self.resources.gateways.is_empty()
    }

    /// The routes that only the nodes themselves reach.
    pub fn local_routes(&self) -> impl Iterator<Item = &'a str> {
        self.local_routes.iter().copied()
    }

    /// Whether only the nodes themselves reach a route: its requests come from no other source.
    pub fn is_local(&self, route: &str) -> bool {
        self.local_routes.contains(route)
    }

    /// All resources that have an effect on the nodes, including those that only omit others.
    pub fn concerning(&self) -> impl Iterator<Item = Declaration<'a>> {
        self.resources.iter().chain(self.omitting.iter())
    }

    /// The resources with `omit: true`, each of which the nodes would have otherwise.
    pub fn omitting(&self) -> &[&'a Resource<EnvoyResource>] {
        &self.omitting.envoy_resources
    }

    /// The settings of the nodes' mesh. `None` if it has none.
    pub fn settings(&self) -> Option<&'a Resource<Settings>> {
        self.resources.settings.first().copied()
    }
}

/// What the VirtualOutbounds of a node come to.
fn outbounds_of<'a>(bundle: &'a Bundle, node: &NodeIdentity) -> Outbounds<'a> {
    if bundle.virtual_outbounds.is_empty() {
        return Outbounds::default();
    }
    let here = |resource: &Declaration<'_>| {
        let selects = || resource.reach.target().is_some_and(|target| target.selects(node));
        resource.kind == VIRTUAL_OUTBOUND && resource.mesh == node.mesh && selects()
    };
    let attached = bundle.select(|resource| here(resource).then(|| Rank::of(resource))).virtual_outbounds;
    virtual_outbound::outbounds(bundle, &node.mesh, &attached)
}

/// The priority of a resource within its kind: overrides first, the least specific of them first; then the most
/// specific. Within a level, the name that is last in lexicographic order comes first. Resources that are not attached
/// are sorted by name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank<'a> {
    NotAttached,
    Override(Level, Reverse<&'a str>),
    Attached(Reverse<Level>, Reverse<&'a str>),
}

impl<'a> Rank<'a> {
    fn of(resource: &Declaration<'a>) -> Self {
        let name = Reverse(resource.name);
        match resource.reach {
            Reach::Mesh | Reach::Nodes(_) => Self::NotAttached,
            Reach::Attached { target, overrides: true } => Self::Override(target.level(), name),
            Reach::Attached { target, overrides: false } => Self::Attached(Reverse(target.level()), name),
        }
    }
}

/// Keeps one resource of each type and name: the most specific; within a level, the one whose own name is last in
/// lexicographic order.
fn keep_most_specific(resources: &mut Vec<&Resource<EnvoyResource>>) {
    fn key(resource: &Resource<EnvoyResource>) -> (Level, &str) {
        (resource.spec.level(), &resource.name)
    }
    let mut best = HashMap::with_capacity(resources.len());
    for resource in resources.iter().copied() {
        match best.entry((resource.spec.resource.kind(), resource.spec.resource.name())) {
            Entry::Vacant(entry) => drop(entry.insert(resource)),
            Entry::Occupied(mut entry) if key(entry.get()) < key(resource) => drop(entry.insert(resource)),
            Entry::Occupied(_) => {}
        }
    }
    if best.len() < resources.len() {
        let is_best = |resource: &&Resource<EnvoyResource>| {
            let named = best.get(&(resource.spec.resource.kind(), resource.spec.resource.name()));
            named.is_some_and(|best| std::ptr::eq(*best, *resource))
        };
        resources.retain(is_best);
    }
}

/// The routes that a node may have: those of its gateways, generated ones included, and those that no gateway declares
/// and that may be Envoy's own.
struct Routes<'a> {
    node: &'a NodeIdentity,
    /// The declared routes that are looked at, and whether the node has each.
    declared: HashMap<&'a str, bool>,
    /// The routes that VirtualOutbounds come to at the node. `None` if its mesh has no VirtualOutbounds.
    outbound: Option<BTreeSet<&'a str>>,
}

impl<'a> Routes<'a> {
    fn new(
        bundle: &'a Bundle,
        node: &'a NodeIdentity,
        outbounds: &Outbounds<'a>,
        concerns: impl Fn(&str) -> bool,
    ) -> Self {
        let mut declared = HashMap::new();
        for gateway in bundle.gateways.iter().filter(|gateway| gateway.mesh() == node.mesh) {
            let mine = gateway.spec.target_ref.as_ref().is_none_or(|target| target.selects(node));
            let names = gateway.spec.routes.iter().map(|route| route.name.as_str());
            declared.extend(names.filter(|name| concerns(name)).map(|name| (name, mine)));
        }
        let has_outbounds = bundle.virtual_outbounds.iter().any(|outbound| outbound.mesh() == node.mesh);
        let routes = outbounds.gateways.iter().flat_map(|gateway| &gateway.spec.routes);
        let outbound = has_outbounds.then(|| routes.map(|route| route.name.as_str()).collect());
        Self { node, declared, outbound }
    }

    fn may_have(&self, route: &str) -> bool {
        match &self.outbound {
            Some(routes) if route.starts_with(OUTBOUND_ROUTE) => routes.contains(route),
            _ => self.declared.get(route).copied().unwrap_or(true),
        }
    }

    fn concern(&self, resource: &Declaration<'_>) -> bool {
        let here =
            |target: &TargetRef| target.route().is_none_or(|route| self.may_have(route)) && target.selects(self.node);
        resource.mesh == self.node.mesh && resource.reach.target().is_none_or(here)
    }
}
