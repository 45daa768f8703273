//! Operations for a summary of the control plane's state, and for the filter's code.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use postern_base::digest::Digest;
use postern_compile::keys::KeySetReport;
use postern_release::{
    fleet::NodeReport,
    releases::{HeldBack, HeldChange, kept_build},
    rollout::RolloutReport,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    extract::{Form, Named, Shown, on_a_thread},
    operation::Operation,
    problem::Problem,
    warnings::Warnings,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get(
            "/status",
            ("getStatus", "All at a glance: what is in force, how it spreads, and which node runs what."),
            status,
        )
        .shows::<Status>("The status."),
        Operation::get(
            "/filter/{file}",
            ("getFilter", "The filter's code, by its digest, for whoever puts it on nodes."),
            filter,
        )
        .path::<FilterFile>()
        .text("application/wasm", "The code.")
        .problem(404, "No filter of this digest is kept."),
    ]
}

/// All that the control plane knows, at a glance.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The digest of the revision in force, as `revisions` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    /// The number of the revision in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<u64>,
    /// How it spreads.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout: Option<RolloutReport>,
    /// The digest of the filter that this control plane was started with.
    filter: Digest,
    /// The digests of the filter builds that the revision in force is for, the one that is served first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<String>,
    /// The digests of filter builds that were taken back, so that changes are for the former ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters_taken_back: Vec<String>,
    /// What is invalid in what is in force, and served as a refusal: a line an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    invalid: Vec<String>,
    /// Why the latest change of the directory or of a user was refused, if it was: a line an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_change: Vec<String>,
    /// What the followed directory says that is not in force, because it was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<HeldBack>,
    /// The change of the followed directory that waits for a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldChange>,
    /// What is worth a warning about what is in force.
    #[serde(flatten)]
    warnings: Warnings,
    /// The key sets that issuers publish.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key_sets: Vec<KeySetReport>,
    nodes: Vec<StatusNode>,
}

/// A node, and what it runs.
#[derive(Debug, Serialize, JsonSchema)]
struct StatusNode {
    #[serde(flatten)]
    report: NodeReport,
    /// The digest of the revision that it runs in all that it subscribed to, as `revisions` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
}

async fn status(State(plane): State<Arc<ControlPlane>>, form: Form) -> Result<Shown<Status>, Problem> {
    on_a_thread(move || Ok::<_, Problem>(Shown(form, Status::of(&plane)))).await
}

impl Status {
    fn of(plane: &ControlPlane) -> Self {
        let reading = plane.in_force();
        let in_force = reading.releases().in_force();
        // A publication that is no revision.
        let published = || plane.publications().latest().map(|publication| publication.revision().to_string());
        // That of the publication covers the keys that issuers publish, too.
        let node = |mut report: NodeReport| {
            let digest = report.revision.take().and_then(|revision| match in_force {
                Some(_) => reading.releases().digest_of(revision.as_str()).map(str::to_owned),
                None => Some(revision.to_string()),
            });
            StatusNode { report, revision: digest }
        };
        let nodes = plane.fleet().report().into_iter().map(node).collect();
        let filters = |number| reading.releases().filters(number).map(<[String]>::to_vec);
        Self {
            revision: in_force.map_or_else(published, |number| reading.releases().digest(number).map(str::to_owned)),
            in_force,
            rollout: reading.rollout_report(),
            filter: plane.code().digest().clone(),
            filters: in_force.and_then(filters).unwrap_or_default(),
            filters_taken_back: reading.releases().filters_taken_back().unwrap_or_default().to_vec(),
            invalid: reading.invalid(),
            refused_change: reading.refused_change(),
            directory: reading.releases().held_back(),
            held: reading.held().cloned(),
            warnings: reading.warnings(&plane.identities()).into(),
            key_sets: plane.keys().report(),
            nodes,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct FilterFile {
    /// The digest of the filter, with or without `.wasm`.
    file: String,
}

async fn filter(
    State(plane): State<Arc<ControlPlane>>,
    Named(FilterFile { file }): Named<FilterFile>,
) -> Result<Response, Problem> {
    let asked = file.strip_suffix(".wasm").unwrap_or(&file).to_owned();
    let bytes = on_a_thread(move || {
        let code = plane.code();
        if code.digest().as_str() == asked {
            return Ok(code.bytes().to_vec());
        }
        kept_build(&asked, &**plane.store()).map_err(|_| {
            let detail = format!("no filter of this digest is kept: the current one is {}", code.digest());
            Problem::not_found("no such filter", detail)
        })
    });
    let headers = [(header::CONTENT_TYPE, "application/wasm"), (header::CACHE_CONTROL, "public, immutable")];
    Ok((headers, bytes.await?).into_response())
}
