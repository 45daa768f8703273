//! Operations on revisions: which are kept, their content, their conditions, and what each changed.

use std::sync::Arc;

use axum::extract::State;
use postern_base::diagnostic::quote;
use postern_release::{
    condition::Conditions,
    owner::InForce,
    releases::{ApplyError, NodeRefusal, PlanUse, RevisionState},
    store::Revision,
};
use postern_tools::difference::{Difference, Side, compare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    diff::{content, live_nodes},
    extract::{Asked, Form, Named, Shown, read},
    operation::Operation,
    problem::Problem,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    let none = "There is no such revision, or it is no longer kept.";
    vec![
        Operation::get(
            "/api/v1/revisions",
            ("listRevisions", "List the revisions that are kept, the latest first."),
            list,
        )
        .shows::<Vec<ListedRevision>>("The revisions, each with what became of it."),
        Operation::get("/api/v1/revisions/{number}", ("getRevision", "Show a revision, with its conditions."), get)
            .path::<Numbered>()
            .shows::<RevisionReport>("The revision.")
            .problem(404, none),
        Operation::get(
            "/api/v1/revisions/{number}/conditions",
            ("getRevisionConditions", "Show where a revision is."),
            conditions,
        )
        .path::<Numbered>()
        .shows::<Conditions>("Its conditions, in the order of a life and of nodes.")
        .problem(404, none),
        Operation::get(
            "/api/v1/revisions/{number}/resources",
            ("getRevisionResources", "Show the resources of a revision as they were written."),
            resources,
        )
        .path::<Numbered>()
        .shows::<Vec<Value>>("The resources, by kind, mesh and name. Credentials are hidden.")
        .problem(404, none),
        Operation::get(
            "/api/v1/revisions/{number}/diff",
            ("diffRevisions", "Compare a revision with another: which resources, nodes, routes and steps differ."),
            diff,
        )
        .path::<Numbered>()
        .query::<Against>()
        .shows::<Difference>("What it changed.")
        .problem(404, none)
        .problem(422, "What one of them says is no longer valid."),
        Operation::get(
            "/api/v1/plans/{label}",
            (
                "getPlan",
                "Show which revisions brought a plan to which nodes, and when: what a label in a log stands for.",
            ),
            plan,
        )
        .path::<Labelled>()
        .shows::<Vec<PlanReport>>("The revisions with this plan, the latest first.")
        .problem(404, "No revision that is remembered had such a plan."),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Numbered {
    /// The number of the revision.
    number: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Against {
    /// The number of the other revision; default: the one that it followed.
    against: Option<u64>,
}

/// A revision, and what became of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListedRevision {
    #[serde(flatten)]
    revision: Revision,
    #[serde(flatten)]
    state: RevisionState,
    /// Whether parts of it are not valid, and are served as refusals.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    invalid: bool,
    /// The nodes that refused it, as far as is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_by: Vec<NodeRefusal>,
}

impl ListedRevision {
    fn of(revision: Revision, reading: &InForce) -> Self {
        let number = revision.number;
        let invalid = reading.releases().lifecycle(number).is_some_and(|lifecycle| !lifecycle.errors().is_empty());
        let (state, refused_by) = (reading.releases().state(number), reading.releases().refusals(number));
        Self { revision, state, invalid, refused_by }
    }
}

/// A revision, and where it is.
#[derive(Debug, Serialize, JsonSchema)]
struct RevisionReport {
    #[serde(flatten)]
    revision: ListedRevision,
    /// Where it is; absent if that is no longer known.
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Conditions>,
}

async fn list(State(plane): State<Arc<ControlPlane>>, form: Form) -> Result<Shown<Vec<ListedRevision>>, Problem> {
    let reading = plane.looked().await;
    read(move || {
        let listed = |revision| ListedRevision::of(revision, &reading);
        Ok(Shown(form, plane.store().revisions()?.into_iter().map(listed).collect()))
    })
    .await
}

async fn get(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(Numbered { number }): Named<Numbered>,
) -> Result<Shown<RevisionReport>, Problem> {
    let reading = plane.looked().await;
    read(move || Ok(Shown(form, report(&plane, &reading, number)?))).await
}

async fn conditions(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(Numbered { number }): Named<Numbered>,
) -> Result<Shown<Conditions>, Problem> {
    let reading = plane.looked().await;
    read(move || Ok(Shown(form, report(&plane, &reading, number)?.conditions.unwrap_or_default()))).await
}

fn report(plane: &ControlPlane, reading: &InForce, number: u64) -> Result<RevisionReport, ApplyError> {
    let revision = plane.store().revision(number)?.ok_or(ApplyError::NoRevision(number))?;
    let conditions = reading.releases().lifecycle(number).map(|lifecycle| lifecycle.conditions().clone());
    Ok(RevisionReport { revision: ListedRevision::of(revision, reading), conditions })
}

async fn resources(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(Numbered { number }): Named<Numbered>,
) -> Result<Shown<Vec<Value>>, Problem> {
    read(move || {
        let catalogue = plane.catalogue(number)?.ok_or(ApplyError::NoRevision(number))?;
        Ok(Shown(form, catalogue.iter().map(|(_, entry)| entry.shown()).collect()))
    })
    .await
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Labelled {
    /// The label, as filter state, logs and records have it.
    label: String,
}

/// A plan in one revision.
#[derive(Debug, Serialize, JsonSchema)]
struct PlanReport {
    #[serde(flatten)]
    used: PlanUse,
    /// The digest of the revision, as `revisions` shows it; absent if the revision is no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

async fn plan(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(Labelled { label }): Named<Labelled>,
) -> Result<Shown<Vec<PlanReport>>, Problem> {
    let uses = plane.looked().await.releases().plan_uses(&label);
    if uses.is_empty() {
        let detail = format!("no revision that is remembered had a plan {}", quote(&label));
        return Err(Problem::not_found("no such plan", detail));
    }
    read(move || {
        let report = |used: PlanUse| {
            let digest = plane.store().revision(used.revision)?.map(|revision| revision.digest);
            Ok(PlanReport { used, digest })
        };
        Ok(Shown(form, uses.into_iter().map(report).collect::<Result<_, ApplyError>>()?))
    })
    .await
}

async fn diff(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(Numbered { number }): Named<Numbered>,
    Asked(Against { against }): Asked<Against>,
) -> Result<Shown<Difference>, Problem> {
    read(move || {
        let revision = plane.store().revision(number)?.ok_or(ApplyError::NoRevision(number))?;
        // The first revision has none to compare with.
        let other = against.or(revision.parent);
        let (bundle, catalogue) = other.map(|other| content(&plane, other)).transpose()?.unwrap_or_default();
        let before = Side { revision: other, bundle: &bundle, catalogue: &catalogue };
        let (bundle, catalogue) = content(&plane, number)?;
        let after = Side { revision: Some(number), bundle: &bundle, catalogue: &catalogue };
        Ok(Shown(form, compare(before, after, &live_nodes(&plane))))
    })
    .await
}
