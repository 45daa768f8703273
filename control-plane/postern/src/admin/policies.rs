//! Operations that explain which steps guard a route at a node, and simulate a request there.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, http::StatusCode};
use postern_base::node::{DEFAULT_MESH, NodeIdentity};
use postern_tools::{
    explain::{DecisionLine, Explanation, Reached, Subject, explain_with},
    simulate::Request,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    extract::{Sent, on_a_thread},
    nodes::no_such_node,
    operation::Operation,
    problem::Problem,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    let nothing = "Nothing is in force yet.";
    vec![
        Operation::post(
            "/api/v1/explain",
            ("explain", "Explain which steps guard a route at a node, and where each field comes from."),
            explain,
        )
        .takes::<Question>()
        .json::<Explanation>(200, "The explanation. Credentials are hidden.")
        .problem(404, "No such node is known.")
        .problem(422, "The question cannot be read, or what guards the route is not valid.")
        .problem(503, nothing),
        Operation::post(
            "/api/v1/simulate",
            ("simulate", "Say what becomes of a request, and which step decides."),
            simulate,
        )
        .takes::<Simulation>()
        .json::<Simulated>(200, "What becomes of it. No agent is called, and nothing is remembered.")
        .problem(404, "No such node is known.")
        .problem(422, "The question cannot be read, or what guards the route is not valid.")
        .problem(503, nothing),
    ]
}

/// The node that is meant: one of the fleet by its identity alone, or one that is described.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Whom {
    /// Its identity.
    id: String,
    /// The service that it belongs to.
    service: Option<String>,
    /// Its mesh.
    mesh: Option<String>,
    /// Its tags.
    tags: Option<BTreeMap<String, String>>,
}

/// What is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    /// The node; default: one that says nothing of itself.
    #[serde(default)]
    node: Whom,
    /// The route; empty for whatever is no route of its own. Default: the route that the request takes.
    route: Option<String>,
    /// The Gateway that the request comes to. Default: the only one of the node.
    gateway: Option<String>,
    /// A request that is tried.
    request: Option<Request>,
}

/// A request, and where it arrives.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Simulation {
    /// The node; default: one that says nothing of itself.
    #[serde(default)]
    node: Whom,
    /// The route; empty for whatever is no route of its own. Default: the route that the request takes.
    route: Option<String>,
    /// The Gateway that the request comes to. Default: the only one of the node.
    gateway: Option<String>,
    /// The request.
    request: Request,
}

/// What becomes of a request.
#[derive(Debug, Serialize, JsonSchema)]
struct Simulated {
    /// The node.
    node: NodeIdentity,
    /// The route.
    route: String,
    /// Where the request gets, as Envoy matches routes. Absent if the node has no Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<Reached>,
    /// The revision that decides.
    revision: u64,
    /// What is decided; absent if nothing guards the route, and every request passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionLine>,
    /// What may have been meant, if no resource names the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

async fn explain(
    State(plane): State<Arc<ControlPlane>>,
    Sent(Question { node, route, gateway, request }): Sent<Question>,
) -> Result<Json<Explanation>, Problem> {
    on_a_thread(move || {
        let node = who(&plane, node)?;
        let subject = Subject { route: route.as_deref(), gateway: gateway.as_deref(), request: request.as_ref() };
        Ok::<_, Problem>(Json(look(&plane, &node, subject)?.1))
    })
    .await
}

async fn simulate(
    State(plane): State<Arc<ControlPlane>>,
    Sent(Simulation { node, route, gateway, request }): Sent<Simulation>,
) -> Result<Json<Simulated>, Problem> {
    on_a_thread(move || {
        let node = who(&plane, node)?;
        let subject = Subject { route: route.as_deref(), gateway: gateway.as_deref(), request: Some(&request) };
        let (revision, Explanation { route, reached, decision, hint, .. }) = look(&plane, &node, subject)?;
        Ok::<_, Problem>(Json(Simulated { node, route, reached, revision, decision, hint }))
    })
    .await
}

/// What is in force for a node, with the keys that are known.
fn look(plane: &ControlPlane, node: &NodeIdentity, subject: Subject<'_>) -> Result<(u64, Explanation), Problem> {
    let reading = plane.in_force();
    let releases = reading.releases();
    let found = releases.revision_for(node).and_then(|number| Some((number, releases.bundle(number)?)));
    let Some((revision, bundle)) = found else {
        let detail = "nothing is in force yet".to_owned();
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "nothing is in force", detail));
    };
    let keys = plane.keys().sets();
    let mut explanation = explain_with(bundle, &keys, node, subject)?;
    explanation.hide_credentials();
    Ok((revision, explanation))
}

fn who(plane: &ControlPlane, Whom { id, service, mesh, tags }: Whom) -> Result<NodeIdentity, Problem> {
    let identities = plane.identities();
    if let Some(known) = identities.iter().find(|node| node.id == id) {
        let known = known.clone();
        let (service, mesh) = (service.unwrap_or(known.service), mesh.unwrap_or(known.mesh));
        return Ok(NodeIdentity { id, service, mesh, tags: tags.unwrap_or(known.tags), ..known });
    }
    if !id.is_empty() && service.is_none() && mesh.is_none() && tags.is_none() {
        let known: Vec<_> = identities.into_iter().map(|node| node.id).collect();
        return Err(no_such_node(&id, &known));
    }
    let mesh = mesh.unwrap_or_else(|| DEFAULT_MESH.to_owned());
    let (service, tags) = (service.unwrap_or_default(), tags.unwrap_or_default());
    Ok(NodeIdentity { id, service, mesh, tags, ..NodeIdentity::default() })
}
