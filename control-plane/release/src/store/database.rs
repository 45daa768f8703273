//! The store as an embedded database: one file with a few tables. Every write is a transaction that is durable when it
//! returns. Documents are encrypted, stored once for all revisions that share them, and verified when they are read.
//!
//! After any error of the file the database is closed, and the next use opens it again, which recovers its last
//! complete transaction. So after a full disk, freeing space is enough.

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

use postern_base::{
    seal::{NAME, Seal},
    secret_file,
};
use redb::{ReadableDatabase as _, ReadableTable as _};

use super::{
    Document, Draft, NodeRecord, Parent, Prepared, Revision, Store, StoreError,
    transaction::{
        CONTENTS, DOCUMENTS, NODES, NOTES, REVISIONS, Trouble, append, check_format, collect, decode, encode, lay_out,
        name, no_randomness,
    },
};

/// The name of the file in a state directory.
const FILE: &str = "store.redb";
/// The owner of its documents, for which the key is derived.
const OWNER: &str = "postern store";
/// The name of the key file beside it, unless another path is configured.
const KEY: &str = "store.key";

/// The size of the page cache: enough for the names of some revisions. The database's own default is a gigabyte.
const CACHE: usize = 16 << 20;

/// A store in one file.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    seal: Seal,
    open: Mutex<Option<redb::Database>>,
}

impl Database {
    /// Opens the store of a state directory, or creates it, with the key file beside it.
    pub fn open(state: &Path) -> Result<Self, StoreError> {
        Self::open_with(state, &state.join(KEY))
    }

    /// Like [`Self::open`], with a key in another place, so that a copy of the state directory reveals nothing.
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
        // Reads what is in force, so that damage is found at start-up.
        if let Some(latest) = store.latest()? {
            store.documents(latest.number)?;
        }
        Ok(store)
    }

    /// Creates the file under a temporary name first: a file under the final name was a complete store once, so that an
    /// empty one is damage and not a new store.
    fn create(&self, path: &Path) -> Result<(), StoreError> {
        let draft = path.with_extension("draft");
        let made = match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Trouble::from(redb::Error::Io(error))),
            _ => open_file(&draft, true).and_then(|database| lay_out(&database, &self.seal)),
        };
        made.and_then(|()| {
            fs::rename(&draft, path).map_err(redb::Error::Io)?;
            // The directory entry must be durable too.
            let folder = path.parent().map(File::open).transpose().map_err(redb::Error::Io)?;
            Ok(folder.map_or(Ok(()), |folder| folder.sync_all()).map_err(redb::Error::Io)?)
        })
        .map_err(|trouble| self.explain(trouble))
    }

    /// Runs an operation on the open database. Any error of the file closes the database.
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

/// Runs an operation, and turns a panic into an error: the database detects some damage by assertions.
fn guarded<T>(act: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    let outcome = panic::catch_unwind(AssertUnwindSafe(act));
    outcome.unwrap_or_else(|panic| Err(Trouble::Unreadable(words(panic.as_ref()))))
}

/// Closes the database. Closing writes too and can find the same damage; the next reader gets the error.
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

    fn put_sealed_note(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let sealed = self.seal.close(&label(name), value).ok_or_else(|| self.explain(no_randomness()))?;
        self.put_note(name, Some(&sealed))
    }

    fn sealed_note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(sealed) = self.note(name)? else { return Ok(None) };
        let changed = || self.explain(Trouble::Unreadable(format!("the note `{name}` has changed")));
        self.seal.open(&label(name), &sealed).map(Some).ok_or_else(changed)
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

/// What a sealed note is bound to. No document has such a name: theirs are digests.
fn label(note: &str) -> Vec<u8> {
    [b"note ", note.as_bytes()].concat()
}

/// Reads the key of the store's documents. Creates one for a new store only: a new key would open no existing document.
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
    Ok(Seal::new(&key, OWNER))
}

fn open_file(path: &Path, new: bool) -> Result<redb::Database, Trouble> {
    // Documents are encrypted, but the names of nodes are not, so that the file is private too.
    let file = OpenOptions::new().read(true).write(true).create_new(new).mode(0o600).open(path);
    let file = file.map_err(redb::Error::Io)?;
    if !new && file.metadata().map_err(redb::Error::Io)?.len() == 0 {
        return Err(Trouble::Unreadable("the file is empty".to_owned()));
    }
    Ok(builder().create_file(file)?)
}

/// The builder of a database with a small cache: what is in force is in memory already, and the rest is rarely read.
fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the database gave up").to_owned()
}
