//! The operation that goes back to an earlier revision, with all of it or with single resources. It is a change like any
//! other: a new revision.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use postern_base::bounded;
use postern_release::{
    catalogue::ResourceKey,
    owner::InForce,
    releases::{ApplyError, Pace, Proposal, RevivedCredential, revived},
    rollout::Step,
    store::{Parent, StoreError},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    changes::{ChangeReport, named},
    extract::{Follows, IF_MATCH, Sent, read},
    operation::Operation,
    problem::Problem,
    resources::Reference,
};
use crate::control_plane::ControlPlane;

/// The number of attempts when another revision comes in between.
const ATTEMPTS: usize = 3;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::post(
            "/api/v1/rollback",
            (
                "rollback",
                "Go back to what an earlier revision said, or single resources of it, as a new revision: on all nodes at once.",
            ),
            rollback,
        )
        .header(IF_MATCH.0, IF_MATCH.1)
        .takes::<RollbackTo>()
        .json::<ChangeReport>(200, "It is a revision now, or says what is in force already.")
        .problem(400, "`If-Match` or a step of `canary` cannot be read.")
        .problem(404, "There is no such revision, or it does not have a resource.")
        .problem(409, "Routes would lose their authentication, the revision is no longer whole, or single resources do not fit the others.")
        .problem(412, "Another revision came in between.")
        .problem(422, "What that revision says is no longer valid."),
    ]
}

/// Where to go back to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RollbackTo {
    /// The number of the revision.
    revision: u64,
    /// Only these resources; all others stay as they are in force. Default: everything.
    #[serde(default)]
    only: Vec<Reference>,
    /// Whether it may leave routes without authentication that have it now, or remove everything.
    #[serde(default)]
    allow_unguarded: bool,
    /// Spread it like any other change, by the settings in force. Default: to all nodes at once.
    #[serde(default)]
    gradually: bool,
    /// Spread it by these steps, such as `25%:30s` or `stage=canary:1m`.
    #[serde(default)]
    canary: Vec<String>,
    /// Who goes back, in at most 256 bytes.
    #[serde(default, deserialize_with = "bounded::read_name")]
    author: String,
}

async fn rollback(
    State(plane): State<Arc<ControlPlane>>,
    Follows(parent): Follows,
    Sent(RollbackTo { revision, only, allow_unguarded, gradually, canary, author }): Sent<RollbackTo>,
) -> Result<Json<ChangeReport>, Problem> {
    let pace = pace(gradually, &canary)?;
    let only = only.into_iter().map(Reference::key).collect::<Result<Vec<_>, _>>()?;
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let (from, only_these, author) = (Arc::clone(&plane), only.clone(), named(author.clone()));
        let proposal = read(move || proposal(&from, revision, &only_these, parent, author)).await?;
        let before = plane.in_force();
        let proposal = Proposal { allow_unguarded, pace: pace.clone(), ..proposal };
        let applied = plane.commands().go_back(proposal, revision);
        let report = ChangeReport::of_applied(&plane, applied).await;
        match report.map(|report| ChangeReport { revived: revived_since(&before, &plane.in_force()), ..report }) {
            Err(ApplyError::Store(StoreError::Conflict { .. }))
                if parent == Parent::Latest && attempts.next().is_some() => {}
            Err(error @ ApplyError::Compile(_)) if !only.is_empty() => return Err(unfit(&only, revision, error)),
            outcome => return outcome.map(Json).map_err(Problem::from),
        }
    }
}

/// How a rollback spreads.
fn pace(gradually: bool, canary: &[String]) -> Result<Pace, Problem> {
    let steps = canary.iter().map(|step| step.parse::<Step>()).collect::<Result<Vec<_>, _>>();
    match steps {
        Ok(steps) if steps.is_empty() => Ok(if gradually { Pace::Settings } else { Pace::AtOnce }),
        Ok(steps) => Ok(Pace::Steps(steps)),
        Err(error) => Err(Problem::new(StatusCode::BAD_REQUEST, "invalid request", format!("`canary`: {error}"))),
    }
}

/// The credentials that are valid now, and were not in an earlier reading.
fn revived_since(before: &InForce, now: &InForce) -> Vec<RevivedCredential> {
    let bundle = |reading: &InForce| {
        let number = reading.releases().in_force()?;
        reading.releases().bundle(number).map(Arc::clone)
    };
    match (bundle(before), bundle(now)) {
        (Some(before), Some(now)) => revived(&before, &now),
        _ => Vec::new(),
    }
}

fn proposal(
    plane: &ControlPlane,
    revision: u64,
    only: &[ResourceKey],
    parent: Parent,
    author: String,
) -> Result<Proposal, ApplyError> {
    if only.is_empty() {
        return Proposal::to_go_back(&**plane.store(), revision, author, parent);
    }
    // Both are of one moment: what is in force, and the revision that must still be the latest when this one is stored.
    let reading = plane.in_force();
    let (latest, in_force) = (reading.releases().latest(), reading.releases().in_force());
    if let Parent::Exactly(expected) = parent
        && expected != latest
    {
        return Err(StoreError::Conflict { expected, latest }.into());
    }
    let in_force = in_force.ok_or(ApplyError::NoRevision(revision))?;
    let base = (in_force, Parent::Exactly(latest));
    Proposal::to_go_back_alone(&**plane.store(), revision, only, base, author)
}

fn unfit(only: &[ResourceKey], revision: u64, error: ApplyError) -> Problem {
    let problem = Problem::from(error);
    let all: Vec<_> = only.iter().map(ToString::to_string).collect();
    let all = all.join(", ");
    let detail = format!("{all} of revision {revision} alone does not fit the other resources\n{}", problem.detail());
    problem.because(StatusCode::CONFLICT, "other resources do not fit", detail)
}
