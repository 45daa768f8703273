//! What takes the place of an invalid document, so that leaving it out lets no request through that it may have denied.

use std::collections::BTreeSet;

use postern_base::node::DEFAULT_MESH;
use postern_model::{
    Absence, Diagnostic, File, OUTBOUND_ROUTE, Refusal, SCHEMAS, TargetRef, attachment::is_attachment,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Fault;
use crate::store::{Document, assemble};

/// The name of a refusal that cannot have the name of what it stands for.
pub(super) const REFUSAL: &str = "postern-refusal";

/// What takes the place of a document.
pub(super) enum Stead {
    /// Nothing: without it, less is let through.
    Nothing,
    /// Nothing: these routes, with their mesh, are served to nobody.
    Unserved(Vec<(String, String)>),
    /// A service that nobody reaches, so that other resources may name it.
    Withdrawn {
        placeholder: Document,
        /// Its mesh and name.
        service: (String, String),
    },
    /// A refusal of what it may guard.
    Refusal(Refusal),
    /// The document itself, with refusals of some of its routes.
    Route(Vec<Refusal>),
    /// Whatever it guards is unknown: every request is refused.
    Everything,
}

/// The problems of a document that is not readable at all. `None` if it is.
pub(super) fn unreadable(document: &Document) -> Option<Vec<Diagnostic>> {
    read(document).err()
}

fn read(document: &Document) -> Result<Value, Vec<Diagnostic>> {
    if is_attachment(document.file.as_ref()) {
        return Ok(Value::Null);
    }
    let [file]: [File; 1] = assemble(std::slice::from_ref(document)).try_into().map_err(|_| Vec::new())?;
    postern_model::read_document(&file).map_err(|found| found.into_iter().collect())
}

/// The kind that a document says it is of.
pub(super) fn kind_of(document: &Document) -> Option<String> {
    read(document).ok()?.get("kind")?.as_str().map(str::to_owned)
}

/// Decides what takes the place of a document with these problems. `unserved` are the routes that nobody is served.
pub(super) fn stead(
    document: &Document,
    fault: &Fault,
    problems: &[Diagnostic],
    unserved: &BTreeSet<(String, String)>,
) -> Stead {
    if is_attachment(document.file.as_ref()) {
        return Stead::Nothing;
    }
    let Ok(value) = read(document) else { return Stead::Everything };
    let text = |path: &str| value.pointer(path).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or_default();
    let Some(schema) = SCHEMAS.iter().find(|schema| schema.name == kind) else { return Stead::Everything };
    let mesh = text("/metadata/mesh").unwrap_or(DEFAULT_MESH).to_owned();
    let name = text("/metadata/name").unwrap_or(REFUSAL).to_owned();
    let refusal = |target| {
        let name = if kind == "RoutePolicy" { name.clone() } else { REFUSAL.to_owned() };
        Refusal { mesh: mesh.clone(), target, name, file: document.file.clone(), line: document.line }
    };
    match kind {
        "Gateway" if matches!(fault, Fault::Unguarded(_)) => {
            let route = |name: String| refusal(TargetRef::HttpRoute { name, optional: true });
            Stead::Route(unguarded_routes(&value, problems).into_iter().map(route).collect())
        }
        "Gateway" => Stead::Unserved(route_names(&value).map(|route| (mesh.clone(), route.to_owned())).collect()),
        "VirtualOutbound" => Stead::Unserved(vec![(mesh, OUTBOUND_ROUTE.to_owned())]),
        "Service" if has(problems, "metadata") => Stead::Nothing,
        "Service" => Stead::Withdrawn { placeholder: placeholder(document, &value), service: (mesh, name) },
        _ if schema.absence == Absence::FailsClosed => Stead::Nothing,
        _ if !is_in_its_mesh(problems) => Stead::Everything,
        "RoutePolicy" | "TrafficPermission" => {
            let served = |target: &TargetRef| !is_unserved(target, &mesh, unserved);
            let target = TargetRef::deserialize(value.pointer("/spec/targetRef").unwrap_or(&Value::Null)).ok();
            let doubtful = !matches!(fault, Fault::Unguarded(_)) && has(problems, "spec.targetRef");
            // Without its `match`, requests would take another route, or none.
            let matches = value.pointer("/spec/match").is_some();
            // A target that is wrong was meant for another, and nobody knows for which.
            let target = target.filter(|target| !matches && (!doubtful || !served(target)));
            Stead::Refusal(refusal(target.unwrap_or(TargetRef::Mesh)))
        }
        _ => Stead::Refusal(refusal(TargetRef::Mesh)),
    }
}

/// Whether a problem is at a field, or within it.
fn has(problems: &[Diagnostic], field: &str) -> bool {
    let within = |problem: &Diagnostic| {
        let rest = problem.field.as_deref().and_then(|found| found.strip_prefix(field));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    problems.iter().any(within)
}

/// Whether a document with these problems has no effect outside of its mesh: everything but its `spec`, its name and
/// its labels is right.
fn is_in_its_mesh(problems: &[Diagnostic]) -> bool {
    problems.iter().all(|problem| match &problem.field {
        Some(_) => {
            ["spec", "metadata.name", "metadata.labels"].iter().any(|field| has(std::slice::from_ref(problem), field))
        }
        // It is the resource as a whole.
        None => problem.resource.is_some(),
    })
}

/// Whether a target is a route that nobody is served.
fn is_unserved(target: &TargetRef, mesh: &str, unserved: &BTreeSet<(String, String)>) -> bool {
    target.route().is_some_and(|route| is_unserved_route(route, mesh, unserved))
}

/// Whether nobody is served a route. Without a VirtualOutbound, its routes are not known: any could be one.
pub(super) fn is_unserved_route(route: &str, mesh: &str, unserved: &BTreeSet<(String, String)>) -> bool {
    let has = |route: &str| unserved.contains(&(mesh.to_owned(), route.to_owned()));
    has(route) || route.starts_with(OUTBOUND_ROUTE) && has(OUTBOUND_ROUTE)
}

fn route_names(gateway: &Value) -> impl Iterator<Item = &str> {
    let routes = gateway.pointer("/spec/routes").and_then(Value::as_array).into_iter().flatten();
    routes.filter_map(|route| route.get("name")?.as_str())
}

/// The names of the routes of a gateway that problems such as `spec.routes[1].name` are about.
fn unguarded_routes(gateway: &Value, problems: &[Diagnostic]) -> Vec<String> {
    let index = |problem: &Diagnostic| {
        let rest = problem.field.as_deref()?.strip_prefix("spec.routes[")?;
        rest.split_once(']')?.0.parse::<usize>().ok()
    };
    let name = |index| Some(gateway.pointer(&format!("/spec/routes/{index}/name"))?.as_str()?.to_owned());
    problems.iter().filter_map(index).filter_map(name).collect()
}

/// A service of the same name, on the same lines. Its endpoint is taken away again when it is read.
fn placeholder(document: &Document, value: &Value) -> Document {
    let service = json!({
        "apiVersion": "postern/v1",
        "kind": "Service",
        "metadata": value.get("metadata"),
        "spec": { "endpoints": [{ "address": "127.0.0.1", "port": 1 }] },
    });
    // JSON is YAML, and one line keeps the line numbers of the following documents.
    let start = if document.text.starts_with(b"---") { "--- " } else { "" };
    let lines = document.text.iter().filter(|byte| **byte == b'\n').count();
    Document { text: format!("{start}{service}{}", "\n".repeat(lines.max(1))).into_bytes(), ..document.clone() }
}
