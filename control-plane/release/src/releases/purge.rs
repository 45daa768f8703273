//! Purging a deleted resource: its text goes from every revision that is kept, for good. What is in force, or what nodes
//! would go back to, is never touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use schemars::JsonSchema;
use serde::Serialize;

use super::{ApplyError, NotPurged, Releases};
use crate::{
    catalogue::{ResourceKey, files_of, is_one_of, key_of},
    store::Document,
};

/// What a purge removed, or would remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Purged {
    /// The resource.
    pub resource: ResourceKey,
    /// The revisions that had it, in order. They are no longer whole.
    pub revisions: Vec<u64>,
    /// The certificates and keys of the resource alone, which went with it.
    pub files: Vec<String>,
    /// Those that stay, because what is in force has them, or could go back to them.
    pub remaining_files: Vec<String>,
}

impl Releases {
    /// Removes a resource, and the certificates and keys that it alone named, from all revisions that are kept. In a dry
    /// run, only says what would be removed.
    pub fn purge(&mut self, key: &ResourceKey, dry_run: bool) -> Result<Purged, ApplyError> {
        let mut needed = BTreeMap::new();
        for number in self.needed() {
            needed.insert(number, self.store.documents(number)?.unwrap_or_default());
        }
        if let Some((revision, _)) = needed.iter().find(|(_, documents)| has(documents, key)) {
            let (revision, resource) = (*revision, key.clone());
            let role = if Some(revision) == self.in_force() { "in force" } else { "which the rollout needs" };
            return Err(NotPurged::Needed { resource, revision, role }.into());
        }
        if let Some(followed) = self.directory.followed()
            && has(&self.store.documents(followed)?.unwrap_or_default(), key)
        {
            return Err(NotPurged::Followed(key.clone()).into());
        }
        let files: Vec<_> = needed.values().flatten().map(|document| document.file.as_str()).collect();
        let mut purged = self.found(key)?;
        purged.remaining_files = purged.files.extract_if(.., |file| files.contains(&file.as_str())).collect();
        if !dry_run {
            let resource = key.to_string();
            purged.revisions = self.store.purge(&resource, &|documents| doomed(documents, key))?;
            self.forget_purged(key, &purged.revisions);
        }
        Ok(purged)
    }

    /// The revisions that have a resource, and its files.
    fn found(&self, key: &ResourceKey) -> Result<Purged, ApplyError> {
        let (mut revisions, mut files) = (Vec::new(), BTreeSet::new());
        for revision in self.store.revisions()?.iter().rev() {
            let documents = self.store.documents(revision.number)?.unwrap_or_default();
            let doomed = doomed(&documents, key);
            if !doomed.is_empty() {
                revisions.push(revision.number);
            }
            let doomed = doomed.iter().filter_map(|index| documents.get(*index));
            files.extend(doomed.filter(|document| key_of(document).is_none()).map(|document| document.file.clone()));
        }
        if revisions.is_empty() {
            // An earlier purge may have ended before the file was replaced.
            self.store.purge(&key.to_string(), &|_| BTreeSet::new())?;
            return Err(NotPurged::Unknown(key.clone()).into());
        }
        let (files, remaining_files) = (files.into_iter().collect(), Vec::new());
        Ok(Purged { resource: key.clone(), revisions, files, remaining_files })
    }

    /// Forgets what errors and counters said of a purged resource.
    fn forget_purged(&mut self, key: &ResourceKey, revisions: &[u64]) {
        self.lifecycles.retain(|number, lifecycle| {
            if revisions.contains(number) {
                Arc::make_mut(lifecycle).forget_words();
            }
            !revisions.contains(number) || lifecycle.failure().is_some()
        });
        Arc::make_mut(&mut self.generations).forget(key);
        self.has_counted = true;
        self.note();
    }
}

fn has(documents: &[Document], key: &ResourceKey) -> bool {
    documents.iter().any(|document| key_of(document).as_ref() == Some(key))
}

/// The documents of one revision that a purge removes: those of the resource, and of the files that it alone names.
fn doomed(documents: &[Document], key: &ResourceKey) -> BTreeSet<usize> {
    let is_its = |document: &&Document| key_of(document).as_ref() == Some(key);
    let (mut its, mut of_others): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) = Default::default();
    if !documents.iter().any(|document| is_its(&document)) {
        return BTreeSet::new();
    }
    for document in documents {
        let files = files_of(document).unwrap_or_default();
        if is_its(&document) { its.extend(files) } else { of_others.extend(files) }
    }
    let alone: BTreeSet<_> = its.difference(&of_others).cloned().collect();
    let goes = |document: &Document| is_its(&document) || is_one_of(document, &alone);
    documents.iter().enumerate().filter(|(_, document)| goes(document)).map(|(index, _)| index).collect()
}
