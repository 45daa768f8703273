//! The operation that removes a deleted resource from the revisions that are kept.

use std::sync::Arc;

use axum::{Json, extract::State};
use postern_base::bounded;
use postern_release::{owner::Purge, releases::Purged};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{changes::named, extract::Sent, operation::Operation, problem::Problem, resources::Reference};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::post(
            "/api/v1/purge",
            ("purgeResource", "Remove a deleted resource from all revisions that are kept, for good."),
            purge,
        )
        .takes::<Purging>()
        .json::<Purged>(200, "It is gone from these revisions, or would be.")
        .problem(404, "No revision that is kept has it, or there is no such kind.")
        .problem(409, "It is in force, the rollout needs it, or the followed directory has it."),
    ]
}

/// What to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Purging {
    /// The resource.
    resource: Reference,
    /// Only say from which revisions it would be removed.
    #[serde(default)]
    dry_run: bool,
    /// Who removes it, in at most 256 bytes.
    #[serde(default, deserialize_with = "bounded::read_name")]
    author: String,
}

async fn purge(
    State(plane): State<Arc<ControlPlane>>,
    Sent(Purging { resource, dry_run, author }): Sent<Purging>,
) -> Result<Json<Purged>, Problem> {
    let purge = Purge { resource: resource.key()?, dry_run, author: named(author) };
    Ok(Json(plane.purge(purge).await?))
}
