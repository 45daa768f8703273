//! The tables of the database, and operations that run in one transaction.

use std::{
    collections::{BTreeSet, HashSet},
    io,
};

use postern_base::seal::{NAME, Seal};
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};

use super::{Document, Draft, Parent, Revision, StoreError, document::Named, milliseconds};

pub(super) const REVISIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revisions");
/// The names of a revision's documents, concatenated.
pub(super) const CONTENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("contents");
/// Encrypted documents, by name.
pub(super) const DOCUMENTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("documents");
pub(super) const NOTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notes");
pub(super) const NODES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("nodes");

/// The note with the version of the table layout.
pub(super) const FORMAT: (&str, &[u8]) = ("format", b"2");
/// The note that identifies the key of the documents.
const MARK: &str = "seal";

/// Why an operation failed: an error of the store, or of the file.
pub(super) enum Trouble {
    Refused(StoreError),
    Unreadable(String),
    /// The store is encrypted with another key.
    Foreign,
    Database(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// The operating system has no randomness to encrypt with.
pub(super) fn no_randomness() -> Trouble {
    Trouble::Database(redb::Error::Io(io::Error::other("the system has no randomness")))
}

/// Creates all tables, so that readers find them.
pub(super) fn lay_out(database: &redb::Database, seal: &Seal) -> Result<(), Trouble> {
    let writing = database.begin_write()?;
    writing.open_table(REVISIONS)?;
    writing.open_table(CONTENTS)?;
    writing.open_table(DOCUMENTS)?;
    writing.open_table(NODES)?;
    let mut notes = writing.open_table(NOTES)?;
    notes.insert(FORMAT.0, FORMAT.1)?;
    notes.insert(MARK, seal.mark())?;
    drop(notes);
    Ok(writing.commit()?)
}

pub(super) fn check_format(database: &redb::Database, seal: &Seal) -> Result<(), Trouble> {
    let notes = database.begin_read()?.open_table(NOTES)?;
    match notes.get(FORMAT.0)? {
        Some(format) if format.value() == FORMAT.1 => {}
        Some(format) => {
            let format = String::from_utf8_lossy(format.value()).into_owned();
            return Err(Trouble::Unreadable(format!("its format {format} is not known to this version of `postern`")));
        }
        None => return Err(Trouble::Unreadable("it does not say its format".to_owned())),
    }
    match notes.get(MARK)? {
        Some(mark) if mark.value() == seal.mark() => Ok(()),
        _ => Err(Trouble::Foreign),
    }
}

pub(super) fn append(
    database: &redb::Database,
    seal: &Seal,
    draft: &Draft,
    parent: Parent,
) -> Result<Revision, Trouble> {
    let writing = database.begin_write()?;
    let mut revisions = writing.open_table(REVISIONS)?;
    let latest = revisions.last()?.map(|(number, _)| number.value());
    if let Parent::Exactly(expected) = parent
        && expected != latest
    {
        return Err(Trouble::Refused(StoreError::Conflict { expected, latest }));
    }
    let number = latest.unwrap_or_default().saturating_add(1);
    let mut documents = writing.open_table(DOCUMENTS)?;
    let mut names = Vec::with_capacity(draft.documents.named.len().saturating_mul(NAME));
    for Named { name, bytes } in &draft.documents.named {
        if documents.get(name.as_slice())?.is_none() {
            let sealed = seal.close(name, bytes).ok_or_else(no_randomness)?;
            documents.insert(name.as_slice(), sealed.as_slice())?;
        }
        names.extend_from_slice(name);
    }
    writing.open_table(CONTENTS)?.insert(number, names.as_slice())?;
    let revision = Revision {
        number,
        digest: draft.digest.clone(),
        author: draft.author.clone(),
        message: draft.message.clone(),
        at: milliseconds(draft.at),
        parent: latest,
        documents: draft.documents.named.len(),
        purged: Vec::new(),
    };
    revisions.insert(number, encode(&revision)?.as_slice())?;
    drop((revisions, documents));
    writing.commit()?;
    Ok(revision)
}

/// Encodes and names documents.
pub(super) fn name(seal: &Seal, documents: &[Document]) -> Result<Vec<Named>, Trouble> {
    let name = |document: &Document| {
        let bytes = encode(document)?;
        Ok(Named { name: seal.name(&bytes), bytes })
    };
    documents.iter().map(name).collect()
}

pub(super) fn collect(database: &redb::Database, keep: usize, pinned: &BTreeSet<u64>) -> Result<Vec<u64>, Trouble> {
    let writing = database.begin_write()?;
    let mut revisions = writing.open_table(REVISIONS)?;
    let mut contents = writing.open_table(CONTENTS)?;
    let mut documents = writing.open_table(DOCUMENTS)?;
    let numbers = revisions.iter()?.map(|entry| Ok(entry?.0.value())).collect::<Result<Vec<_>, redb::Error>>()?;
    let old = numbers.len().saturating_sub(keep);
    let gone: Vec<u64> = numbers.into_iter().take(old).filter(|number| !pinned.contains(number)).collect();
    if gone.is_empty() {
        return Ok(gone);
    }
    let mut unused: HashSet<[u8; NAME]> = HashSet::new();
    for number in &gone {
        revisions.remove(number)?;
        if let Some(names) = contents.remove(number)? {
            unused.extend(names.value().as_chunks::<NAME>().0);
        }
    }
    // Later revisions share nearly all of them.
    for entry in contents.iter()?.rev() {
        for name in entry?.1.value().as_chunks::<NAME>().0 {
            unused.remove(name);
        }
    }
    for name in unused {
        documents.remove(name.as_slice())?;
    }
    drop((revisions, contents, documents));
    writing.commit()?;
    Ok(gone)
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>, Trouble> {
    serde_json::to_vec(value).map_err(|error| Trouble::Database(redb::Error::Io(io::Error::other(error))))
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(bytes).map_err(|error| Trouble::Unreadable(error.to_string()))
}
