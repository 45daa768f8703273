//! The resources that differ, field by field.

use std::collections::BTreeMap;

use postern_release::catalogue::{Entry, ResourceKey, digests};
use serde_json::Value;

use super::{Change, FieldChange, ResourceChange, Side};
use crate::explain::flatten;

pub(super) fn changes(before: Side<'_>, after: Side<'_>) -> Vec<ResourceChange> {
    let (was, is) = (digests(before.bundle), digests(after.bundle));
    let keys: std::collections::BTreeSet<_> = was.keys().chain(is.keys()).collect();
    let change = |key: &ResourceKey| {
        let change = match (was.get(key), is.get(key)) {
            (Some(was), Some(is)) if was == is => return None,
            (Some(_), Some(_)) => Change::Changed,
            (Some(_), None) => Change::Removed,
            (None, _) => Change::Added,
        };
        let (old, new) = (before.catalogue.get(key), after.catalogue.get(key));
        let place = new.or(old);
        let fields = match (change, old, new) {
            (Change::Changed, Some(old), Some(new)) => fields_of(old, new),
            _ => Vec::new(),
        };
        let (file, line) = place.map(|entry| (entry.file.clone(), entry.line)).unwrap_or_default();
        Some(ResourceChange { key: key.clone(), change, file, line, fields })
    };
    keys.into_iter().filter_map(change).collect()
}

/// The fields that differ. They are compared as written, and shown without credentials.
fn fields_of(old: &Entry, new: &Entry) -> Vec<FieldChange> {
    let differ = fields(old.written().clone(), new.written().clone());
    let [was, is] = [old, new].map(|entry| fields_by_path(entry.shown()));
    let change = |FieldChange { field, .. }: FieldChange| {
        let (before, after) = (was.get(&field).cloned(), is.get(&field).cloned());
        FieldChange { field, before, after, inherited_from: None }
    };
    let found: Vec<_> = differ.into_iter().map(change).collect();
    if found.is_empty() {
        // The texts are equal, so that a file that they refer to differs.
        return vec![FieldChange { field: "spec".to_owned(), before: None, after: None, inherited_from: None }];
    }
    found
}

fn fields_by_path(value: Value) -> BTreeMap<String, Value> {
    let mut leaves = Vec::new();
    flatten(String::new(), value, &mut leaves);
    leaves.into_iter().collect()
}

/// The leaves that differ between two values.
pub(super) fn fields(before: Value, after: Value) -> Vec<FieldChange> {
    between(fields_by_path(before), fields_by_path(after))
}

/// The entries that differ between two maps from path to value.
pub(super) fn between(was: BTreeMap<String, Value>, mut is: BTreeMap<String, Value>) -> Vec<FieldChange> {
    let mut found = Vec::new();
    for (field, before) in was {
        let after = is.remove(&field);
        if after.as_ref() != Some(&before) {
            found.push(FieldChange { field, before: Some(before), after, inherited_from: None });
        }
    }
    let new = |(field, after)| FieldChange { field, before: None, after: Some(after), inherited_from: None };
    found.extend(is.into_iter().map(new));
    found.sort_by(|a, b| a.field.cmp(&b.field));
    found
}
