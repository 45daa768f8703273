//! A resource: what a user declared, of any kind, and where.

use std::{cmp::Ordering, collections::BTreeMap, fmt, ops::Deref, sync::Arc};

use serde::Deserialize;

use crate::{
    diagnostic::Diagnostic,
    digest::Digest,
    node::DEFAULT_MESH,
    yaml::{Origin, Position},
};

/// One thing that a user declared, and where. Cheap to clone: what was read is shared.
pub struct Resource<T> {
    pub(super) declared: Arc<Declared<T>>,
    pub(super) file: Arc<str>,
    /// How many lines of the file stand before what `declared` counts from.
    pub(super) lines_before: usize,
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
    pub(super) kind: &'static str,
    pub(super) origin: Origin,
    pub(super) digest: Digest,
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
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.mesh, &self.name)
    }

    /// How resources of one kind are sorted: nothing in it depends on the order of files.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let place = || (&*self.file, self.start()).cmp(&(&*other.file, other.start()));
        self.key().cmp(&other.key()).then_with(place)
    }
}

/// `metadata`, of every document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) name: String,
    #[serde(default = "default_mesh")]
    pub(super) mesh: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
}

fn default_mesh() -> String {
    DEFAULT_MESH.to_owned()
}
