//! The HTTP face: the admin API, and polling (`rest`).

use std::sync::Arc;

use axum::Router;

use crate::{admin, rest, serve::Hub};

/// What is served over HTTP.
pub fn router(hub: Arc<Hub>) -> Router {
    admin::router(Arc::clone(&hub)).merge(rest::router(hub))
}
