//! What concerns a node: of all resources, those that select it or that it may refer to.

use std::{cmp::Reverse, collections::HashMap, ops::Deref};

use postern_base::node::NodeIdentity;
use postern_model::{Bundle, Declaration, Level, Reach, Resource, Selected, Settings, TargetRef};

use crate::support::Support;

/// The resources that concern a group of nodes. What is attached stands in the order of priority, the first to be
/// heard first.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    resources: Selected<'a>,
    /// How much of what they are served they understand.
    pub support: Support,
}

impl<'a> Deref for Scope<'a> {
    type Target = Selected<'a>;

    fn deref(&self) -> &Selected<'a> {
        &self.resources
    }
}

impl<'a> Scope<'a> {
    /// What concerns this node, and every other that the same resources select.
    pub fn of(bundle: &'a Bundle, node: &NodeIdentity) -> Self {
        let routes = Routes::new(bundle, node);
        let resources = bundle.select(|resource| routes.concern(resource).then(|| Rank::of(resource)));
        Self { resources, support: Support::of(node.envoy.as_deref()) }
    }

    /// What holds for their mesh.
    pub fn settings(&self) -> Option<&'a Resource<Settings>> {
        self.resources.settings.first().copied()
    }
}

/// In which order resources of one kind are heard: overrides first, among them the least specific, then the most specific;
/// of one level, the last by name. Those that are not attached keep the order of their names.
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

/// Which routes a node may have: those of its gateways, and those that no gateway declares, which may be Envoy's own.
struct Routes<'a> {
    node: &'a NodeIdentity,
    /// Every declared route, and whether it is one of the node's.
    declared: HashMap<&'a str, bool>,
}

impl<'a> Routes<'a> {
    fn new(bundle: &'a Bundle, node: &'a NodeIdentity) -> Self {
        let mut declared = HashMap::new();
        for gateway in bundle.gateways.iter().filter(|gateway| gateway.mesh() == node.mesh) {
            let mine = gateway.spec.target_ref.as_ref().is_none_or(|target| target.selects(node));
            declared.extend(gateway.spec.routes.iter().map(|route| (route.name.as_str(), mine)));
        }
        Self { node, declared }
    }

    fn concern(&self, resource: &Declaration<'_>) -> bool {
        let here = |target: &TargetRef| {
            let declared = target.route().and_then(|route| self.declared.get(route));
            declared.copied().unwrap_or(true) && target.selects(self.node)
        };
        resource.mesh == self.node.mesh && resource.reach.target().is_none_or(here)
    }
}
