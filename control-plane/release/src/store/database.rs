//! The store as an embedded database: one file with a few tables, every write a transaction that is on the disk when it
//! returns. Documents are sealed, kept once for all revisions that have them, and checked when they are read.
//!
//! After any trouble with the file it is closed, and the next use opens it anew: the database then goes back to its
//! last whole transaction by itself. So the way back from a full disk is to free space, and nothing else.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use postern_base::secret_file;
use redb::{ReadableDatabase as _, ReadableTable as _};

use super::{
    Document, Draft, NodeRecord, Parent, Prepared, Revision, Store, StoreError,
    seal::{NAME, Seal},
    transaction::{
        CONTENTS, DOCUMENTS, NODES, NOTES, REVISIONS, Trouble, append, check_format, collect, decode, encode, lay_out,
        name,
    },
};

/// The file in a state directory.
const FILE: &str = "store.redb";
/// The key beside it, unless it is kept elsewhere.
const KEY: &str = "store.key";

/// How many bytes of the file are kept in memory: some revisions' worth of names. The database's own default is a gigabyte.
const CACHE: usize = 16 << 20;

/// A store in one file.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    seal: Seal,
    open: Mutex<Option<redb::Database>>,
}

impl Database {
    /// Opens the store of a state directory, or makes it, with the key that lies beside it.
    pub fn open(state: &Path) -> Result<Self, StoreError> {
        Self::open_with(state, &state.join(KEY))
    }

    /// The same with a key that is kept elsewhere, so that the state directory alone gives nothing away.
    pub fn open_with(state: &Path, key: &Path) -> Result<Self, StoreError> {
        let path = state.join(FILE);
        let failed = |error| StoreError::Io { path: path.clone(), error };
        secret_file::make_folder(state).map_err(failed)?;
        let new = !path.try_exists().map_err(failed)?;
        let seal = seal(key, new)?;
        let store = Self { path: path.clone(), seal, open: Mutex::default() };
        if new {
            store.create(&path)?;
        }
        store.with(|database| check_format(database, &store.seal))?;
        // What is in force is read again at every start: better to hear of damage now than then.
        if let Some(latest) = store.latest()? {
            store.documents(latest.number)?;
        }
        Ok(store)
    }

    /// Makes the file under another name first: whatever stands under the right one was a whole store once, and an
    /// empty file there is damage and no new store.
    fn create(&self, path: &Path) -> Result<(), StoreError> {
        let draft = path.with_extension("draft");
        let made = match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Trouble::from(redb::Error::Io(error))),
            _ => open_file(&draft, true).and_then(|database| lay_out(&database, &self.seal)),
        };
        made.and_then(|()| {
            fs::rename(&draft, path).map_err(redb::Error::Io)?;
            // The name must last as well.
            let folder = path.parent().map(File::open).transpose().map_err(redb::Error::Io)?;
            Ok(folder.map_or(Ok(()), |folder| folder.sync_all()).map_err(redb::Error::Io)?)
        })
        .map_err(|trouble| self.explain(trouble))
    }

    /// Runs an operation on the open database, which is closed if there is any trouble.
    fn with<T>(&self, act: impl FnOnce(&redb::Database) -> Result<T, Trouble>) -> Result<T, StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match open.take() {
            Some(database) => database,
            None => guarded(|| open_file(&self.path, false)).map_err(|trouble| self.explain(trouble))?,
        };
        let result = guarded(|| act(&database));
        match result {
            Ok(_) | Err(Trouble::Refused(_)) => *open = Some(database),
            Err(Trouble::Database(_) | Trouble::Unreadable(_) | Trouble::Foreign) => close(database),
        }
        result.map_err(|trouble| self.explain(trouble))
    }

    fn explain(&self, trouble: Trouble) -> StoreError {
        let path = self.path.clone();
        match trouble {
            Trouble::Refused(error) => error,
            Trouble::Unreadable(reason) => StoreError::Damaged { path, reason },
            Trouble::Foreign => StoreError::Sealed { path },
            Trouble::Database(redb::Error::Io(error)) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
                    StoreError::Full { path, error }
                }
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    StoreError::Damaged { path, reason: error.to_string() }
                }
                _ => StoreError::Io { path, error },
            },
            Trouble::Database(redb::Error::DatabaseAlreadyOpen) => StoreError::InUse { path },
            Trouble::Database(error) => StoreError::Damaged { path, reason: error.to_string() },
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        open.take().into_iter().for_each(close);
    }
}

/// Some damage is found by an assertion inside the database. It is the file's end, not the program's.
fn guarded<T>(act: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    let outcome = panic::catch_unwind(AssertUnwindSafe(act));
    outcome.unwrap_or_else(|panic| Err(Trouble::Unreadable(words(panic.as_ref()))))
}

/// Closing writes too, so it can find the same damage; whoever reads next is told.
fn close(database: redb::Database) {
    let _ = guarded(|| {
        drop(database);
        Ok(())
    });
}

impl Store for Database {
    fn prepare(&self, documents: Vec<Document>) -> Result<Prepared, StoreError> {
        let named = name(&self.seal, &documents).map_err(|trouble| self.explain(trouble))?;
        Ok(Prepared { documents, named })
    }

    fn append(&self, draft: Draft, parent: Parent) -> Result<Revision, StoreError> {
        let draft = match draft.documents.named.len() == draft.documents.documents.len() {
            true => draft,
            false => Draft { documents: self.prepare(draft.documents.documents)?, ..draft },
        };
        self.with(|database| append(database, &self.seal, &draft, parent))
    }

    fn latest(&self) -> Result<Option<Revision>, StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(REVISIONS)?;
            let last = table.last()?;
            last.map(|(_, revision)| decode(revision.value())).transpose()
        })
    }

    fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(REVISIONS)?;
            table.get(number)?.map(|revision| decode(revision.value())).transpose()
        })
    }

    fn revisions(&self) -> Result<Vec<Revision>, StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(REVISIONS)?;
            table.iter()?.rev().map(|entry| decode(entry?.1.value())).collect()
        })
    }

    fn documents(&self, number: u64) -> Result<Option<Vec<Document>>, StoreError> {
        self.with(|database| {
            let reading = database.begin_read()?;
            let contents = reading.open_table(CONTENTS)?;
            let Some(names) = contents.get(number)? else { return Ok(None) };
            let documents = reading.open_table(DOCUMENTS)?;
            let read = |name: &[u8]| match documents.get(name)? {
                Some(sealed) => match self.seal.open(name, sealed.value()) {
                    Some(document) => decode(&document),
                    None => Err(Trouble::Unreadable(format!("a document of revision {number} has changed"))),
                },
                None => Err(Trouble::Unreadable(format!("a document of revision {number} is missing"))),
            };
            names.value().chunks(NAME).map(read).collect::<Result<_, _>>().map(Some)
        })
    }

    fn collect(&self, keep: usize, pinned: &BTreeSet<u64>) -> Result<Vec<u64>, StoreError> {
        self.with(|database| collect(database, keep.max(1), pinned))
    }

    fn put_notes(&self, notes: &[(&str, Option<&[u8]>)]) -> Result<(), StoreError> {
        self.with(|database| {
            let writing = database.begin_write()?;
            let mut table = writing.open_table(NOTES)?;
            for (name, value) in notes {
                match value {
                    Some(value) => drop(table.insert(name, value)?),
                    None => drop(table.remove(name)?),
                }
            }
            drop(table);
            Ok(writing.commit()?)
        })
    }

    fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(NOTES)?;
            Ok(table.get(name)?.map(|value| value.value().to_vec()))
        })
    }

    fn put_nodes(&self, nodes: &BTreeMap<String, NodeRecord>) -> Result<(), StoreError> {
        self.with(|database| {
            let writing = database.begin_write()?;
            let mut table = writing.open_table(NODES)?;
            table.retain(|name, _| nodes.contains_key(name))?;
            for (name, node) in nodes {
                table.insert(name.as_str(), encode(node)?.as_slice())?;
            }
            drop(table);
            Ok(writing.commit()?)
        })
    }

    fn nodes(&self) -> Result<BTreeMap<String, NodeRecord>, StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(NODES)?;
            let read = |entry: Result<(redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, &[u8]>), _>| {
                let (name, node) = entry.map_err(|error: redb::StorageError| Trouble::from(error))?;
                Ok((name.value().to_owned(), decode(node.value())?))
            };
            table.iter()?.map(read).collect()
        })
    }
}

/// What the documents of a store are sealed with. Only a new store gets a new key: another one opens nothing.
fn seal(path: &Path, new: bool) -> Result<Seal, StoreError> {
    let failed = |error| StoreError::Key { path: path.to_owned(), error };
    let key = match secret_file::read(path) {
        Ok(Some(key)) => key,
        Ok(None) => {
            let wrong = format!("it must have {} bytes, and nobody else may read it (mode 0600)", secret_file::SIZE);
            return Err(failed(io::Error::other(wrong)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && new => secret_file::create(path).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    Ok(Seal::new(&key))
}

fn open_file(path: &Path, new: bool) -> Result<redb::Database, Trouble> {
    // Documents are sealed; who runs what is nobody else's matter either.
    let file = OpenOptions::new().read(true).write(true).create_new(new).mode(0o600).open(path);
    let file = file.map_err(redb::Error::Io)?;
    if !new && file.metadata().map_err(redb::Error::Io)?.len() == 0 {
        return Err(Trouble::Unreadable("the file is empty".to_owned()));
    }
    Ok(builder().create_file(file)?)
}

/// A database that keeps little in memory: what is in force is there already, and the rest is rarely asked for.
fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the database gave up").to_owned()
}
