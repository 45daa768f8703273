//! The HTTP face: status for people and scripts, the filter's code by its digest, and polling (`rest`).

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;

use crate::{admin, digest::Digest, fleet::NodeReport, keys::KeySetReport, releases::RolloutReport, rest, serve::Hub};

/// What is served over HTTP.
pub fn router(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/status", get(status))
        .route("/filter/{file}", get(filter))
        .merge(admin::router())
        .with_state(Arc::clone(&hub))
        .merge(rest::router(hub))
}

/// All that the control plane knows, at a glance.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The revision that nodes should run.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Digest>,
    /// How it spreads.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout: Option<RolloutReport>,
    /// The digest of the filter that runs it.
    filter: Digest,
    /// Why the latest change was refused, if it was: a line an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_change: Vec<String>,
    /// The key sets that issuers publish.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key_sets: Vec<KeySetReport>,
    nodes: Vec<NodeReport>,
}

async fn status(State(hub): State<Arc<Hub>>) -> Json<Status> {
    let revision = hub.publications().borrow().as_ref().map(|publication| publication.revision().clone());
    Json(Status {
        revision,
        rollout: hub.rollout_report(),
        filter: hub.code().digest().clone(),
        refused_change: hub.refused_change(),
        key_sets: hub.key_set_reports(),
        nodes: hub.fleet().report(),
    })
}

async fn filter(State(hub): State<Arc<Hub>>, Path(file): Path<String>) -> Response {
    let digest = hub.code().digest();
    if file.strip_suffix(".wasm").unwrap_or(&file) != digest.as_str() {
        let message = format!("no filter of this digest: the one in force is {digest}\n");
        return (StatusCode::NOT_FOUND, message).into_response();
    }
    let headers = [(header::CONTENT_TYPE, "application/wasm"), (header::CACHE_CONTROL, "public, immutable")];
    (headers, hub.code().bytes().to_vec()).into_response()
}
