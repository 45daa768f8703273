//! The admin API: what the command line, and whoever else has the say, can ask and tell a running control plane. HTTP and
//! JSON under `/api/v1`; an error is a problem document (RFC 9457).

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    condition::Conditions,
    model::{Diagnostics, File},
    pipeline::CompileError,
    releases::{Applied, ApplyError, Proposal},
    rollout::Rollout,
    serve::Hub,
    store::{NodeRecord, Parent, Revision, StoreError},
};

/// How large a bundle may be: a hundred thousand routes with their policies.
const LARGEST: usize = 64 << 20;

/// The API's part of what is served over HTTP.
pub(crate) fn router() -> Router<Arc<Hub>> {
    Router::new()
        .route("/api/v1/apply", post(apply).layer(DefaultBodyLimit::max(LARGEST)))
        .route("/api/v1/revisions", get(revisions))
        .route("/api/v1/revisions/{number}", get(revision))
        .route("/api/v1/nodes/absent", get(absent_nodes))
        .route("/api/v1/rollback", post(rollback))
        .route("/api/v1/rollout/{command}", post(command))
}

/// A bundle as it is sent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Bundle {
    files: Vec<SentFile>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    message: String,
    #[serde(default)]
    author: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentFile {
    name: String,
    text: String,
}

/// What came of a change.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    /// `created`, `unchanged` or `valid`.
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
}

impl From<Applied> for Outcome {
    fn from(applied: Applied) -> Self {
        match applied {
            Applied::Revision(revision) => Self { result: "created", revision: Some(revision) },
            Applied::Unchanged(revision) => Self { result: "unchanged", revision: Some(revision) },
        }
    }
}

async fn apply(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    body: Result<Json<Bundle>, JsonRejection>,
) -> Result<Json<Outcome>, Problem> {
    let Json(bundle) = body?;
    let files = bundle.files.into_iter().map(|file| File { name: file.name, bytes: file.text.into_bytes() }).collect();
    let (author, message) = (named(bundle.author), bundle.message);
    let proposal = Proposal { files, author, message, parent: expected_parent(&headers)?, again: true };
    // Compiling and the gate take their time, and nobody else should wait for them.
    on_a_thread(move || {
        if bundle.dry_run {
            hub.prove(&proposal)?;
            return Ok(Outcome { result: "valid", revision: None });
        }
        hub.apply(proposal).map(Outcome::from)
    })
    .await
}

async fn revisions(State(hub): State<Arc<Hub>>) -> Result<Json<Vec<Revision>>, Problem> {
    let store = Arc::clone(hub.releases().store());
    on_a_thread(move || Ok(store.revisions()?)).await
}

async fn absent_nodes(State(hub): State<Arc<Hub>>) -> Result<Json<BTreeMap<String, NodeRecord>>, Problem> {
    on_a_thread(move || Ok(hub.absent_nodes())).await
}

#[derive(Debug, Serialize)]
struct RevisionReport {
    #[serde(flatten)]
    revision: Revision,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Conditions>,
}

async fn revision(State(hub): State<Arc<Hub>>, Path(number): Path<u64>) -> Result<Json<RevisionReport>, Problem> {
    on_a_thread(move || {
        hub.look();
        let releases = hub.releases();
        let revision = releases.store().revision(number)?.ok_or(ApplyError::NoRevision(number))?;
        let conditions = releases.lifecycles().get(&number).map(|lifecycle| lifecycle.conditions().clone());
        Ok(RevisionReport { revision, conditions })
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackTo {
    revision: u64,
    #[serde(default)]
    author: String,
}

async fn rollback(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    body: Result<Json<RollbackTo>, JsonRejection>,
) -> Result<Json<Outcome>, Problem> {
    let Json(RollbackTo { revision, author }) = body?;
    let parent = expected_parent(&headers)?;
    on_a_thread(move || {
        let proposal = hub.releases().rollback(revision, named(author), parent)?;
        hub.apply(proposal).map(Outcome::from)
    })
    .await
}

async fn command(State(hub): State<Arc<Hub>>, Path(command): Path<String>) -> Result<StatusCode, Problem> {
    let command = match command.as_str() {
        "pause" => Rollout::pause,
        "resume" => Rollout::resume,
        "abort" => |rollout: &mut Rollout| rollout.abort().map(drop),
        _ => {
            let detail = format!("`{command}` is none of pause, resume and abort");
            return Err(Problem::new(StatusCode::NOT_FOUND, "no such command", detail));
        }
    };
    let carried_out = on_a_thread(move || {
        hub.releases().command(command)?;
        hub.rollout_changed();
        Ok(())
    });
    carried_out.await.map(|_| StatusCode::NO_CONTENT)
}

/// Runs what blocks, or computes for long, where that holds up nobody.
async fn on_a_thread<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ApplyError> + Send + 'static,
) -> Result<Json<T>, Problem> {
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => Ok(Json(result?)),
        Err(error) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", error.to_string())),
    }
}

fn named(author: String) -> String {
    if author.is_empty() { "api".to_owned() } else { author }
}

/// `If-Match: "7"`: only if revision 7 is the latest. `"0"`: only if there is none.
fn expected_parent(headers: &HeaderMap) -> Result<Parent, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(Parent::Latest) };
    let number = value.to_str().ok().and_then(|text| text.trim_matches('"').parse::<u64>().ok());
    match number {
        Some(number) => Ok(Parent::Exactly((number > 0).then_some(number))),
        None => {
            let detail = "`If-Match` must be the number of a revision in quotes, such as \"7\"".to_owned();
            Err(Problem::new(StatusCode::BAD_REQUEST, "invalid request", detail))
        }
    }
}

/// An error, as RFC 9457 has it.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    errors: Option<Diagnostics>,
}

impl Problem {
    fn new(status: StatusCode, title: &'static str, detail: String) -> Self {
        Self { status, title, detail, errors: None }
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), "invalid request", rejection.body_text())
    }
}

impl From<ApplyError> for Problem {
    fn from(error: ApplyError) -> Self {
        let detail = error.to_string();
        let (status, title) = match &error {
            ApplyError::Compile(_) => (StatusCode::UNPROCESSABLE_ENTITY, "the resources are not valid"),
            ApplyError::Store(StoreError::Conflict { .. }) => {
                (StatusCode::PRECONDITION_FAILED, "somebody else was faster")
            }
            ApplyError::Store(StoreError::Full { .. }) => (StatusCode::INSUFFICIENT_STORAGE, "no space is left"),
            ApplyError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the store failed"),
            ApplyError::NoRevision(_) => (StatusCode::NOT_FOUND, "no such revision"),
            ApplyError::NotNow(_) | ApplyError::NoRollout => (StatusCode::CONFLICT, "not now"),
        };
        let errors = match error {
            ApplyError::Compile(CompileError::Diagnostics(diagnostics)) => Some(diagnostics),
            _ => None,
        };
        Self { status, title, detail, errors }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, title, detail, errors } = self;
        let mut body = json!({ "title": title, "status": status.as_u16(), "detail": detail });
        if let (Some(errors), Some(body)) = (errors, body.as_object_mut()) {
            body.insert("errors".to_owned(), json!(errors));
        }
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
    }
}
