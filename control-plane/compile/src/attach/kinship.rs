//! Groups of nodes: nodes that the same resources concern are one group. Decided by the targets of resources and by
//! node identities. For groups without a live node, imagined nodes are made.

use std::collections::{BTreeMap, BTreeSet};

use postern_base::node::{DEFAULT_MESH, NodeIdentity};
use postern_model::{Bundle, Resource, TargetRef};

/// The largest number of imagined groups that are checked before a change is admitted. Further groups are compiled when
/// their first node connects.
pub const MOST_IMAGINED: usize = 512;

/// What distinguishes groups: each target that selects nodes, with its mesh, and the meshes that have resources.
#[derive(Debug)]
pub struct Kinship {
    targets: Vec<(String, TargetRef)>,
    meshes: BTreeSet<String>,
}

/// The mesh of a node, and the indices of the targets that select it. Nodes with equal signatures are one group. All
/// meshes without resources share the empty name, so that invented meshes do not make groups.
pub type Signature = (String, Vec<usize>);

impl Kinship {
    /// By the targets and meshes of some bundles.
    pub fn of<'a>(bundles: impl IntoIterator<Item = &'a Bundle>) -> Self {
        let (mut all, mut meshes) = (BTreeSet::new(), BTreeSet::new());
        for bundle in bundles {
            all.extend(targets(bundle));
            meshes.extend(every_mesh(bundle));
        }
        Self { targets: all.into_iter().collect(), meshes: meshes.into_iter().map(str::to_owned).collect() }
    }

    /// The signature of a node, equal for all nodes of its group.
    pub fn signature(&self, node: &NodeIdentity) -> Signature {
        let selects = |(mesh, target): &(String, TargetRef)| *mesh == node.mesh && target.selects(node);
        let selecting = self.targets.iter().enumerate().filter(|(_, target)| selects(target));
        let mesh = self.meshes.get(&node.mesh).cloned().unwrap_or_default();
        (mesh, selecting.map(|(index, _)| index).collect())
    }

    /// A group in words, by its mesh and the targets that select it.
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

/// The mesh of each resource.
fn every_mesh(bundle: &Bundle) -> impl Iterator<Item = &str> {
    bundle.iter().map(|resource| resource.mesh)
}

/// The targets that select nodes, each with its mesh and once. Targets of whole meshes and of routes are not among
/// them.
fn targets(bundle: &Bundle) -> BTreeSet<(String, TargetRef)> {
    let all = bundle.iter().filter_map(|resource| Some((resource.mesh, resource.reach.target()?)));
    let selective = all.filter(|(_, target)| target.route().is_none() && **target != TargetRef::Mesh);
    selective.map(|(mesh, target)| (mesh.to_owned(), target.clone())).collect()
}

/// Imagined nodes: one for each mesh without further identity, and one for each target that selects nodes.
pub fn imagined_nodes(bundle: &Bundle) -> impl Iterator<Item = NodeIdentity> {
    let anonymous =
        meshes(bundle).into_iter().map(|mesh| NodeIdentity { mesh: mesh.to_owned(), ..NodeIdentity::default() });
    anonymous.chain(targets(bundle).into_iter().map(|(mesh, target)| imagine(&mesh, &target)))
}

/// One imagined node for each group that these resources distinguish, at most [`MOST_IMAGINED`].
pub fn imagined_groups(bundle: &Bundle) -> Vec<NodeIdentity> {
    let kinship = Kinship::of([bundle]);
    let mut seen = BTreeSet::new();
    imagined_nodes(bundle).filter(|node| seen.insert(kinship.signature(node))).take(MOST_IMAGINED).collect()
}

/// All groups by either bundle, each with a representative and its live nodes. Groups without a live node are omitted
/// beyond [`MOST_IMAGINED`].
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

fn meshes(bundle: &Bundle) -> BTreeSet<&str> {
    let gateways = bundle.gateways.iter().map(Resource::mesh);
    let policies = bundle.route_policies.iter().map(Resource::mesh);
    let services = bundle.services.iter().map(Resource::mesh);
    let raw = bundle.envoy_resources.iter().map(Resource::mesh);
    let permissions = bundle.traffic_permissions.iter().map(Resource::mesh);
    gateways.chain(policies).chain(services).chain(raw).chain(permissions).chain([DEFAULT_MESH]).collect()
}

/// A node that has exactly the identity that a target needs.
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
        ..NodeIdentity::default()
    }
}
