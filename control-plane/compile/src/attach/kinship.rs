//! Which nodes are one group: those that the same resources concern. It decides by what resources target and by what a node
//! says of itself, and makes up nodes for groups that have none yet.

use std::collections::{BTreeMap, BTreeSet};

use postern_base::node::{DEFAULT_MESH, NodeIdentity};
use postern_model::{Bundle, Resource, TargetRef};

/// How many groups of imagined nodes are looked at before a change is admitted. What is past it is compiled when its first
/// node comes.
pub const MOST_IMAGINED: usize = 512;

/// What tells nodes apart: every target that selects nodes, with its mesh, once, and the meshes that have resources.
#[derive(Debug)]
pub struct Kinship {
    targets: Vec<(String, TargetRef)>,
    meshes: BTreeSet<String>,
}

/// The mesh of a node, and the places of the targets that select it: nodes of one signature are of one group. Meshes that
/// have no resources are one, without a name: whoever makes up a mesh makes no group.
pub type Signature = (String, Vec<usize>);

impl Kinship {
    /// By all targets of some bundles.
    pub fn of<'a>(bundles: impl IntoIterator<Item = &'a Bundle>) -> Self {
        let (mut all, mut meshes) = (BTreeSet::new(), BTreeSet::new());
        for bundle in bundles {
            all.extend(targets(bundle));
            meshes.extend(every_mesh(bundle));
        }
        Self { targets: all.into_iter().collect(), meshes }
    }

    /// What tells this node's group from others.
    pub fn signature(&self, node: &NodeIdentity) -> Signature {
        let selects = |(mesh, target): &(String, TargetRef)| *mesh == node.mesh && target.selects(node);
        let selecting = self.targets.iter().enumerate().filter(|(_, target)| selects(target));
        let mesh = self.meshes.get(&node.mesh).cloned().unwrap_or_default();
        (mesh, selecting.map(|(index, _)| index).collect())
    }

    /// A group of nodes by what selects them.
    pub fn describe(&self, (mesh, targets): &Signature) -> String {
        let targets = targets.iter().filter_map(|index| self.targets.get(*index));
        let mut parts: Vec<_> = targets.map(|(_, target)| target.to_string()).collect();
        match mesh.as_str() {
            "" => parts.insert(0, "meshes without resources".to_owned()),
            DEFAULT_MESH if !parts.is_empty() => {}
            mesh => parts.insert(0, format!("mesh `{mesh}`")),
        }
        parts.join(", ")
    }
}

/// The meshes of all resources.
fn every_mesh(bundle: &Bundle) -> impl Iterator<Item = String> {
    bundle.iter().map(|resource| resource.mesh.to_owned())
}

/// Every target that selects nodes, with its mesh.
fn targets(bundle: &Bundle) -> BTreeSet<(String, TargetRef)> {
    let all = bundle.iter().filter_map(|resource| Some((resource.mesh, resource.reach.target()?)));
    let selective = all.filter(|(_, target)| target.route().is_none() && **target != TargetRef::Mesh);
    selective.map(|(mesh, target)| (mesh.to_owned(), target.clone())).collect()
}

/// Nodes that differ in what selects them: one of each mesh that says nothing of itself, and one for every target.
pub fn imagined_nodes(bundle: &Bundle) -> impl Iterator<Item = NodeIdentity> {
    let anonymous = meshes(bundle).into_iter().map(|mesh| NodeIdentity { mesh, ..NodeIdentity::default() });
    anonymous.chain(targets(bundle).into_iter().map(|(mesh, target)| imagine(&mesh, &target)))
}

/// One imagined node for each group that these resources tell apart, up to a limit.
pub fn imagined_groups(bundle: &Bundle) -> Vec<NodeIdentity> {
    let kinship = Kinship::of([bundle]);
    let mut seen = BTreeSet::new();
    imagined_nodes(bundle).filter(|node| seen.insert(kinship.signature(node))).take(MOST_IMAGINED).collect()
}

/// The groups that there are, each with a node that stands for it, and those that may be. What is past a limit is left out.
pub fn groups<'a>(
    before: &Bundle,
    after: &Bundle,
    live: &'a [NodeIdentity],
) -> Vec<(NodeIdentity, Vec<&'a NodeIdentity>)> {
    let kinship = Kinship::of([before, after]);
    let mut groups: BTreeMap<_, (NodeIdentity, Vec<&NodeIdentity>)> = BTreeMap::new();
    for node in live {
        let group = groups.entry(kinship.signature(node)).or_insert_with(|| (node.clone(), Vec::new()));
        group.1.push(node);
    }
    for node in imagined_nodes(before).chain(imagined_nodes(after)) {
        if groups.len() < MOST_IMAGINED {
            groups.entry(kinship.signature(&node)).or_insert_with(|| (node, Vec::new()));
        }
    }
    groups.into_values().collect()
}

fn meshes(bundle: &Bundle) -> BTreeSet<String> {
    let gateways = bundle.gateways.iter().map(Resource::mesh);
    let policies = bundle.route_policies.iter().map(Resource::mesh);
    let services = bundle.services.iter().map(Resource::mesh);
    let raw = bundle.envoy_resources.iter().map(Resource::mesh);
    let permissions = bundle.traffic_permissions.iter().map(Resource::mesh);
    gateways
        .chain(policies)
        .chain(services)
        .chain(raw)
        .chain(permissions)
        .chain([DEFAULT_MESH])
        .map(str::to_owned)
        .collect()
}

/// A node that a target selects, and that is nothing else.
fn imagine(mesh: &str, target: &TargetRef) -> NodeIdentity {
    let id = match target {
        TargetRef::Proxy { name, .. } => name.clone(),
        _ => String::new(),
    };
    NodeIdentity {
        id,
        service: target.service().unwrap_or_default().to_owned(),
        mesh: mesh.to_owned(),
        tags: target.tags().cloned().unwrap_or_default(),
        envoy: None,
    }
}
