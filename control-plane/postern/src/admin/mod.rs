//! The admin API, which the command line and other clients use. HTTP and JSON (or YAML) under `/api/v1`; an error is a
//! problem document (RFC 9457).
//!
//! Every route is an [`Operation`] of [`operations`]. The router and the description at `/api/v1/openapi.json` are both
//! derived from that one list, so they cannot differ.

mod changes;
mod clients;
mod deletion;
mod diff;
mod events;
mod exposition;
mod extract;
mod health;
mod metrics_page;
mod nodes;
mod openapi;
mod operation;
mod policies;
mod problem;
mod purge;
mod resources;
mod revisions;
mod rollback;
mod status;
mod warnings;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{Method, StatusCode, Uri},
    middleware::{self, Next},
    response::Response,
};

pub(crate) use self::{events::Client, problem::Problem};
use self::{events::Seats, operation::Operation};
pub use self::{metrics_page::metrics_page, openapi::description};
use crate::control_plane::ControlPlane;

/// The maximum size of a bundle, enough for a hundred thousand routes with their policies.
const LARGEST_BUNDLE: usize = 64 << 20;
/// The maximum size of any other body.
const LARGEST_BODY: usize = 1 << 20;

/// All operations of the HTTP face, except for polling by Envoys.
fn operations() -> Vec<Operation> {
    let parts = [
        health::operations(),
        status::operations(),
        changes::operations(),
        diff::operations(),
        resources::operations(),
        deletion::operations(),
        rollback::operations(),
        purge::operations(),
        revisions::operations(),
        nodes::operations(),
        clients::operations(),
        policies::operations(),
        events::operations(),
        exposition::operations(),
        openapi::operations(),
    ];
    parts.into_iter().flatten().collect()
}

/// The router of the API.
pub(crate) fn router(plane: Arc<ControlPlane>) -> Router {
    let mut router = Router::new();
    for operation in operations() {
        let counted = Counted { plane: Arc::clone(&plane), operation: operation.id };
        let handler = operation.handler.layer(middleware::from_fn_with_state(counted, count));
        router = router.route(operation.path, handler);
    }
    router
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(Extension(Arc::<Seats>::default()))
        .with_state(plane)
}

#[derive(Clone)]
struct Counted {
    plane: Arc<ControlPlane>,
    operation: &'static str,
}

async fn count(State(Counted { plane, operation }): State<Counted>, request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    plane.requests().answered(operation, answer.status().as_u16());
    answer
}

async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("there is nothing at `{}`: `/api/v1/openapi.json` lists what there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no such path", detail)
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("`{}` does not take {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no such method", detail)
}
