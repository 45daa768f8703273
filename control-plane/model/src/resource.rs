//! A resource of any kind: the content, and where it was declared.

use std::{cmp::Ordering, collections::BTreeMap, fmt, ops::Deref, sync::Arc};

use postern_base::{
    diagnostic::{Diagnostic, Path},
    digest::Digest,
    node::DEFAULT_MESH,
    yaml::{Node, Origin, Position},
};
use serde::{Deserialize, Serialize};

use super::{check, kind::Spec, report::Report, target_ref::Reach};

/// A resource and its position in a file. Clones share the content.
pub struct Resource<T> {
    declared: Arc<Declared<T>>,
    file: Arc<str>,
    /// The number of lines in the file before the document, which positions in `declared` do not count.
    lines_before: usize,
}

/// The content of a resource, independent of its position in a file.
#[derive(Clone)]
pub struct Declared<T> {
    /// The name, unique for its kind and mesh.
    pub name: String,
    /// The mesh. References do not leave it.
    pub mesh: String,
    /// Labels of the user, without meaning to us.
    pub labels: BTreeMap<String, String>,
    /// The typed `spec`.
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
    /// The same resource in `file`, `lines_before` lines from its start.
    pub(super) fn placed(&self, file: &Arc<str>, lines_before: usize) -> Self {
        Self { declared: Arc::clone(&self.declared), file: Arc::clone(file), lines_before }
    }

    /// The position of the document.
    fn start(&self) -> Position {
        self.origin.start().below(self.lines_before)
    }

    /// A resource that is made of this one, under a kind and a name of its own. Its errors are at this one.
    pub(super) fn made<U: Serialize>(&self, kind: &'static str, name: String, spec: U) -> Resource<U> {
        // Serializing what was read does not fail.
        let digest = Digest::of(&serde_json::to_vec(&(kind, &self.mesh, &name, &spec)).unwrap_or_default());
        let (mesh, origin) = (self.mesh.clone(), self.origin.clone());
        let declared = Declared { name, mesh, labels: BTreeMap::new(), spec, kind, origin, digest };
        Resource { declared: Arc::new(declared), file: Arc::clone(&self.file), lines_before: self.lines_before }
    }

    /// Whether another resource has the same content and position.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let place = |it: &Self| (it.start(), Arc::clone(&it.file));
        self.digest == other.digest && place(self) == place(other)
    }

    /// An error at a field such as `spec.routes[0].service`, or at its nearest parent that exists.
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

    /// The digest of kind, mesh, name and spec, independent of the position.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The mesh of the resource.
    pub fn mesh(&self) -> &str {
        &self.mesh
    }

    /// Whether the user wrote this field.
    pub(super) fn has(&self, field: &str) -> bool {
        self.origin.has(field)
    }

    /// The name in messages, such as "Gateway `edge`".
    pub fn label(&self) -> String {
        format!("{} `{}`", self.kind, self.name)
    }

    /// Mesh and name, unique for its kind.
    fn key(&self) -> (&str, &str) {
        (&self.mesh, &self.name)
    }

    /// The order of resources of one kind: by mesh and name, then by position.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let place = || (&*self.file, self.start()).cmp(&(&*other.file, other.start()));
        self.key().cmp(&other.key()).then_with(place)
    }
}

impl<T: Serialize + Clone> Resource<T> {
    /// The same resource with a `spec` that is changed, and its digest. Positions stay those of the document.
    pub(super) fn changed(&self, change: impl FnOnce(&mut T)) -> Self {
        let mut declared = Declared::clone(&self.declared);
        change(&mut declared.spec);
        let Declared { kind, mesh, name, spec, .. } = &declared;
        // Serializing what was read does not fail.
        declared.digest = Digest::of(&serde_json::to_vec(&(kind, mesh, name, spec)).unwrap_or_default());
        Self { declared: Arc::new(declared), file: Arc::clone(&self.file), lines_before: self.lines_before }
    }
}

/// The properties that resources of all kinds have.
#[derive(Debug, Clone, Copy)]
pub struct Declaration<'a> {
    /// The kind, such as `RoutePolicy`.
    pub kind: &'static str,
    /// The mesh.
    pub mesh: &'a str,
    /// The name.
    pub name: &'a str,
    /// The digest of kind, mesh, name and spec.
    pub digest: &'a Digest,
    /// Which nodes of its mesh it concerns.
    pub reach: Reach<'a>,
}

/// Reads a document as a resource of kind `T`. `None` if anything was reported.
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
        // The schema accepts something that the type does not. That is a bug of ours, and the file is still refused.
        Err(error) => {
            report.error(root.at, &Path::Root, format!("cannot be read: {error}"));
            None
        }
    }
}

/// Reads a document that fits its schema.
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

/// The properties that resources of all kinds have.
pub(super) fn declaration<T: Spec>(resource: &Resource<T>) -> Declaration<'_> {
    let Declared { kind, mesh, name, digest, spec, .. } = &*resource.declared;
    Declaration { kind, mesh, name, digest, reach: spec.reach() }
}

/// Sorts resources by mesh and name. Removes and reports those whose name is taken.
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

/// The field `metadata` of every document.
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
