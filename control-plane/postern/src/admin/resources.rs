//! Operations on resources: what is in force, as it was written, and its conditions.

use std::sync::Arc;

use axum::extract::State;
use postern_base::{
    diagnostic::{quote, suggestion},
    node::DEFAULT_MESH,
};
use postern_compile::keys::KeySetReport;
use postern_model::{KeySource, SCHEMAS};
use postern_release::{
    catalogue::{Entry, ResourceKey},
    condition::{Conditions, Truth},
    owner::InForce,
    published_keys::show_keys,
    releases::{Concerns, RefusedChange},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    extract::{Asked, Form, Named, Shown, on_a_thread},
    operation::Operation,
    problem::Problem,
};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    let kinds = "A kind that does not exist.";
    vec![
        Operation::get(
            "/api/v1/resources",
            ("listResources", "List all resources in force, with their conditions."),
            list,
        )
        .query::<Listing>()
        .shows::<Vec<ResourceReport>>("The resources, by kind, mesh and name. Credentials are hidden."),
        Operation::get(
            "/api/v1/resources/{kind}",
            ("listResourcesOfKind", "List the resources of one kind in force."),
            list_kind,
        )
        .path::<OfKind>()
        .query::<Listing>()
        .shows::<Vec<ResourceReport>>("The resources, by mesh and name. Credentials are hidden.")
        .problem(404, kinds),
        Operation::get(
            "/api/v1/resources/{kind}/{name}",
            ("getResource", "Show one resource, with its conditions."),
            get,
        )
        .path::<OfName>()
        .query::<InMesh>()
        .shows::<ResourceReport>("The resource. Credentials are hidden.")
        .problem(404, "There is no such resource, or no such kind."),
        Operation::get(
            "/api/v1/resources/{kind}/{name}/conditions",
            ("getResourceConditions", "Show where a resource is: the conditions of every live revision that has it."),
            conditions,
        )
        .path::<OfName>()
        .query::<InMesh>()
        .shows::<Vec<RevisionConditions>>("The live revisions that have it, the latest first.")
        .problem(404, "There is no such resource, or no such kind."),
    ]
}

/// Which resources to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Listing {
    /// Only those of this mesh.
    mesh: Option<String>,
}

/// Which resource is meant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InMesh {
    /// Its mesh; default: `default`.
    mesh: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OfKind {
    /// The kind, such as `RoutePolicy`.
    kind: String,
}

/// Which resource is meant.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfName {
    /// The kind, such as `RoutePolicy`.
    kind: String,
    /// The name.
    name: String,
}

/// A resource as it was written, and where it is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceReport {
    api_version: Value,
    kind: String,
    metadata: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    spec: Value,
    status: ResourceStatus,
}

/// Where a resource is on its way to the nodes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceStatus {
    /// The file that it stands in.
    file: String,
    /// The line that it starts at.
    line: usize,
    /// How many times its content has changed, as of the revision in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    /// The latest refused changes that have errors in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_changes: Vec<RefusedReport>,
    /// The live revisions that have it, the latest first: two during a rollout, and after one that went back.
    revisions: Vec<RevisionConditions>,
}

/// A change that was refused because of a resource.
#[derive(Debug, Serialize, JsonSchema)]
struct RefusedReport {
    /// Who made it.
    author: String,
    /// Why.
    message: String,
    /// When it was refused, in milliseconds since 1970.
    at: u64,
    /// The conditions of the resource in it: what is wrong with it.
    conditions: Conditions,
}

/// The conditions of a resource in one revision.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RevisionConditions {
    /// The revision.
    revision: u64,
    /// Whether that is the one in force.
    in_force: bool,
    /// How many times the resource's content has changed, as of this revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    /// How many live nodes run it, of those that are to.
    ready: usize,
    /// How many live nodes are to run it.
    nodes: usize,
    /// Its conditions. A list leaves out nodes that run it.
    conditions: Conditions,
}

async fn list(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Asked(Listing { mesh }): Asked<Listing>,
) -> Result<Shown<Vec<ResourceReport>>, Problem> {
    let reading = plane.looked().await;
    on_a_thread(move || Ok::<_, Problem>(Shown(form, reports(&plane, reading, None, mesh.as_deref())?))).await
}

async fn list_kind(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(OfKind { kind }): Named<OfKind>,
    Asked(Listing { mesh }): Asked<Listing>,
) -> Result<Shown<Vec<ResourceReport>>, Problem> {
    let kind = known_kind(&kind)?;
    let reading = plane.looked().await;
    on_a_thread(move || Ok::<_, Problem>(Shown(form, reports(&plane, reading, Some(kind), mesh.as_deref())?))).await
}

async fn get(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(of): Named<OfName>,
    Asked(InMesh { mesh }): Asked<InMesh>,
) -> Result<Shown<ResourceReport>, Problem> {
    let key = of.key(mesh)?;
    let reading = plane.looked().await;
    on_a_thread(move || Ok::<_, Problem>(Shown(form, find(&plane, reading, &key)?))).await
}

async fn conditions(
    State(plane): State<Arc<ControlPlane>>,
    form: Form,
    Named(of): Named<OfName>,
    Asked(InMesh { mesh }): Asked<InMesh>,
) -> Result<Shown<Vec<RevisionConditions>>, Problem> {
    let key = of.key(mesh)?;
    let reading = plane.looked().await;
    on_a_thread(move || Ok::<_, Problem>(Shown(form, find(&plane, reading, &key)?.status.revisions))).await
}

/// A resource that a request names.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reference {
    /// The kind, such as `RoutePolicy`.
    kind: String,
    /// The name.
    name: String,
    /// The mesh; default: `default`.
    mesh: Option<String>,
}

impl Reference {
    /// The resource that is meant. Fails if there is no such kind.
    pub(super) fn key(self) -> Result<ResourceKey, Problem> {
        let Self { kind, name, mesh } = self;
        OfName { kind, name }.key(mesh)
    }
}

impl OfName {
    pub(super) fn key(self, mesh: Option<String>) -> Result<ResourceKey, Problem> {
        let kind = known_kind(&self.kind)?.to_owned();
        Ok(ResourceKey { kind, mesh: mesh.unwrap_or_else(|| DEFAULT_MESH.to_owned()), name: self.name })
    }
}

/// The canonical spelling of a kind, which may be given in any case.
fn known_kind(kind: &str) -> Result<&'static str, Problem> {
    let names = || SCHEMAS.iter().map(|schema| schema.name);
    names().find(|name| name.eq_ignore_ascii_case(kind)).ok_or_else(|| {
        let all = names().collect::<Vec<_>>().join(", ");
        let near = suggestion(kind, names());
        let hint = if near.is_empty() { format!(": the kinds are {all}") } else { near };
        Problem::not_found("no such kind", format!("unknown kind {}{hint}", quote(kind)))
    })
}

pub(super) fn unknown(plane: &ControlPlane, key: &ResourceKey) -> Problem {
    let in_force = plane.in_force().releases().in_force();
    let catalogue = in_force.and_then(|number| plane.catalogue(number).ok().flatten()).unwrap_or_default();
    let names = catalogue.iter().filter(|(other, _)| other.kind == key.kind && other.mesh == key.mesh);
    let near = suggestion(&key.name, names.map(|(other, _)| other.name.as_str()));
    Problem::not_found("no such resource", format!("{key} is not in force{near}"))
}

fn reports(
    plane: &ControlPlane,
    reading: Arc<InForce>,
    kind: Option<&str>,
    mesh: Option<&str>,
) -> Result<Vec<ResourceReport>, Problem> {
    let Some(in_force) = reading.releases().in_force() else { return Ok(Vec::new()) };
    let catalogue = plane.catalogue(in_force)?.unwrap_or_default();
    let looker = Looker::new(plane, reading);
    let wanted =
        |key: &ResourceKey| kind.is_none_or(|kind| key.kind == kind) && mesh.is_none_or(|mesh| key.mesh == mesh);
    let found = catalogue.iter().filter(|(key, _)| wanted(key));
    let mut reports: Vec<_> = found.map(|(key, entry)| looker.report(key, entry)).collect();
    // With thousands of resources on thousands of nodes, a list omits the nodes that run what they should.
    for revision in reports.iter_mut().flat_map(|report| &mut report.status.revisions) {
        revision.conditions.retain(|condition| condition.node.is_none() || condition.status != Truth::True);
    }
    Ok(reports)
}

/// Finds a resource in what is in force or, failing that, in a revision that was rolled back or in a change that was
/// refused, so that its author can see why. Answers 404 if none has it.
fn find(plane: &ControlPlane, reading: Arc<InForce>, key: &ResourceKey) -> Result<ResourceReport, Problem> {
    let in_force = reading.releases().in_force();
    let others = reading.releases().live().filter(|number| Some(*number) > in_force);
    let live: Vec<_> = in_force.into_iter().chain(others).collect();
    for number in live {
        let catalogue = plane.catalogue(number)?.unwrap_or_default();
        if let Some(entry) = catalogue.get(key) {
            return Ok(Looker::new(plane, reading).report(key, entry));
        }
    }
    let looker = Looker::new(plane, reading);
    looker.refused_only(key).ok_or_else(|| unknown(plane, key))
}

/// Reads the status of resources in all live revisions.
struct Looker {
    reading: Arc<InForce>,
    concerns: Vec<(u64, Concerns)>,
    /// The key sets that Issuers publish.
    keys: Vec<KeySetReport>,
}

impl Looker {
    fn new(plane: &ControlPlane, reading: Arc<InForce>) -> Self {
        let nodes = plane.identities();
        let concerns = |number: u64| Some((number, reading.releases().concerns(number, &nodes)?));
        let concerns = reading.releases().live().filter_map(concerns).collect();
        Self { reading, concerns, keys: plane.keys().report() }
    }

    fn report(&self, key: &ResourceKey, entry: &Entry) -> ResourceReport {
        let in_force = self.reading.releases().in_force();
        let conditions = |(revision, concerns): &(u64, Concerns)| {
            let mut conditions = self.reading.releases().resource_conditions(*revision, key, concerns)?;
            if let Some(keys) = self.keys_of(*revision, key) {
                show_keys(&mut conditions, keys);
            }
            let of_nodes = || conditions.iter().filter(|condition| condition.node.is_some());
            let ready = of_nodes().filter(|condition| condition.status == Truth::True).count();
            let (nodes, in_force) = (of_nodes().count(), Some(*revision) == in_force);
            let generation = self.reading.releases().generation(*revision, key);
            Some(RevisionConditions { revision: *revision, in_force, generation, ready, nodes, conditions })
        };
        let mut shown = entry.shown();
        let mut part = |name: &str| shown.get_mut(name).map(Value::take).unwrap_or_default();
        ResourceReport {
            api_version: part("apiVersion"),
            kind: key.kind.clone(),
            metadata: part("metadata"),
            spec: part("spec"),
            status: ResourceStatus {
                file: entry.file.clone(),
                line: entry.line,
                generation: in_force.and_then(|number| self.reading.releases().generation(number, key)),
                refused_changes: self.refused_changes(key),
                revisions: self.concerns.iter().filter_map(conditions).collect(),
            },
        }
    }

    /// A resource that exists in a refused change only. What it says is not shown: it was not checked, so that it is not
    /// known where it has credentials.
    fn refused_only(&self, key: &ResourceKey) -> Option<ResourceReport> {
        let found = self.reading.refused_changes().find_map(|refused| refused.resources.get(key))?;
        let (file, line) = (found.file.clone(), found.line);
        let (generation, revisions) = Default::default();
        let ResourceKey { kind, mesh, name } = key.clone();
        let metadata =
            if mesh == DEFAULT_MESH { json!({ "name": name }) } else { json!({ "name": name, "mesh": mesh }) };
        Some(ResourceReport {
            api_version: "postern/v1".into(),
            kind,
            metadata,
            spec: Value::Null,
            status: ResourceStatus { file, line, generation, refused_changes: self.refused_changes(key), revisions },
        })
    }

    fn refused_changes(&self, key: &ResourceKey) -> Vec<RefusedReport> {
        let report = |refused: &RefusedChange| {
            let (author, message, at) = (refused.author.clone(), refused.message.clone(), refused.at);
            Some(RefusedReport { author, message, at, conditions: refused.conditions_of(key)? })
        };
        self.reading.refused_changes().filter_map(report).collect()
    }

    /// The key set of an Issuer that publishes one.
    fn keys_of(&self, revision: u64, key: &ResourceKey) -> Option<&KeySetReport> {
        let bundle = self.reading.releases().bundle(revision).filter(|_| key.kind == "Issuer")?;
        let issuer = bundle.issuers.iter().find(|issuer| issuer.name == key.name && issuer.mesh == key.mesh)?;
        match &issuer.spec.keys {
            KeySource::Published { uri, .. } => self.keys.iter().find(|report| report.uri == *uri),
            _ => None,
        }
    }
}
