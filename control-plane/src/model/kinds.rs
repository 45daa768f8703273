//! The kinds of resources, and what all of them share. Each kind has a file of its own.

use postern_engine::schema::{Field, Kind, Object};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    access_log, consumer, diagnostic::Report, envoy_resource, gateway, issuer, path::Path, route_policy, service,
    settings, timeout, traffic_permission, tree::Node,
};

/// What a kind of resource is called and what its documents hold.
#[derive(Debug)]
pub struct KindSchema {
    /// What a document's `kind` field says.
    pub name: &'static str,
    /// One sentence for documentation.
    pub about: &'static str,
    /// The whole document.
    pub document: Object,
}

/// Every kind of resource that can be read, as documentation shows it.
pub const SCHEMAS: &[KindSchema] = &[
    gateway::SCHEMA,
    service::SCHEMA,
    envoy_resource::SCHEMA,
    consumer::SCHEMA,
    issuer::SCHEMA,
    route_policy::SCHEMA,
    traffic_permission::SCHEMA,
    timeout::SCHEMA,
    access_log::SCHEMA,
    settings::SCHEMA,
];

/// Kinds that the design has and this version does not.
pub(super) const PLANNED: &[&str] = &["Agent"];

/// `apiVersion`, of every document.
pub(super) const API_VERSION: Field =
    Field::required("apiVersion", Kind::Choice(&["postern/v1"]), "The version of this format: `postern/v1`.");

/// `metadata`, of every document.
pub(super) const METADATA: Field =
    Field::required("metadata", Kind::Object(&METADATA_FIELDS), "What the resource is called.");

const METADATA_FIELDS: Object = Object {
    fields: &[
        Field::required("name", Kind::Name, "The name, unique among the resources of this kind."),
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
    const SCHEMA: &'static KindSchema;

    /// Reports what the schema cannot say. The tree may be wrong in any way: what the schema has reported already
    /// is not reported again.
    fn rules(_spec: &Node, _path: &Path<'_>, _report: &mut Report<'_>) {}
}

/// The schema of the kind of this name.
pub(super) fn schema(name: &str) -> Option<&'static KindSchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}
