//! Removing documents for good. The database keeps what was deleted in free pages, so that a purge ends with a new file
//! that has the rest only. Until then a note says that the purge is unfinished; the next start finishes it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::File,
    io::{self, Write as _},
};

use postern_base::seal::{NAME, Seal};
use redb::{Key, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _, Value};

use super::{
    Document, Revision,
    transaction::{CONTENTS, DOCUMENTS, NODES, NOTES, REVISIONS, Trouble, decode, encode},
};

/// The note of a purge whose documents may still be in free pages of the file.
const UNFINISHED: &str = "purge";
/// The size of the blocks in which a file is overwritten.
const BLOCK: usize = 1 << 16;

/// The names of a revision's documents.
type Names = Vec<[u8; NAME]>;

/// Whether removed documents may still be in the file.
pub(super) fn is_unfinished(database: &redb::Database) -> Result<bool, Trouble> {
    Ok(database.begin_read()?.open_table(NOTES)?.get(UNFINISHED)?.is_some())
}

/// Removes documents from revisions, in one transaction. See [`Store::purge`](super::Store::purge).
pub(super) fn purge(
    database: &redb::Database,
    seal: &Seal,
    resource: &str,
    doomed: &dyn Fn(&[Document]) -> BTreeSet<usize>,
) -> Result<Vec<u64>, Trouble> {
    let left = remaining(database, seal, doomed)?;
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let writing = database.begin_write()?;
    let mut revisions = writing.open_table(REVISIONS)?;
    let mut contents = writing.open_table(CONTENTS)?;
    let mut documents = writing.open_table(DOCUMENTS)?;
    for (number, names) in &left {
        let revision = revisions.get(number)?.map(|revision| decode::<Revision>(revision.value())).transpose()?;
        let mut revision = revision.ok_or_else(|| Trouble::Unreadable(format!("revision {number} is missing")))?;
        revision.purge(resource, names.len());
        revisions.insert(number, encode(&revision)?.as_slice())?;
        contents.insert(number, names.concat().as_slice())?;
    }
    let mut used: HashSet<[u8; NAME]> = HashSet::new();
    for entry in contents.iter()? {
        used.extend(entry?.1.value().as_chunks::<NAME>().0);
    }
    documents.retain(|name, _| name.try_into().is_ok_and(|name: [u8; NAME]| used.contains(&name)))?;
    writing.open_table(NOTES)?.insert(UNFINISHED, &[][..])?;
    drop((revisions, contents, documents));
    writing.commit()?;
    Ok(left.into_keys().collect())
}

/// The documents that are left of each revision that has doomed ones.
fn remaining(
    database: &redb::Database,
    seal: &Seal,
    doomed: &dyn Fn(&[Document]) -> BTreeSet<usize>,
) -> Result<BTreeMap<u64, Names>, Trouble> {
    let reading = database.begin_read()?;
    let (contents, documents) = (reading.open_table(CONTENTS)?, reading.open_table(DOCUMENTS)?);
    let mut left = BTreeMap::new();
    for entry in contents.iter()? {
        let (number, names) = entry?;
        let names = names.value().as_chunks::<NAME>().0.to_vec();
        let open = |name: &[u8; NAME]| match documents.get(name.as_slice())? {
            Some(sealed) => match seal.open(name, sealed.value()) {
                Some(document) => decode::<Document>(&document),
                None => Err(Trouble::Unreadable(format!("a document of revision {} has changed", number.value()))),
            },
            None => Err(Trouble::Unreadable(format!("a document of revision {} is missing", number.value()))),
        };
        let opened: Vec<_> = names.iter().map(open).collect::<Result<_, _>>()?;
        let doomed = doomed(&opened);
        if !doomed.is_empty() {
            let names = names.into_iter().enumerate().filter(|(index, _)| !doomed.contains(index));
            left.insert(number.value(), names.map(|(_, name)| name).collect());
        }
    }
    Ok(left)
}

/// Copies what a database has into an empty one. Fails if it has a table that is not known here, which would be lost.
pub(super) fn copy(from: &redb::Database, to: &redb::Database) -> Result<(), Trouble> {
    let (reading, writing) = (from.begin_read()?, to.begin_write()?);
    let known = [REVISIONS.name(), CONTENTS.name(), DOCUMENTS.name(), NOTES.name(), NODES.name()];
    if let Some(table) = reading.list_tables()?.find(|table| !known.contains(&table.name())) {
        return Err(Trouble::Unreadable(format!("its table `{}` is not known", table.name())));
    }
    copy_table(&reading, &writing, REVISIONS)?;
    copy_table(&reading, &writing, CONTENTS)?;
    copy_table(&reading, &writing, DOCUMENTS)?;
    copy_table(&reading, &writing, NOTES)?;
    copy_table(&reading, &writing, NODES)?;
    writing.open_table(NOTES)?.remove(UNFINISHED)?;
    Ok(writing.commit()?)
}

fn copy_table<K: Key + 'static, V: Value + 'static>(
    reading: &redb::ReadTransaction,
    writing: &redb::WriteTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<(), Trouble> {
    let (from, mut to) = (reading.open_table(table)?, writing.open_table(table)?);
    for entry in from.iter()? {
        let (key, value) = entry?;
        to.insert(key.value(), value.value())?;
    }
    Ok(())
}

/// Overwrites a file with zeros. A file system that writes elsewhere, or keeps snapshots, has the former bytes still.
pub(super) fn overwrite(mut file: File) -> io::Result<()> {
    let zeros = vec![0; BLOCK];
    let mut left = file.metadata()?.len();
    while left > 0 {
        let size = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        file.write_all(zeros.get(..size).unwrap_or_default())?;
        left = left.saturating_sub(size as u64);
    }
    file.sync_all()
}
