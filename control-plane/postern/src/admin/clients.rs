//! Operations on clients of policy discovery: which are connected, and what each is to have, runs and refuses.

use std::sync::Arc;

use axum::extract::State;
use postern_deliver::discovery::report::GroupView;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    extract::{Form, Shown},
    operation::Operation,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get(
            "/api/v1/clients",
            ("listClients", "List the clients of policy discovery by the version that they are to have."),
            list,
        )
        .shows::<ClientsView>("The clients, in groups."),
    ]
}

/// The clients of policy discovery.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ClientsView {
    /// Whether every client that is waited for has answered the version that it is to have.
    all_acked: bool,
    /// Clients that are to have the same version are one group.
    groups: Vec<GroupView>,
}

async fn list(State(plane): State<Arc<ControlPlane>>, form: Form) -> Shown<ClientsView> {
    let groups = plane.clients().views().await;
    let all_acked = groups.iter().all(GroupView::is_acked);
    Shown(form, ClientsView { all_acked, groups })
}
