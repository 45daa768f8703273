//! What a bundle would change, said before it does.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    LARGEST_BUNDLE,
    changes::SentFile,
    extract::{Form, Sent, Shown, on_a_thread},
    operation::Operation,
    problem::Problem,
};
use crate::{
    catalogue::Catalogue,
    difference::{Difference, Side, compare},
    model::{self, Bundle, File},
    node::NodeIdentity,
    releases::ApplyError,
    serve::Hub,
    store::{assemble, split},
};

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

/// All resources that somebody thinks of applying.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Proposed {
    /// The files that they stand in.
    files: Vec<SentFile>,
}

async fn diff(
    State(hub): State<Arc<Hub>>,
    form: Form,
    Sent(Proposed { files }): Sent<Proposed>,
) -> Result<Shown<Difference>, Problem> {
    on_a_thread(move || {
        let files: Vec<File> = files.into_iter().map(File::from).collect();
        let bundle = hub.admissible(&files)?;
        let catalogue = Catalogue::of(&split(&files));
        let after = Side { revision: None, bundle: &bundle, catalogue: &catalogue };
        let in_force = hub.releases().in_force();
        let found = in_force.map(|number| content(&hub, number)).transpose()?;
        let (bundle, catalogue) = found.unwrap_or_default();
        let before = Side { revision: in_force, bundle: &bundle, catalogue: &catalogue };
        Ok::<_, ApplyError>(Shown(form, compare(before, after, &live_nodes(&hub))))
    })
    .await
}

/// The resources of a revision that is kept, as they are served and as they were written.
pub(super) fn content(hub: &Hub, number: u64) -> Result<(Bundle, Arc<Catalogue>), ApplyError> {
    let catalogue = hub.catalogue(number)?.ok_or(ApplyError::NoRevision(number))?;
    if let Some(bundle) = hub.releases().bundle(number) {
        return Ok((bundle.clone(), catalogue));
    }
    let documents = hub.store().documents(number)?.ok_or(ApplyError::NoRevision(number))?;
    Ok((model::read(&assemble(&documents))?, catalogue))
}

/// The nodes that are connected, by who they say they are.
pub(super) fn live_nodes(hub: &Hub) -> Vec<NodeIdentity> {
    let fleet = hub.fleet();
    let nodes = fleet.identities().into_iter().zip(fleet.report());
    nodes.filter(|(_, report)| report.connected).map(|(node, _)| node).collect()
}
