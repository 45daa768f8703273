//! What a proposal comes to as a whole: with the resources in force that it leaves as they are, and the values that were
//! hidden when they were shown.
//!
//! Certificates and keys belong to the resources that name them. One that is added changes no other resource, even if
//! both name a file of the same path.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use postern_model::{
    File, HIDDEN,
    attachment::{is_attachment, named_from},
};

use super::{ApplyError, Extent, Proposal, whole_documents};
use crate::{
    catalogue::{Catalogue, ResourceKey, files_of, is_one_of, key_of, named_by, restore},
    store::{Document, Store, assemble, split},
};

/// All files of a proposal beside the revision in force, or why they cannot be told.
pub fn complete<'p>(
    proposal: &'p Proposal,
    (number, store): (Option<u64>, &dyn Store),
) -> Result<Cow<'p, [File]>, ApplyError> {
    if proposal.extent == Extent::Whole {
        return Ok(Cow::Borrowed(&proposal.files));
    }
    let has = |word: &str| proposal.files.iter().any(|file| contains(&file.bytes, word));
    // Without either, nothing is taken from what is in force. Reading that is slow.
    if proposal.extent != Extent::Additions && !has(HIDDEN) && !has("file") {
        return Ok(Cow::Borrowed(&proposal.files));
    }
    let in_force = match (&proposal.extent, number) {
        (_, None) => Vec::new(),
        (Extent::Additions, Some(number)) => whole_documents(store, number)?,
        (_, Some(number)) => store.documents(number)?.ok_or(ApplyError::NoRevision(number))?,
    };
    let mut new = split(&proposal.files);
    if has(HIDDEN) {
        restore(&mut new, &Catalogue::of(&in_force))?;
    }
    let keyed: Vec<_> = in_force.iter().map(|document| (key_of(document), document)).collect();
    carry(&mut new, &keyed);
    if proposal.extent == Extent::Additions {
        new = merge(new, &keyed, number.unwrap_or_default())?;
    }
    Ok(Cow::Owned(assemble(&new)))
}

fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part == word.as_bytes())
}

type Keyed<'a> = [(Option<ResourceKey>, &'a Document)];

/// Takes along the certificates and keys that a resource named before, and names still, if they were not sent with it.
fn carry(new: &mut Vec<Document>, in_force: &Keyed<'_>) {
    let sent: BTreeSet<_> = new.iter().map(|document| named_from("", &document.file)).collect();
    let stored: BTreeMap<_, _> =
        in_force.iter().filter_map(|(key, document)| Some((key.clone()?, *document))).collect();
    let mut carried: BTreeSet<Document> = BTreeSet::new();
    for document in new.iter() {
        let Some(old) = key_of(document).and_then(|key| stored.get(&key)) else { continue };
        let before = named_by(old).unwrap_or_default();
        for name in named_by(document).unwrap_or_default().intersection(&before) {
            let place = named_from(&document.file, name);
            if sent.contains(&place) {
                continue;
            }
            let path = BTreeSet::from([named_from(&old.file, name)]);
            let parts = in_force.iter().filter(|(_, part)| is_one_of(part, &path));
            let file = place.display().to_string();
            carried.extend(parts.map(|(_, part)| Document { file: file.clone(), ..(*part).clone() }));
        }
    }
    new.extend(carried);
}

/// The new documents, with those in force that they do not replace.
fn merge(new: Vec<Document>, in_force: &Keyed<'_>, number: u64) -> Result<Vec<Document>, ApplyError> {
    let keys: BTreeSet<_> = new.iter().filter_map(key_of).collect();
    // What cannot be read is no certificate, and is reported by whoever reads it.
    if new.iter().all(|document| is_attachment(document.file.as_ref())) {
        return Err(ApplyError::NoResource);
    }
    let files: BTreeSet<&str> = new.iter().map(|document| document.file.as_str()).collect();
    let paths: BTreeSet<PathBuf> = files.iter().map(|file| named_from("", file)).collect();
    let folder = folder(&files, number);
    let (mut all, mut here, mut away) = (new.clone(), BTreeSet::new(), BTreeSet::new());
    for (key, document) in in_force.iter().filter(|(_, document)| !is_attachment(document.file.as_ref())) {
        let is_beside = !files.contains(document.file.as_str());
        match key {
            None if is_beside => all.push((*document).clone()),
            Some(key) if !keys.contains(key) => {
                let its = files_of(document).unwrap_or_default();
                if is_beside && its.is_disjoint(&paths) {
                    all.push((*document).clone());
                    here.extend(its);
                } else {
                    all.push(moved(document, &folder));
                    away.extend(its);
                }
            }
            // It is replaced, or says nothing.
            _ => {}
        }
    }
    for (_, document) in in_force {
        all.extend(is_one_of(document, &here).then(|| (*document).clone()));
        all.extend(is_one_of(document, &away).then(|| moved(document, &folder)));
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// A folder that no new file is in, for documents of the revision in force whose file is written anew.
fn folder(files: &BTreeSet<&str>, number: u64) -> String {
    let is_used = |folder: &str| files.iter().any(|file| file.starts_with(folder));
    let mut folder = format!("revision-{number}/");
    while is_used(&folder) {
        folder = format!("kept-{folder}");
    }
    folder
}

fn moved(document: &Document, folder: &str) -> Document {
    // What is there already is of the same revision, and stays.
    let file = &document.file;
    let file =
        if file.starts_with(folder) { file.clone() } else { format!("{folder}{}", file.trim_start_matches('/')) };
    Document { file, ..document.clone() }
}
