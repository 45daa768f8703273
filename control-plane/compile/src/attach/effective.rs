//! The entries of a list `to` that concern one destination, merged.

use postern_model::{Diagnostic, Outbound, Resource, TargetRef};
use serde_json::{Map, Value as Json};

use super::merge::{Fields, merge};

/// What the resources of a kind come to for a destination, with the origins.
#[derive(Debug)]
pub struct Effective<'a, T: Outbound> {
    /// The merged fields.
    pub conf: T::Conf,
    /// The entries that they are merged from, by priority: a resource, and an index in its `spec.to`.
    pub parts: Vec<(&'a Resource<T>, usize)>,
    /// The part that each field comes from.
    pub fields: Fields,
}

impl<T: Outbound> Effective<'_, T> {
    /// Whether an entry with `override: true` is among the parts, so that it precedes what the destination itself says.
    pub fn overrides(&self) -> bool {
        self.parts.first().is_some_and(|(resource, _)| resource.spec.overrides())
    }

    /// An error at a field, where its value is written.
    pub(super) fn diagnose(&self, field: &str, message: String) -> Option<Diagnostic> {
        let (resource, entry) = self.parts.get(self.fields.provider(field)?.by)?;
        Some(resource.diagnose(&format!("spec.to[{entry}].{field}"), message))
    }

    /// The value of a merged field. Null if none sets it.
    pub(super) fn value(&self, field: &str) -> Json {
        let conf = serde_json::to_value(&self.conf).unwrap_or_default();
        field.split('.').try_fold(conf, |value, name| value.get(name).cloned()).unwrap_or_default()
    }
}

/// What the entries come to that concern a destination, of resources given by priority.
pub(super) fn effective<'a, T: Outbound>(
    attached: &[&'a Resource<T>],
    concerns: impl Fn(&Resource<T>, &TargetRef) -> bool,
) -> Effective<'a, T> {
    let mut parts = Vec::new();
    for resource in attached {
        let entries = resource.spec.to().iter().enumerate();
        parts.extend(
            entries.filter(|(_, entry)| concerns(resource, &entry.target_ref)).map(|(entry, _)| (*resource, entry)),
        );
    }
    let confs = parts.iter().enumerate().map(|(index, (resource, entry))| (index, conf(resource, *entry)));
    let (merged, fields) = merge(T::CONF, confs);
    // Merging field by field keeps the type.
    let conf = serde_json::from_value(merged).unwrap_or_default();
    Effective { conf, parts, fields }
}

fn conf<T: Outbound>(resource: &Resource<T>, entry: usize) -> Map<String, Json> {
    let conf = resource.spec.to().get(entry).map(|entry| serde_json::to_value(&entry.conf));
    match conf {
        Some(Ok(Json::Object(fields))) => fields,
        _ => Map::new(),
    }
}
