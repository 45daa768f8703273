//! Compares two sets of resources: which resources differ, field by field, and what that means for nodes, routes and
//! steps. It uses the same attachment that is served, and decides nothing.

mod resources;
mod routes;
mod show;

use std::collections::BTreeMap;

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::{
    attach::{Scope, groups},
    keys::KeySets,
    revision::group_revision,
};
use postern_model::Bundle;
use postern_release::catalogue::{Catalogue, ResourceKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::routes::View;

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The number of the revision; `None` for a bundle that was not applied.
    pub revision: Option<u64>,
    /// The resources as they are served.
    pub bundle: &'a Bundle,
    /// The same resources as they were written.
    pub catalogue: &'a Catalogue,
}

/// All that differs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The revision that it starts from; none if nothing is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The revision that it leads to; none if it is a bundle that nobody has applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// The resources that differ, by kind, mesh and name.
    pub resources: Vec<ResourceChange>,
    /// The live nodes that get something else.
    pub nodes: Vec<NodeChange>,
    /// How many live nodes there are.
    pub live_nodes: usize,
    /// The routes that are declared or guarded in another way.
    pub routes: Vec<RouteChange>,
}

impl Difference {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

/// In which way something differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It says something else.
    Changed,
    /// It stands elsewhere among the others.
    Moved,
}

/// A resource that differs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ResourceChange {
    /// Which one.
    #[serde(flatten)]
    pub key: ResourceKey,
    /// In which way.
    pub change: Change,
    /// The file that it stands in, or stood in.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The fields that differ, if it is neither new nor gone. Credentials are hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Its path: `spec.request[0].params.header`.
    pub field: String,
    /// What it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The less specific resource that it is inherited from now, if it decides whether a step is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited_from: Option<String>,
}

/// A live node that gets something else.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NodeChange {
    /// Its identity.
    pub id: String,
    /// The service that it belongs to.
    pub service: String,
    /// Its mesh.
    pub mesh: String,
}

/// A route that is declared or guarded in another way.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RouteChange {
    /// The mesh.
    pub mesh: String,
    /// Its name; empty for whatever is no route of its own.
    pub route: String,
    /// What differs.
    #[serde(flatten)]
    pub what: RouteDifference,
    /// The live nodes that it concerns; none if it concerns nodes that are not there.
    pub nodes: Vec<String>,
}

/// What differs about a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteDifference {
    /// Whether the route itself is new or gone.
    pub change: Change,
    /// What its gateway says of it, and what holds for its whole chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
    /// Its steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepChange>,
}

/// A step that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepChange {
    /// `request` or `response`.
    pub phase: String,
    /// Its name.
    pub step: String,
    /// Its policy.
    pub policy: String,
    /// The sources that it is for; all traffic if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// In which way it differs.
    pub change: Change,
    /// The fields that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// Compares two sets of resources, for the live nodes and for every node that their targets could select.
pub fn compare(before: Side<'_>, after: Side<'_>, live: &[NodeIdentity]) -> Difference {
    let resources = resources::changes(before, after);
    let mut difference = Difference {
        from: before.revision,
        to: after.revision,
        resources,
        nodes: Vec::new(),
        live_nodes: live.len(),
        routes: Vec::new(),
    };
    if difference.is_empty() {
        return difference;
    }
    let mut routes: BTreeMap<_, Vec<(RouteDifference, Vec<String>)>> = BTreeMap::new();
    for (node, group) in groups(before.bundle, after.bundle, live) {
        let scopes = [before, after].map(|side| Scope::of(side.bundle, &node));
        let [was, is] = scopes.each_ref().map(revision_of);
        if was == is {
            continue;
        }
        difference.nodes.extend(group.iter().map(|node| NodeChange {
            id: node.id.clone(),
            service: node.service.clone(),
            mesh: node.mesh.clone(),
        }));
        let [was, is] = scopes.each_ref().map(View::of);
        let ids = || group.iter().map(|node| node.id.clone());
        for (route, what) in routes::changes(&was, &is) {
            let known = routes.entry((node.mesh.clone(), route)).or_default();
            match known.iter_mut().find(|(other, _)| *other == what) {
                Some((_, nodes)) => nodes.extend(ids()),
                None => known.push((what, ids().collect())),
            }
        }
    }
    difference.nodes.sort_by(|a, b| a.id.cmp(&b.id));
    for ((mesh, route), found) in routes {
        difference.routes.extend(found.into_iter().map(|(what, mut nodes)| {
            nodes.sort();
            RouteChange { mesh: mesh.clone(), route: route.clone(), what, nodes }
        }));
    }
    difference
}

fn revision_of(scope: &Scope<'_>) -> Digest {
    group_revision(scope, &KeySets::default(), &Digest::of(b""))
}

#[cfg(test)]
mod tests;
