//! What a kind of resource is, and what the documents of all kinds share. It knows none of them.

use postern_base::{diagnostic::Path, node::DEFAULT_MESH, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Serialize, de::DeserializeOwned};

use super::{report::Report, target_ref::Reach};

/// What a kind of resource is called and what its documents hold.
#[derive(Debug)]
pub struct KindSchema {
    /// What a document's `kind` field says.
    pub name: &'static str,
    /// One sentence for documentation.
    pub about: &'static str,
    /// The whole document.
    pub document: Object,
    /// What a start may serve without a resource of this kind that is not valid any more.
    pub absence: Absence,
    /// A whole resource of this kind for documentation. The examples of all kinds together are a bundle that is admitted.
    pub example: &'static str,
}

/// What it means for requests that a resource is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// None is let through by that: whoever refers to the resource is wrong in turn.
    FailsClosed,
    /// One could be let through that was denied, so the resource is never left out.
    MayOpen,
}

/// `apiVersion`, of every document.
pub(super) const API_VERSION: Field =
    Field::required("apiVersion", Kind::Choice(&["postern/v1"]), "The version of this format: `postern/v1`.");

/// `metadata`, of every document.
pub(super) const METADATA: Field =
    Field::required("metadata", Kind::Object(&METADATA_FIELDS), "What the resource is called.");

const METADATA_FIELDS: Object = Object {
    fields: &[
        Field::required("name", Kind::Name, "The name, unique among the resources of this kind in the mesh."),
        Field::optional("mesh", Kind::Name, "The mesh that the resource belongs to; it refers to nothing outside.")
            .or(DEFAULT_MESH),
        Field::optional("labels", Kind::Map { key: &Kind::Text, value: &Kind::Text }, "Labels of your own."),
    ],
    exactly_one_of: &[],
};

/// `spec.override`, of every kind that is attached to something.
pub(super) const OVERRIDE: Field =
    Field::optional("override", Kind::Boolean, "Whether nothing more specific can change what it says.").or("false");

/// `kind`, of a document of this kind.
pub(super) const fn kind(name: &'static [&'static str]) -> Field {
    Field::required("kind", Kind::Choice(name), "The kind of the resource.")
}

/// The typed `spec` of a kind.
pub(super) trait Spec: DeserializeOwned + Serialize {
    /// What a document of this kind may hold.
    const SCHEMA: KindSchema;

    /// Which nodes of its mesh it concerns.
    fn reach(&self) -> Reach<'_>;

    /// Reports what the schema cannot say. The tree may be wrong in any way: what the schema has reported already
    /// is not reported again.
    fn rules(_spec: &Node, _path: &Path<'_>, _report: &mut Report<'_>) {}
}
