//! Start-up with a stored revision that is no longer valid, because a newer version of this program checks more.
//! Everything valid is served; the rest is served as a refusal (docs/rules.md, 4.2).

use postern_compile::pipeline::CompileError;
use postern_model::{Absence, Bundle, Diagnostic, Diagnostics, File, SCHEMAS};
use serde_json::{Value, json};

use super::{Admission, ApplyError};
use crate::{
    publication::Publication,
    store::{Document, assemble},
};

/// What can be served of a revision.
pub(super) struct Served {
    pub(super) bundle: Bundle,
    pub(super) publication: Publication,
    /// All errors of the revision; their resources are served as refusals, or not at all.
    pub(super) problems: Option<Diagnostics>,
}

/// Serves documents without the invalid ones: an invalid policy is replaced by one that answers 500 on the same route,
/// and invalid resources that policies refer to are left out. If leaving one out could let a request through, nothing
/// is served and the errors are returned.
pub(super) fn serve(mut documents: Vec<Document>, admission: &dyn Admission) -> Result<Served, ApplyError> {
    let mut problems: Vec<Diagnostic> = Vec::new();
    loop {
        let (error, found) = match attempt(&documents, admission) {
            Ok((bundle, publication)) => {
                return Ok(Served { bundle, publication, problems: Diagnostics::reject(problems).err() });
            }
            Err(CompileError::Diagnostics(found)) => (ApplyError::from(found.clone()), found),
            Err(error) => return Err(error.into()),
        };
        let before = problems.len();
        for problem in found {
            let Some(place) = documents.iter().position(|document| covers(document, &problem)) else {
                return Err(error);
            };
            match documents.get(place).map(in_its_stead) {
                Some(Stead::Refusal(refusal)) => documents.splice(place..=place, [refusal]).for_each(drop),
                Some(Stead::Nothing) => drop(documents.remove(place)),
                Some(Stead::Neither) | None => return Err(error),
            }
            problems.push(problem);
        }
        if problems.len() == before {
            return Err(error);
        }
    }
}

fn attempt(documents: &[Document], admission: &dyn Admission) -> Result<(Bundle, Publication), CompileError> {
    let bundle = admission.read(&assemble(documents))?;
    let publication = admission.admit(&bundle)?;
    Ok((bundle, publication))
}

fn covers(document: &Document, problem: &Diagnostic) -> bool {
    let lines = document.text.split(|byte| *byte == b'\n').count();
    document.file == problem.file && (document.line..document.line + lines).contains(&problem.line)
}

enum Stead {
    Refusal(Document),
    Nothing,
    Neither,
}

fn in_its_stead(document: &Document) -> Stead {
    let file = File { name: document.file.clone(), bytes: document.text.clone() };
    let Ok(value) = postern_model::read_document(&file) else { return Stead::Neither };
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let target = value.pointer("/spec/targetRef");
    let absence = SCHEMAS.iter().find(|schema| schema.name == kind).map(|schema| schema.absence);
    match target {
        _ if absence == Some(Absence::FailsClosed) => Stead::Nothing,
        // If a refusal itself is invalid, replacing it again would never end.
        Some(target) if kind == "RoutePolicy" && value.pointer("/metadata/labels/postern-refusal").is_none() => {
            Stead::Refusal(refusal(document, &value, target))
        }
        _ => Stead::Neither,
    }
}

/// A policy with the same name that answers 500 on the same route.
fn refusal(document: &Document, value: &Value, target: &Value) -> Document {
    let body = json!({ "error": "Policy configuration error", "code": "POLICY_INVALID" }).to_string();
    let name = value.pointer("/metadata/name");
    let refusal = json!({
        "apiVersion": "postern/v1",
        "kind": "RoutePolicy",
        "metadata": { "name": name, "labels": { "postern-refusal": "true" } },
        "spec": {
            "targetRef": target,
            "override": true,
            "request": [{
                "name": "postern-refusal",
                "policy": "respond",
                "params": { "status": 500, "headers": { "content-type": "application/json" }, "body": body },
            }],
        },
    });
    // JSON is YAML, and one line keeps the line numbers of the following documents.
    let start = if document.text.starts_with(b"---") { "--- " } else { "" };
    let lines = document.text.iter().filter(|byte| **byte == b'\n').count();
    let text = format!("{start}{refusal}{}", "\n".repeat(lines.max(1)));
    Document { text: text.into_bytes(), ..document.clone() }
}
