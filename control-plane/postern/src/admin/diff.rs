//! The operation that compares a bundle with what is in force, without applying it.

use std::sync::Arc;

use axum::extract::State;
use postern_base::node::NodeIdentity;
use postern_model::{Bundle, File};
use postern_release::{
    catalogue::Catalogue,
    releases::{ApplyError, Extent, Proposal, Word, complete},
    store::{assemble, split},
};
use postern_tools::difference::{Difference, Side, compare};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    LARGEST_BUNDLE,
    changes::SentFile,
    extract::{Form, Sent, Shown, on_a_thread},
    operation::Operation,
    problem::Problem,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::post(
            "/api/v1/diff",
            (
                "diff",
                "Compare resources with what is in force: which resources, nodes, routes and steps they would change.",
            ),
            diff,
        )
        .takes::<Proposed>()
        .up_to(LARGEST_BUNDLE)
        .shows::<Difference>("What they would change; nothing is changed.")
        .problem(422, "The resources are not valid, or the filter refuses them."),
    ]
}

/// Resources that somebody thinks of applying.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Proposed {
    /// The files that they stand in.
    files: Vec<SentFile>,
    /// Whether they are to be added to what is in force, as `apply` does. Default: they are all resources, as for `sync`.
    #[serde(default)]
    additions: bool,
}

async fn diff(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Sent(Proposed { files, additions }): Sent<Proposed>,
) -> Result<Shown<Difference>, Problem> {
    on_a_thread(move || {
        let files: Vec<File> = files.into_iter().map(File::from).collect();
        let extent = if additions { Extent::Additions } else { Extent::Exactly(Word::default()) };
        let proposal = Proposal { files, extent, ..Proposal::default() };
        let files = complete(&proposal, (plane.in_force().releases().in_force(), &**plane.store()))?;
        let (bundle, _) = plane.examiner().examine(&files)?;
        let catalogue = Catalogue::of(&split(&files));
        let after = Side { revision: None, bundle: &bundle, catalogue: &catalogue };
        let in_force = plane.in_force().releases().in_force();
        let found = in_force.map(|number| content(&plane, number)).transpose()?;
        let (bundle, catalogue) = found.unwrap_or_default();
        let before = Side { revision: in_force, bundle: &bundle, catalogue: &catalogue };
        Ok::<_, ApplyError>(Shown(form, compare(before, after, &live_nodes(&plane))))
    })
    .await
}

/// The resources of a revision, as they are served and as they were written. Fails if the revision is not kept.
pub(super) fn content(plane: &ControlPlane, number: u64) -> Result<(Arc<Bundle>, Arc<Catalogue>), ApplyError> {
    let catalogue = plane.catalogue(number)?.ok_or(ApplyError::NoRevision(number))?;
    if let Some(bundle) = plane.in_force().releases().bundle(number) {
        return Ok((Arc::clone(bundle), catalogue));
    }
    let documents = plane.store().documents(number)?.ok_or(ApplyError::NoRevision(number))?;
    Ok((Arc::new(postern_model::read(&assemble(&documents))?), catalogue))
}

/// The identities of connected nodes.
pub(super) fn live_nodes(plane: &ControlPlane) -> Vec<NodeIdentity> {
    let (identities, reports) = plane.fleet().ask(|fleet| (fleet.identities(), fleet.report()));
    let nodes = identities.into_iter().zip(reports);
    nodes.filter(|(_, report)| report.connected).map(|(node, _)| node).collect()
}
