//! A resource: what a user declared, of any kind, and where.

use std::{cmp::Ordering, collections::BTreeMap, fmt, ops::Deref, sync::Arc};

use postern_base::{
    diagnostic::{Diagnostic, Path},
    digest::Digest,
    node::DEFAULT_MESH,
    yaml::{Node, Origin, Position},
};
use serde::Deserialize;

use super::{check, kind::Spec, report::Report, target_ref::Reach};

/// One thing that a user declared, and where. Cheap to clone: what was read is shared.
pub struct Resource<T> {
    declared: Arc<Declared<T>>,
    file: Arc<str>,
    /// How many lines of the file stand before what `declared` counts from.
    lines_before: usize,
}

/// What was declared, wherever it stands.
pub struct Declared<T> {
    /// The name, unique among the resources of its kind in its mesh.
    pub name: String,
    /// The mesh that it belongs to: it refers to nothing outside.
    pub mesh: String,
    /// The user's own labels.
    pub labels: BTreeMap<String, String>,
    /// What was declared.
    pub spec: T,
    kind: &'static str,
    origin: Origin,
    digest: Digest,
}

impl<T> Clone for Resource<T> {
    fn clone(&self) -> Self {
        self.placed(&self.file, self.lines_before)
    }
}

impl<T> Deref for Resource<T> {
    type Target = Declared<T>;

    fn deref(&self) -> &Declared<T> {
        &self.declared
    }
}

impl<T: fmt::Debug> fmt::Debug for Resource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Declared { name, mesh, labels, spec, kind, digest, .. } = &*self.declared;
        let Position { line, column } = self.start();
        f.debug_struct(kind)
            .field("name", name)
            .field("mesh", mesh)
            .field("labels", labels)
            .field("spec", spec)
            .field("origin", &format_args!("{}:{line}:{column}", self.file))
            .field("digest", digest)
            .finish()
    }
}

impl<T> Resource<T> {
    /// The same in a file, behind so many lines.
    pub(super) fn placed(&self, file: &Arc<str>, lines_before: usize) -> Self {
        Self { declared: Arc::clone(&self.declared), file: Arc::clone(file), lines_before }
    }

    /// Where its document starts.
    fn start(&self) -> Position {
        self.origin.start().below(self.lines_before)
    }

    /// An error at a field such as `spec.routes[0].service`; at its nearest parent if the user left it out.
    pub fn diagnose(&self, field: &str, message: impl Into<String>) -> Diagnostic {
        let at = self.origin.find(field).below(self.lines_before);
        Diagnostic {
            file: self.file.as_ref().to_owned(),
            line: at.line,
            column: at.column,
            resource: Some(self.label()),
            field: (!field.is_empty()).then(|| field.to_owned()),
            message: message.into(),
        }
    }

    /// The digest of what was declared, wherever it stands.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The mesh that it belongs to.
    pub fn mesh(&self) -> &str {
        &self.mesh
    }

    /// Whether the user wrote this field.
    pub(super) fn has(&self, field: &str) -> bool {
        self.origin.has(field)
    }

    /// How errors name the resource: "Gateway `edge`".
    pub fn label(&self) -> String {
        format!("{} `{}`", self.kind, self.name)
    }

    /// What tells it from all others of its kind.
    fn key(&self) -> (&str, &str) {
        (&self.mesh, &self.name)
    }

    /// How resources of one kind are sorted: nothing in it depends on the order of files.
    fn order(&self, other: &Self) -> Ordering {
        let place = || (&*self.file, self.start()).cmp(&(&*other.file, other.start()));
        self.key().cmp(&other.key()).then_with(place)
    }
}

/// What can be asked of any resource, whatever its kind.
#[derive(Debug, Clone, Copy)]
pub struct Declaration<'a> {
    /// Its kind, such as `RoutePolicy`.
    pub kind: &'static str,
    /// Its mesh.
    pub mesh: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The digest of what was declared, wherever it stands.
    pub digest: &'a Digest,
    /// Which nodes it concerns.
    pub reach: Reach<'a>,
}

/// The document as a resource of a kind, if nothing is wrong with it.
pub(super) fn read<T: Spec>(file: &Arc<str>, root: &Node, report: &mut Report<'_>) -> Option<Resource<T>> {
    check::object(root, &T::SCHEMA.document, &Path::Root, report);
    if let Some(spec) = root.get("spec") {
        T::rules(spec, &Path::Root.field("spec"), report);
    }
    if !report.is_empty() {
        return None;
    }
    match declared(root) {
        Ok(declared) => Some(Resource { declared: Arc::new(declared), file: Arc::clone(file), lines_before: 0 }),
        // The schema accepts what the type does not: our mistake, but the user's file is not served half.
        Err(error) => {
            report.error(root.at, &Path::Root, format!("cannot be read: {error}"));
            None
        }
    }
}

/// What a document declares that fits its schema.
fn declared<T: Spec>(root: &Node) -> serde_json::Result<Declared<T>> {
    #[derive(Deserialize)]
    struct Written<T> {
        metadata: Metadata,
        spec: T,
    }

    let Written { metadata: Metadata { name, mesh, labels }, spec } = serde_json::from_value(root.to_json())?;
    let kind = T::SCHEMA.name;
    let digest = Digest::of(&serde_json::to_vec(&(kind, &mesh, &name, &spec))?);
    Ok(Declared { name, mesh, labels, spec, kind, origin: Origin::new(root), digest })
}

/// What can be asked of a resource whatever its kind.
pub(super) fn declaration<T: Spec>(resource: &Resource<T>) -> Declaration<'_> {
    let Declared { kind, mesh, name, digest, spec, .. } = &*resource.declared;
    Declaration { kind, mesh, name, digest, reach: spec.reach() }
}

/// Sorts resources by mesh and name. What has the name of another is taken out and reported.
pub(super) fn sort_unique<T>(resources: &mut Vec<Resource<T>>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    resources.sort_by(Resource::order);
    resources.dedup_by(|second, first| {
        let same = second.key() == first.key();
        if same {
            let first = first.diagnose("metadata.name", "");
            let place = format!("{}:{}", first.file, first.line);
            found.push(second.diagnose("metadata.name", format!("{} is already declared ({place})", second.label())));
        }
        same
    });
    found
}

/// `metadata`, of every document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
    #[serde(default = "default_mesh")]
    mesh: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

fn default_mesh() -> String {
    DEFAULT_MESH.to_owned()
}
