//! Operations that change what is in force: apply a bundle, command the rollout. Ways back are in `rollback`.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use postern_base::bounded;
use postern_compile::review::{Expiring, Waiting};
use postern_model::File;
use postern_release::{
    owner::{PendingAnswer, Steering, warnings},
    releases::{Applied, ApplyError, Proposal},
    rollout::RolloutReport,
    store::Revision,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    LARGEST_BUNDLE,
    extract::{Follows, Form, IF_MATCH, Named, Sent, Shown},
    operation::Operation,
    problem::Problem,
    warnings::Warnings,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::post(
            "/api/v1/apply",
            ("apply", "Put resources in force as a new revision, or refuse them whole."),
            apply,
        )
        .header(IF_MATCH.0, IF_MATCH.1)
        .takes::<Bundle>()
        .up_to(LARGEST_BUNDLE)
        .json::<ChangeReport>(200, "It is a revision now, or would be, or says what is in force already.")
        .problem(400, "`If-Match` cannot be read.")
        .problem(409, "Routes would lose their authentication, or all resources would go: `allowUnguarded` says that this is meant.")
        .problem(412, "Another revision came in between.")
        .problem(422, "The resources are not valid, or the filter refuses them.")
        .problem(507, "No space is left to store it."),
        Operation::get(
            "/api/v1/rollout",
            ("getRollout", "Where the rollout is that is under way, or was the last one."),
            rollout,
        )
        .shows::<RolloutReport>("Where it is.")
        .problem(404, "Nothing was ever applied."),
        Operation::post(
            "/api/v1/rollout/{command}",
            ("commandRollout", "Pause, resume or abort the rollout under way."),
            command,
        )
        .path::<Command>()
        .empty(204, "It is done.")
        .problem(404, "There is no such command.")
        .problem(409, "The rollout is not in a state for it."),
    ]
}

/// A bundle: all resources, and not a change to some.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Bundle {
    /// The files that they stand in.
    files: Vec<SentFile>,
    /// Only say whether it would be taken.
    #[serde(default)]
    dry_run: bool,
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

/// A file as it is sent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SentFile {
    /// What errors call it, in at most 4,096 bytes.
    #[serde(deserialize_with = "bounded::read_message")]
    name: String,
    /// What it holds.
    text: String,
}

impl From<SentFile> for File {
    fn from(file: SentFile) -> Self {
        Self { name: file.name, bytes: file.text.into_bytes() }
    }
}

/// What came of a change.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangeReport {
    result: ChangeResult,
    /// The revision that it is now, or that says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
    /// What is worth a warning about it, such as routes without authentication.
    #[serde(flatten)]
    warnings: Warnings,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum ChangeResult {
    /// It is a new revision, and spreads.
    Created,
    /// The latest revision says the same.
    Unchanged,
    /// It would be taken.
    Valid,
}

impl ChangeReport {
    /// Applies a proposal, or only checks it in a dry run.
    pub(super) async fn of(plane: &Arc<ControlPlane>, proposal: Proposal, dry_run: bool) -> Result<Self, ApplyError> {
        if dry_run {
            let shared = Arc::clone(plane);
            return blocking(move || Self::of_dry_run(&shared, &proposal)).await;
        }
        Self::of_applied(plane, plane.commands().apply(proposal)).await
    }

    /// The report of a proposal that is being applied.
    pub(super) async fn of_applied(
        plane: &Arc<ControlPlane>,
        applied: PendingAnswer<Applied>,
    ) -> Result<Self, ApplyError> {
        let shared = Arc::clone(plane);
        let (result, revision) = match applied.await? {
            Applied::Revision(revision) => (ChangeResult::Created, revision),
            Applied::Unchanged(revision) => (ChangeResult::Unchanged, revision),
        };
        let warnings = blocking(move || Ok(shared.in_force().warnings(&shared.identities()).into())).await?;
        Ok(Self { result, revision: Some(revision), warnings })
    }

    /// Checks a proposal with everything but the store, and returns its warnings.
    fn of_dry_run(plane: &ControlPlane, proposal: &Proposal) -> Result<Self, ApplyError> {
        let (bundle, examined) = plane.examiner().examine(&proposal.files)?;
        let nodes = plane.identities();
        if !proposal.allow_unguarded {
            plane.in_force().releases().stays_guarded(&bundle, &nodes)?;
        }
        let warnings = warnings(&examined.findings, &Waiting::of(&bundle), &Expiring::of(&bundle), &nodes).into();
        Ok(Self { result: ChangeResult::Valid, revision: None, warnings })
    }
}

async fn apply(
    State(plane): State<Arc<ControlPlane>>,
    Follows(parent): Follows,
    Sent(bundle): Sent<Bundle>,
) -> Result<Json<ChangeReport>, Problem> {
    let files = bundle.files.into_iter().map(File::from).collect();
    let Bundle { dry_run, allow_unguarded, message, .. } = bundle;
    let proposal = Proposal { files, author: named(bundle.author), message, parent, again: true, allow_unguarded };
    Ok(Json(ChangeReport::of(&plane, proposal, dry_run).await?))
}

/// Runs blocking work, such as compilation, on a thread where it delays no other request.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ApplyError> + Send + 'static,
) -> Result<T, ApplyError> {
    let done = tokio::task::spawn_blocking(act).await;
    done.inspect_err(|error| tracing::error!("a change was not examined: {error}")).unwrap_or(Err(ApplyError::Ended))
}

async fn rollout(State(plane): State<Arc<ControlPlane>>, form: Form) -> Result<Shown<RolloutReport>, Problem> {
    let report = plane.in_force().rollout_report();
    let none = || Problem::not_found("no rollout", "no rollout has been started".to_owned());
    report.map(|report| Shown(form, report)).ok_or_else(none)
}

/// What to do with a rollout.
#[derive(Debug, Deserialize, JsonSchema)]
struct Command {
    /// `pause`, `resume` or `abort`.
    command: String,
}

async fn command(
    State(plane): State<Arc<ControlPlane>>,
    Named(Command { command }): Named<Command>,
) -> Result<StatusCode, Problem> {
    let steering = match command.as_str() {
        "pause" => Steering::Pause,
        "resume" => Steering::Resume,
        "abort" => Steering::Abort,
        _ => {
            let detail = format!("`{command}` is none of pause, resume and abort");
            return Err(Problem::not_found("no such command", detail));
        }
    };
    plane.commands().steer(steering).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The author to record when the request names none.
pub(super) fn named(author: String) -> String {
    if author.is_empty() { "api".to_owned() } else { author }
}
