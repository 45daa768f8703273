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
    Document, Draft, NodeRecord, Parent, Prepared, Revision, Store, StoreError, purge,
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
        // What a purge could not finish, for lack of space say, must not keep anybody from starting.
        if store.with(purge::is_unfinished)?
            && let Err(error) = store.renew()
        {
            tracing::error!("purged resources are still in the store's file; the next start tries again: {error}");
        }
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
        let made = remove(&draft).and_then(|()| open_file(&draft, true));
        let made = made.and_then(|database| lay_out(&database, &self.seal)).and_then(|()| rename(&draft, path));
        made.map_err(|trouble| self.explain(trouble))
    }

    /// Replaces the file by one with the same content, and nothing of what was removed from it. Fails without a change if
    /// there is no space for a second file.
    fn renew(&self) -> Result<(), StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match open.take() {
            Some(database) => Ok(database),
            None => guarded(|| open_file(&self.path, false)),
        };
        let draft = self.path.with_extension("draft");
        let renewed = database.and_then(|database| {
            let copied = guarded(|| {
                remove(&draft)?;
                let copy = open_file(&draft, true)?;
                purge::copy(&database, &copy)
            });
            close(database);
            copied.and_then(|()| {
                let old = OpenOptions::new().write(true).open(&self.path).map_err(redb::Error::Io)?;
                rename(&draft, &self.path)?;
                Ok(purge::overwrite(old).map_err(redb::Error::Io)?)
            })
        });
        renewed.map_err(|trouble| self.explain(trouble))
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

/// Removes a file that may not exist.
fn remove(path: &Path) -> Result<(), Trouble> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Trouble::from(redb::Error::Io(error))),
        _ => Ok(()),
    }
}

/// Gives a complete file its final name, durably.
fn rename(draft: &Path, path: &Path) -> Result<(), Trouble> {
    fs::rename(draft, path).map_err(redb::Error::Io)?;
    // The directory entry must be durable too.
    let folder = path.parent().map(File::open).transpose().map_err(redb::Error::Io)?;
    Ok(folder.map_or(Ok(()), |folder| folder.sync_all()).map_err(redb::Error::Io)?)
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

    fn purge(&self, resource: &str, doomed: &dyn Fn(&[Document]) -> BTreeSet<usize>) -> Result<Vec<u64>, StoreError> {
        let purged = self.with(|database| purge::purge(database, &self.seal, resource, doomed))?;
        // Also if an earlier purge could not replace the file.
        if self.with(purge::is_unfinished)? {
            self.renew()?;
        }
        Ok(purged)
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

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::fs::PermissionsExt as _, time::SystemTime};

    use super::*;

    const SECRET: &[u8] = b"kind: Consumer, key: a key that must be gone";

    fn document(file: &str, text: &[u8]) -> Document {
        Document { file: file.to_owned(), line: 1, text: text.to_vec() }
    }

    fn draft(documents: Vec<Document>) -> Draft {
        let (digest, author, message) = ("digest".to_owned(), "alice".to_owned(), String::new());
        Draft { digest, author, message, at: SystemTime::UNIX_EPOCH, documents: documents.into() }
    }

    /// A store whose first revision has a secret, which its second one has not.
    fn with_a_secret(state: &Path) -> Database {
        let store = Database::open(state).unwrap();
        let other = document("b.yaml", b"the same");
        store.append(draft(vec![document("a.yaml", SECRET), other.clone()]), Parent::Latest).unwrap();
        store.append(draft(vec![other]), Parent::Latest).unwrap();
        store
    }

    /// Whether the secret can be read anywhere in the file by who has the key, whatever tables and pages say.
    fn is_readable(state: &Path) -> bool {
        let seal = seal(&state.join(KEY), false).unwrap();
        let text = encode(&document("a.yaml", SECRET)).unwrap_or_default();
        let (name, size) = (seal.name(&text), seal.close(&[], &text).unwrap().len());
        let bytes = fs::read(state.join(FILE)).unwrap();
        bytes.windows(size).any(|part| seal.open(&name, part).is_some())
    }

    fn doomed(documents: &[Document]) -> BTreeSet<usize> {
        let found = documents.iter().enumerate().filter(|(_, document)| document.text == SECRET);
        found.map(|(index, _)| index).collect()
    }

    #[test]
    fn a_purged_document_is_nowhere_in_the_file() {
        let state = tempfile::tempdir().unwrap();
        let store = with_a_secret(state.path());
        assert!(is_readable(state.path()));
        let mut former = File::open(state.path().join(FILE)).unwrap();
        assert_eq!(store.purge("Consumer `a`", &doomed).unwrap(), [1]);
        assert!(!is_readable(state.path()));
        let mut bytes = Vec::new();
        former.read_to_end(&mut bytes).unwrap();
        assert!(!bytes.is_empty() && bytes.iter().all(|byte| *byte == 0), "the former file is overwritten");
        assert_eq!(fs::metadata(state.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!state.path().join(FILE).with_extension("draft").exists());
        // The rest is as it was, and goes on.
        assert_eq!(store.documents(2).unwrap().unwrap(), [document("b.yaml", b"the same")]);
        assert_eq!(store.append(draft(Vec::new()), Parent::Exactly(Some(2))).unwrap().number, 3);
        drop(store);
        assert_eq!(Database::open(state.path()).unwrap().revisions().unwrap().len(), 3);
    }

    #[test]
    fn a_purge_that_was_interrupted_is_finished_at_the_next_start() {
        let state = tempfile::tempdir().unwrap();
        let store = with_a_secret(state.path());
        let purged = store.with(|database| purge::purge(database, &store.seal, "Consumer `a`", &doomed));
        assert_eq!(purged.unwrap(), [1]);
        drop(store);
        assert!(is_readable(state.path()), "the database keeps what was deleted in free pages");
        let store = Database::open(state.path()).unwrap();
        assert!(!is_readable(state.path()));
        assert!(!store.with(purge::is_unfinished).unwrap());
        assert_eq!(store.revision(1).unwrap().unwrap().purged, ["Consumer `a`"]);
    }

    #[test]
    fn a_table_that_is_not_known_stops_a_purge_before_it_is_lost() {
        let state = tempfile::tempdir().unwrap();
        let store = with_a_secret(state.path());
        let table = redb::TableDefinition::<u64, u64>::new("later");
        let made = store.with(|database| {
            let writing = database.begin_write()?;
            writing.open_table(table)?.insert(1, 2)?;
            Ok(writing.commit()?)
        });
        made.unwrap();
        let error = store.purge("Consumer `a`", &doomed).unwrap_err().to_string();
        assert!(error.contains("its table `later` is not known"), "{error}");
        let kept = store.with(|database| Ok(database.begin_read()?.open_table(table)?.get(1)?.map(|two| two.value())));
        assert_eq!(kept.unwrap(), Some(2));
    }
}
