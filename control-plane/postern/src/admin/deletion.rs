//! The operation that deletes a resource. The deletion is a change like any other: a new revision without the resource.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use postern_base::bounded;
use postern_release::{
    catalogue::{ResourceKey, without},
    releases::{ApplyError, Proposal, whole_documents},
    store::{Parent, StoreError, assemble},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    changes::{ChangeReport, named},
    extract::{Asked, Follows, IF_MATCH, Named, on_a_thread},
    operation::Operation,
    problem::Problem,
    resources::{OfName, unknown},
};
use crate::control_plane::ControlPlane;

/// The number of attempts when another revision comes in between.
const ATTEMPTS: usize = 3;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::delete(
            "/api/v1/resources/{kind}/{name}",
            ("deleteResource", "Take a resource out of what is in force, as a new revision."),
            delete,
        )
        .path::<OfName>()
        .query::<Deletion>()
        .header(IF_MATCH.0, IF_MATCH.1)
        .json::<ChangeReport>(200, "It is gone in the new revision, or would be.")
        .problem(400, "`If-Match` or a parameter cannot be read.")
        .problem(404, "There is no such resource, or no such kind.")
        .problem(409, "Other resources need it, or a route would lose its authentication.")
        .problem(412, "Another revision came in between."),
    ]
}

/// What to take out, and how.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Deletion {
    /// Its mesh; default: `default`.
    mesh: Option<String>,
    /// Only say whether it could be taken out.
    #[serde(default)]
    dry_run: bool,
    /// Whether it may leave routes without authentication that have it now, or remove everything.
    #[serde(default)]
    allow_unguarded: bool,
    /// Why, in at most 4,096 bytes.
    #[serde(default, deserialize_with = "bounded::read_message")]
    message: String,
    /// Who takes it out, in at most 256 bytes.
    #[serde(default, deserialize_with = "bounded::read_name")]
    author: String,
}

/// Applies what is in force without the resource. If another revision comes in between, tries again on that one.
async fn delete(
    State(plane): State<Arc<ControlPlane>>,
    Follows(parent): Follows,
    Named(of): Named<OfName>,
    Asked(Deletion { mesh, dry_run, allow_unguarded, message, author }): Asked<Deletion>,
) -> Result<Json<ChangeReport>, Problem> {
    let key = of.key(mesh)?;
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let (from, of, by) = (Arc::clone(&plane), key.clone(), (author.clone(), message.clone()));
        let proposal = on_a_thread(move || deletion(&from, &of, parent, by)).await?;
        match ChangeReport::of(&plane, Proposal { allow_unguarded, ..proposal }, dry_run).await {
            Err(ApplyError::Store(StoreError::Conflict { .. }))
                if parent == Parent::Latest && attempts.next().is_some() => {}
            Err(error @ ApplyError::Compile(_)) => return Err(needed(&key, error)),
            outcome => return outcome.map(Json).map_err(Problem::from),
        }
    }
}

fn deletion(
    plane: &ControlPlane,
    key: &ResourceKey,
    parent: Parent,
    (author, message): (String, String),
) -> Result<Proposal, Problem> {
    // Both are of one moment: what is in force, and the revision that must still be the latest when this one is stored.
    let reading = plane.in_force();
    let (latest, in_force) = (reading.releases().latest(), reading.releases().in_force());
    if let Parent::Exactly(expected) = parent
        && expected != latest
    {
        return Err(StoreError::Conflict { expected, latest }.into());
    }
    let documents = in_force.map(|number| whole_documents(&**plane.store(), number)).transpose()?.unwrap_or_default();
    let left = without(documents, key).ok_or_else(|| unknown(plane, key))?;
    let message = if message.is_empty() { format!("delete {key}") } else { message };
    let (files, author, parent) = (assemble(&left), named(author), Parent::Exactly(latest));
    Ok(Proposal { files, author, message, parent, again: true, ..Proposal::default() })
}

fn needed(key: &ResourceKey, error: ApplyError) -> Problem {
    let problem = Problem::from(error);
    let detail = format!("{key} cannot be deleted: other resources need it\n{}", problem.detail());
    problem.because(StatusCode::CONFLICT, "other resources need it", detail)
}
