//! Operations for liveness and readiness checks.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::{extract::on_a_thread, operation::Operation, problem::Problem};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get("/healthz", ("healthz", "Whether the process lives and answers."), || async { "ok\n" })
            .text("text/plain", "It does."),
        Operation::get(
            "/readyz",
            ("readyz", "Whether nodes can be served: the store answers, and something is published."),
            ready,
        )
        .json::<Ready>(200, "They can.")
        .problem(503, "They cannot, for this reason."),
    ]
}

/// What nodes are served.
#[derive(Debug, Serialize, JsonSchema)]
struct Ready {
    /// The digest of the revision in force, as `revisions` shows it.
    revision: String,
}

async fn ready(State(plane): State<Arc<ControlPlane>>) -> Result<Json<Ready>, Problem> {
    let not_ready = |why: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not ready", why);
    let store = Arc::clone(plane.store());
    on_a_thread(move || store.latest().map_err(|error| not_ready(format!("the store does not answer: {error}"))))
        .await?;
    let published = plane.publications().latest().map(|publication| publication.revision().to_string());
    let reading = plane.in_force();
    let number = reading.releases().in_force();
    let digest = number.and_then(|number| reading.releases().digest(number)).map(str::to_owned);
    match digest.or(published) {
        Some(revision) => Ok(Json(Ready { revision })),
        None => {
            let refused = plane.in_force().refused_change().join("\n");
            let why = if refused.is_empty() { String::new() } else { format!(", and this was refused:\n{refused}") };
            Err(not_ready(format!("nothing is in force yet{why}")))
        }
    }
}
