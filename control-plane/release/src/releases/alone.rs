//! Going back with single resources: what is in force, with these as an earlier revision has them. The result is a
//! proposal like any other, and is checked like one.

use std::{collections::BTreeSet, path::PathBuf};

use super::{ApplyError, Pace, Proposal, whole_documents};
use crate::{
    catalogue::{ResourceKey, files_of, is_one_of, key_of},
    store::{Document, Parent, Store, assemble},
};

impl Proposal {
    /// A proposal with what is in force, and `only` these resources as the revision `number` has them. `in_force` is what
    /// the proposal is made of, and `parent` what must still be the latest revision when it is stored. Fails if a resource
    /// is not in that revision, or the revision is not kept.
    pub fn to_go_back_alone(
        store: &dyn Store,
        number: u64,
        only: &[ResourceKey],
        (in_force, parent): (u64, Parent),
        author: String,
    ) -> Result<Self, ApplyError> {
        let then = store.documents(number)?.ok_or(ApplyError::NoRevision(number))?;
        let mut documents = whole_documents(store, in_force)?;
        documents.retain(|document| key_of(document).is_none_or(|key| !only.contains(&key)));
        for key in only {
            let found = then.iter().find(|document| key_of(document).as_ref() == Some(key));
            let found = found.ok_or_else(|| ApplyError::NotInRevision { number, resource: key.clone() })?;
            documents.extend(moved(found, &then, number));
        }
        documents.sort();
        documents.dedup();
        let named: Vec<_> = only.iter().map(ToString::to_string).collect();
        let message = format!("rollback of {} to revision {number}", named.join(", "));
        let (files, pace) = (assemble(&documents), Pace::AtOnce);
        Ok(Self { files, author, message, parent, again: true, pace, ..Self::default() })
    }
}

/// A document of a revision, and the files that it names, in a folder of that revision: so all others stay in their place,
/// and what is in force says where each resource is from.
fn moved<'a>(found: &'a Document, then: &'a [Document], number: u64) -> impl Iterator<Item = Document> + 'a {
    let files: BTreeSet<PathBuf> = files_of(found).unwrap_or_default();
    let its = then.iter().filter(move |document| is_one_of(document, &files));
    [found]
        .into_iter()
        .chain(its)
        .map(move |document| Document { file: place(&document.file, number), ..document.clone() })
}

/// The path in the folder of a revision. What is in such a folder already stays there.
fn place(file: &str, number: u64) -> String {
    const FOLDER: &str = "revision-";
    let known = file.strip_prefix(FOLDER).and_then(|rest| rest.split_once('/'));
    if known.is_some_and(|(number, _)| number.parse::<u64>().is_ok()) {
        return file.to_owned();
    }
    format!("{FOLDER}{number}/{}", file.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_where_a_document_is_from() {
        assert_eq!(place("shop/policies.yaml", 7), "revision-7/shop/policies.yaml");
        assert_eq!(place("/etc/shop/policies.yaml", 7), "revision-7/etc/shop/policies.yaml");
        assert_eq!(place("revision-2/shop/policies.yaml", 7), "revision-2/shop/policies.yaml");
        assert_eq!(place("revision-two/policies.yaml", 7), "revision-7/revision-two/policies.yaml");
    }
}
