//! What describes a kind of resource, and the fields that documents of all kinds share. It does not know the kinds.

use postern_base::{diagnostic::Path, node::DEFAULT_MESH, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Serialize, de::DeserializeOwned};

use super::{report::Report, target_ref::Reach};

/// The description of a kind of resource.
#[derive(Debug)]
pub struct KindSchema {
    /// The value of a document's field `kind`.
    pub name: &'static str,
    /// A description for the documentation, in one sentence.
    pub about: &'static str,
    /// The schema of the whole document.
    pub document: Object,
    /// Whether a permissive start may omit an invalid resource of this kind.
    pub absence: Absence,
    /// A whole resource for the documentation. The examples of all kinds together are a valid bundle.
    pub example: &'static str,
}

/// What the absence of a resource means for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// No request is let through by it, because resources that refer to the absent one become invalid.
    FailsClosed,
    /// A request could be let through that was denied, so the resource is never omitted.
    MayOpen,
}

/// The field `apiVersion` of every document.
pub(super) const API_VERSION: Field =
    Field::required("apiVersion", Kind::Choice(&["postern/v1"]), "The version of this format: `postern/v1`.");

/// The field `metadata` of every document.
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

/// The field `spec.override` of every kind that is attached to a target.
pub(super) const OVERRIDE: Field =
    Field::optional("override", Kind::Boolean, "Whether nothing more specific can change what it says.").or("false");

/// The field `kind` of a document of this kind.
pub(super) const fn kind(name: &'static [&'static str]) -> Field {
    Field::required("kind", Kind::Choice(name), "The kind of the resource.")
}

/// The typed `spec` of a kind.
pub(super) trait Spec: DeserializeOwned + Serialize {
    /// The description of the kind.
    const SCHEMA: KindSchema;

    /// Which nodes of its mesh the resource concerns.
    fn reach(&self) -> Reach<'_>;

    /// Reports what the schema cannot express. The tree may not fit the schema; what the schema's check has reported is
    /// not reported again.
    fn rules(_spec: &Node, _path: &Path<'_>, _report: &mut Report<'_>) {}
}
