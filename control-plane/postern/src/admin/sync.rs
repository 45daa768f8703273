//! Operations that make what is in force exactly what a directory says, and that confirm what a followed directory would
//! remove.

use std::sync::Arc;

use axum::{Json, extract::State};
use postern_base::bounded;
use postern_model::File;
use postern_release::releases::{Extent, HeldChange, Proposal, Word};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    LARGEST_BUNDLE,
    changes::{ChangeReport, SentFile, completed, named},
    extract::{Follows, Form, IF_MATCH, Sent, Shown},
    operation::Operation,
    problem::Problem,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::post(
            "/api/v1/sync",
            ("sync", "Make what is in force exactly these resources, as a new revision, or refuse them whole."),
            sync,
        )
        .header(IF_MATCH.0, IF_MATCH.1)
        .takes::<Exactly>()
        .up_to(LARGEST_BUNDLE)
        .json::<ChangeReport>(200, "It is a revision now, or would be, or says what is in force already.")
        .problem(400, "`If-Match` cannot be read.")
        .problem(409, "Resources would be removed, or routes would lose their authentication, without the word for it.")
        .problem(412, "Another revision came in between.")
        .problem(422, "The resources are not valid, or the filter refuses them.")
        .problem(507, "No space is left to store it."),
        Operation::get(
            "/api/v1/sync/held",
            (
                "getHeldChange",
                "Show the change of the followed directory that waits for a word, and what it would remove.",
            ),
            held,
        )
        .shows::<HeldChange>("The change.")
        .problem(404, "No change is held."),
        Operation::post(
            "/api/v1/sync/confirm",
            ("confirmHeldChange", "Put the held change of the followed directory in force, exactly as it was shown."),
            confirm,
        )
        .takes::<Confirmation>()
        .json::<ChangeReport>(200, "It is a revision now.")
        .problem(409, "No change is held, or another one than was shown.")
        .problem(422, "The resources are no longer valid, or the filter refuses them.")
        .problem(507, "No space is left to store it."),
    ]
}

/// All resources.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Exactly {
    /// The files that they stand in. A value that was hidden when the resource was shown is kept if it comes back.
    files: Vec<SentFile>,
    /// Only say whether it would be taken, and what it would remove.
    #[serde(default)]
    dry_run: bool,
    /// Whether resources in force that are not among these may be removed.
    #[serde(default)]
    allow_removals: bool,
    /// Whether more of them may be removed than a change may usually remove.
    #[serde(default)]
    remove_many: bool,
    /// The digest of the removals that a dry run showed: refuse others.
    #[serde(default, deserialize_with = "bounded::read_name")]
    removals: String,
    /// Whether it may leave routes without authentication that have it now, or remove everything.
    #[serde(default)]
    allow_unguarded: bool,
    /// Why it is applied, in at most 4,096 bytes.
    #[serde(default, deserialize_with = "bounded::read_message")]
    message: String,
    /// Who applies it, in at most 256 bytes.
    #[serde(default, deserialize_with = "bounded::read_name")]
    author: String,
}

async fn sync(
    State(plane): State<Arc<ControlPlane>>,
    Follows(parent): Follows,
    Sent(exactly): Sent<Exactly>,
) -> Result<Json<ChangeReport>, Problem> {
    let Exactly { files, dry_run, allow_removals, remove_many, removals, allow_unguarded, message, author } = exactly;
    let digest = (!removals.is_empty()).then_some(removals);
    let extent = Extent::Exactly(Word { some: allow_removals, many: remove_many, digest });
    let (files, author, again) = (files.into_iter().map(File::from).collect(), named(author), true);
    let proposal = Proposal { files, author, message, parent, again, allow_unguarded, extent, ..Proposal::default() };
    Ok(Json(completed(&plane, proposal, dry_run).await?))
}

async fn held(State(plane): State<Arc<ControlPlane>>, form: Form) -> Result<Shown<HeldChange>, Problem> {
    let none = || Problem::not_found("nothing is held", "no change of the directory is held".to_owned());
    plane.in_force().held().cloned().map(|held| Shown(form, held)).ok_or_else(none)
}

/// The word for a held change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Confirmation {
    /// The digest of the held change, as it was shown.
    #[serde(deserialize_with = "bounded::read_name")]
    digest: String,
    /// Who confirms it, in at most 256 bytes.
    #[serde(default, deserialize_with = "bounded::read_name")]
    author: String,
}

async fn confirm(
    State(plane): State<Arc<ControlPlane>>,
    Sent(Confirmation { digest, author }): Sent<Confirmation>,
) -> Result<Json<ChangeReport>, Problem> {
    let applied = plane.commands().confirm(digest, named(author));
    Ok(Json(ChangeReport::of_applied(&plane, applied).await?))
}
