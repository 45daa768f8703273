//! Operations on nodes: which are known, and what each runs and refuses.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use postern_base::{
    diagnostic::{quote, suggestion},
    node::NodeIdentity,
    via_cache::ViaCache,
};
use postern_compile::snapshot::ResourceType;
use postern_release::{
    fleet::{NodeReport, TypeStatus},
    releases::NodeStanding,
    store::NodeRecord,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    extract::{Form, Named, Shown, on_a_thread},
    operation::Operation,
    problem::Problem,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get(
            "/api/v1/nodes",
            ("listNodes", "List the nodes that are connected, or were not long ago."),
            list,
        )
        .shows::<Vec<NodeView>>("The nodes, by their identities."),
        Operation::get(
            "/api/v1/nodes/absent",
            ("listAbsentNodes", "List the nodes that were there when a rollout last ended, and are not now."),
            absent,
        )
        .shows::<BTreeMap<String, NodeRecord>>("What is remembered of them, by their identities."),
        Operation::get("/api/v1/nodes/{id}", ("getNode", "Show one node."), get)
            .path::<Identified>()
            .shows::<NodeView>("The node.")
            .problem(404, "No node of this identity is known."),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Identified {
    /// The node's identity (`node.id`).
    id: String,
}

/// Where a node is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum NodeState {
    /// It runs all that it is to run.
    Ready,
    /// It has not answered yet.
    Pending,
    /// It refuses something, and runs what it had before.
    Refusing,
    /// Its Envoy is not supported, and served nothing.
    Unsupported,
    /// It is not connected.
    Gone,
}

impl NodeState {
    pub(super) const ALL: [Self; 5] = [Self::Ready, Self::Pending, Self::Refusing, Self::Unsupported, Self::Gone];

    /// The state of a node, by the fleet's report alone.
    pub(super) fn of(report: &NodeReport) -> Self {
        match report {
            NodeReport { connected: false, .. } => Self::Gone,
            NodeReport { unsupported: Some(_), .. } => Self::Unsupported,
            NodeReport { types, .. } if types.values().any(|status| status.refused.is_some()) => Self::Refusing,
            NodeReport { revision: Some(_), .. } => Self::Ready,
            NodeReport { .. } => Self::Pending,
        }
    }
}

/// A node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeView {
    #[serde(flatten)]
    identity: NodeIdentity,
    state: NodeState,
    /// Since when it is connected, or not, in seconds since 1970.
    since: u64,
    /// The revision that it is to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<u64>,
    /// The revision that it runs in all that it subscribed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    /// The digests of the filter builds that this revision is for, the one that is served first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<String>,
    /// Why it refuses the revision that it is to run, or is not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// What is odd about it as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
    /// The node cache that it is connected through.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<ViaCache>,
    /// What it runs and refuses, by type of resource.
    types: BTreeMap<ResourceType, TypeStatus>,
}

async fn list(State(plane): State<Arc<ControlPlane>>, form: Form) -> Result<Shown<Vec<NodeView>>, Problem> {
    on_a_thread(move || Ok::<_, Problem>(Shown(form, views(&plane)))).await
}

async fn absent(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
) -> Result<Shown<BTreeMap<String, NodeRecord>>, Problem> {
    on_a_thread(move || Ok::<_, Problem>(Shown(form, absent_nodes(&plane)))).await
}

async fn get(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(Identified { id }): Named<Identified>,
) -> Result<Shown<NodeView>, Problem> {
    on_a_thread(move || {
        let views = views(&plane);
        let known: Vec<_> = views.iter().map(|view| view.identity.id.clone()).collect();
        let found = views.into_iter().find(|view| view.identity.id == id);
        found.map(|view| Shown(form, view)).ok_or_else(|| no_such_node(&id, &known))
    })
    .await
}

pub(super) fn no_such_node(id: &str, known: &[String]) -> Problem {
    let near = suggestion(id, known.iter().map(String::as_str));
    Problem::not_found("no such node", format!("no node {} is known{near}", quote(id)))
}

/// The nodes that were connected when a rollout last ended, and are not in the fleet now.
fn absent_nodes(plane: &ControlPlane) -> BTreeMap<String, NodeRecord> {
    let mut absent = plane.in_force().releases().known_nodes().clone();
    let present = plane.population().sightings();
    present.iter().filter(|node| node.connected).for_each(|node| drop(absent.remove(&node.node.id)));
    absent
}

fn views(plane: &ControlPlane) -> Vec<NodeView> {
    let all = plane.fleet().ask(|fleet| (fleet.identities(), fleet.report(), fleet.sightings()));
    let (identities, reports, sightings) = all;
    let reading = plane.in_force();
    let mut standings = reading.releases().standings(&sightings);
    let filters = |number| reading.releases().filters(number).map(<[String]>::to_vec);
    let view = |(identity, report): (NodeIdentity, NodeReport)| {
        let NodeStanding { target, running, refused } = standings.remove(&identity.id).unwrap_or_default();
        let state = match NodeState::of(&report) {
            NodeState::Ready if running.is_none() || running != target => NodeState::Pending,
            state => state,
        };
        NodeView {
            identity,
            state,
            since: report.since,
            target,
            revision: running,
            filters: running.and_then(filters).unwrap_or_default(),
            reason: report.unsupported.or(refused),
            warning: report.warning,
            cache: report.cache,
            types: report.types,
        }
    };
    identities.into_iter().zip(reports).map(view).collect()
}
