//! The files of a node cache: one sealed file for each node, replaced as a whole, and read when the cache starts.
//!
//! A file is bound to its node and to the key. What cannot be read is never served, and its reason is kept for whoever
//! asks. It is replaced when the node accepts something again.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use postern_base::{
    digest::Digest,
    node::NodeIdentity,
    regular_file,
    seal::Seal,
    secret_file::{self, Key},
    via_cache::Span,
};
use tokio::{sync::Notify, task, time};

use super::kept::{Kept, Sets};

/// The owner of the files, for which keys are derived.
const OWNER: &str = "postern node cache";
/// The name of the key file, unless another path is configured.
const KEY: &str = "node-cache.key";
/// The name of the file that is locked while a cache uses the directory.
const LOCK: &str = "node-cache.lock";
/// The ending of a node's file.
const ENDING: &str = "node";
/// How a file begins.
const FORMAT: &[u8] = b"postern node cache 1\n";
/// The size of the mark that tells keys apart.
const MARK: usize = 32;

/// The largest content of a node that is kept, in bytes.
const LARGEST: usize = 64 << 20;
/// The time before the next attempt after a file could not be written.
const PAUSE: Duration = Duration::from_secs(2);
/// How far ahead the time of a file may be, since clocks are set.
const SKEW: Duration = Duration::from_secs(300);

/// The resources that nodes accepted, in memory and in files.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    seal: Seal,
    max_age: Duration,
    most_nodes: usize,
    slots: Mutex<BTreeMap<Digest, Slot>>,
    /// The stream of each node that says what the node accepted.
    owners: Mutex<BTreeMap<Digest, u64>>,
    changed: Notify,
    _lock: File,
}

/// What is known of one node.
#[derive(Debug)]
struct Slot {
    kept: Result<Arc<Kept>, Reason>,
    /// Whether the file lacks what is kept.
    is_dirty: bool,
}

/// A stream that may say what its node accepted. Dropping it lets another stream.
#[derive(Debug)]
pub(super) struct Ownership {
    shelf: Arc<Shelf>,
    key: Digest,
    stream: u64,
}

impl Ownership {
    /// Whether the stream is the one that says it: of several that are open, the one that was first.
    pub(super) fn is_held(&self) -> bool {
        let mut owners = self.shelf.owners();
        *owners.entry(self.key.clone()).or_insert(self.stream) == self.stream
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        if self.is_held() {
            self.shelf.owners().remove(&self.key);
        }
    }
}

/// Why a node cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Reason {
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it was sealed with another key: name that one with `--state-key`")]
    Sealed,
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("the node has more than {LARGEST} bytes, which is the most that is kept")]
    TooLarge,
}

/// Why nothing can be kept, or a node cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// The directory or the key cannot be used.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// Another node cache uses the directory.
    #[error("{}: the directory is in use by another node cache: choose another with `--state`", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Nothing is kept of the node.
    #[error("nothing is kept of node `{node}` as it describes itself ({})", path.display())]
    Nothing {
        /// The node.
        node: String,
        /// The file that would have it.
        path: PathBuf,
    },
    /// What is kept of the node cannot be used.
    #[error("what is kept of node `{node}` is not served: {}: {reason}", path.display())]
    Unusable {
        /// The node.
        node: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Shelf {
    /// Opens the files of a directory, which is created if it is missing. The key is created with the first use of the
    /// directory only: a new key would open no file. Files that cannot be read are logged.
    pub fn open(folder: &Path, key: Option<&Path>, max_age: Duration, most_nodes: usize) -> Result<Self, ShelfError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| ShelfError::Io { path, error }
        };
        secret_file::make_folder(folder).map_err(failed(folder))?;
        let lock = lock(folder)?;
        let files = files(folder).map_err(failed(folder))?;
        let key_path = key.map_or_else(|| folder.join(KEY), Path::to_owned);
        let key = read_key(&key_path, files.is_empty()).map_err(failed(&key_path))?;
        let seal = Seal::new(&key, OWNER);
        let slots = files.into_iter().map(|(key, path)| {
            let kept = read_file(&path, &seal, &key).map(Arc::new);
            if let Err(reason) = &kept {
                tracing::error!(file = %path.display(), "what is kept of a node is not served: {reason}");
            }
            (key, Slot { kept, is_dirty: false })
        });
        let slots = Mutex::new(slots.collect());
        let (folder, changed) = (folder.to_owned(), Notify::new());
        let owners = Mutex::default();
        Ok(Self { folder, seal, max_age, most_nodes, slots, owners, changed, _lock: lock })
    }

    /// Lets a stream say what a node accepted, once no other does: a second client with the name of a node must not
    /// change what is kept of the first.
    pub(super) fn own(self: &Arc<Self>, node: &NodeIdentity, stream: u64) -> Ownership {
        Ownership { shelf: Arc::clone(self), key: key_of(node), stream }
    }

    /// What is kept of a node, of any age. The error is [`ShelfError::Nothing`] or [`ShelfError::Unusable`].
    pub(super) fn recall(&self, node: &NodeIdentity) -> Result<Arc<Kept>, ShelfError> {
        let key = key_of(node);
        let (id, path) = (node.id.clone(), self.path(&key));
        match self.slots().get(&key).map(|slot| &slot.kept) {
            Some(Ok(kept)) => Ok(Arc::clone(kept)),
            Some(Err(reason)) => Err(ShelfError::Unusable { node: id, path, reason: reason.to_string() }),
            None => Err(ShelfError::Nothing { node: id, path }),
        }
    }

    /// What is kept of a node, and for how long it may be served; an error if it is too old.
    pub(super) fn serve(&self, node: &NodeIdentity, now: SystemTime) -> Result<(Arc<Kept>, Duration), ShelfError> {
        let kept = self.recall(node)?;
        let unusable = |reason| {
            let (node, path) = (node.id.clone(), self.path(&key_of(node)));
            ShelfError::Unusable { node, path, reason }
        };
        let age = match now.duration_since(kept.contact) {
            Ok(age) => age,
            Err(ahead) if ahead.duration() <= SKEW => Duration::ZERO,
            Err(ahead) => return Err(unusable(format!("its time is {:.0?} ahead of the clock", ahead.duration()))),
        };
        match self.max_age.checked_sub(age).filter(|left| !left.is_zero()) {
            Some(left) => Ok((kept, left)),
            None => {
                let (age, most) = (age.as_secs(), self.max_age.as_secs());
                let reason = format!("the control plane was last in contact {age} s ago, and `--max-age` is {most} s");
                Err(unusable(reason))
            }
        }
    }

    /// Keeps what a node accepted, with the time of this contact. A new node is not kept if there are too many.
    pub(super) fn keep(&self, node: &NodeIdentity, sets: Sets, now: SystemTime) {
        let key = key_of(node);
        let mut slots = self.slots();
        if !slots.contains_key(&key) && slots.len() >= self.most_nodes && !self.make_room(&mut slots, now) {
            tracing::error!(node = node.id, most = self.most_nodes, "nothing is kept of it: there are too many nodes");
            return;
        }
        let is_small = Kept::size(&sets) <= LARGEST;
        let before = slots.remove(&key);
        let served = before.and_then(|slot| slot.kept.ok()?.served);
        let kept = if is_small { Ok(Arc::new(Kept { sets, contact: now, served })) } else { Err(Reason::TooLarge) };
        if let Err(reason) = &kept {
            tracing::error!(node = node.id, "nothing is kept of it: {reason}");
        }
        slots.insert(key, Slot { kept, is_dirty: true });
        self.changed.notify_one();
    }

    /// Records that the control plane is in contact with a node.
    pub(super) fn contact(&self, node: &NodeIdentity, now: SystemTime) {
        self.update(node, |kept| kept.contact = now);
    }

    /// Records that a node is served from what is kept. The span goes on until the control plane is in contact again.
    pub(super) fn serving(&self, node: &NodeIdentity, now: SystemTime) {
        self.update(node, |kept| {
            let contact = Span::between(kept.contact, kept.contact).from;
            let from = kept.served.map(|served| served.from).filter(|from| *from >= contact);
            let now = Span::between(now, now);
            let from = from.unwrap_or(now.from);
            kept.served = Some(Span { from, until: now.until.max(from) });
        });
    }

    /// When a node was last served from what is kept.
    pub(super) fn last_served(&self, node: &NodeIdentity) -> Option<Span> {
        self.recall(node).ok()?.served
    }

    /// Writes what has changed to files, for as long as it is polled. A file that cannot be written is tried again.
    pub async fn follow(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            let shelf = Arc::clone(&self);
            let written = task::spawn_blocking(move || shelf.write()).await;
            if !matches!(written, Ok(true)) {
                time::sleep(PAUSE).await;
                self.changed.notify_one();
            }
        }
    }

    /// Writes what has changed to files now. Returns false if a file could not be written; it is logged.
    pub fn write(&self) -> bool {
        let mut slots = self.slots();
        let dirty = slots.iter_mut().filter(|(_, slot)| slot.is_dirty).map(|(key, slot)| {
            slot.is_dirty = false;
            (key.clone(), slot.kept.as_ref().ok().cloned())
        });
        let dirty: Vec<_> = dirty.collect();
        drop(slots);
        let mut is_written = true;
        for (key, kept) in dirty {
            let path = self.path(&key);
            let written = match kept {
                Some(kept) => write_file(&path, &self.seal, &key, &kept),
                None => fs::remove_file(&path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                }),
            };
            if let Err(error) = written {
                tracing::error!(file = %path.display(), %error, "what a node accepted is not kept on the disk");
                is_written = false;
                if let Some(slot) = self.slots().get_mut(&key) {
                    slot.is_dirty = true;
                }
            }
        }
        is_written
    }

    /// How often contact must be recorded, so that the age of what is kept is right.
    pub(super) fn contact_interval(&self) -> Duration {
        (self.max_age / 4).clamp(Duration::from_millis(100), Duration::from_secs(60))
    }

    fn update(&self, node: &NodeIdentity, change: impl FnOnce(&mut Kept)) {
        let mut slots = self.slots();
        let Some(Slot { kept: Ok(kept), is_dirty }) = slots.get_mut(&key_of(node)) else { return };
        change(Arc::make_mut(kept));
        *is_dirty = true;
        self.changed.notify_one();
    }

    /// Forgets the nodes that are too old to be served. Returns whether there were any.
    fn make_room(&self, slots: &mut BTreeMap<Digest, Slot>, now: SystemTime) -> bool {
        let is_old = |slot: &Slot| match &slot.kept {
            Ok(kept) => now.duration_since(kept.contact).is_ok_and(|age| age > self.max_age),
            Err(_) => true,
        };
        let old: Vec<_> = slots.iter().filter(|(_, slot)| is_old(slot)).map(|(key, _)| key.clone()).collect();
        for key in &old {
            slots.remove(key);
            if let Err(error) = fs::remove_file(self.path(key)) {
                tracing::debug!(%error, "the file of a forgotten node stays");
            }
        }
        !old.is_empty()
    }

    fn owners(&self) -> MutexGuard<'_, BTreeMap<Digest, u64>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: &Digest) -> PathBuf {
        self.folder.join(key.as_str()).with_extension(ENDING)
    }

    /// Locks the slots. A poisoned lock is ignored: every statement leaves them consistent.
    fn slots(&self) -> MutexGuard<'_, BTreeMap<Digest, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells a node apart: all that decides what the control plane serves it.
fn key_of(node: &NodeIdentity) -> Digest {
    let NodeIdentity { id, service, mesh, tags, envoy, lacks_wasm, large_regexes } = node;
    let own = [id, service, mesh, envoy.as_deref().unwrap_or_default()];
    let tags = tags.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    // Without a flag the key is the one of earlier versions. One part more is no tag, which has two.
    let flags = match (lacks_wasm, large_regexes) {
        (false, false) => None,
        (true, false) => Some("lacks wasm"),
        (false, true) => Some("large regexes"),
        (true, true) => Some("lacks wasm, large regexes"),
    };
    Digest::of_parts(own.into_iter().chain(tags).chain(flags).map(str::as_bytes))
}

fn lock(folder: &Path) -> Result<File, ShelfError> {
    let path = folder.join(LOCK);
    let open = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = open.map_err(|error| ShelfError::Io { path, error })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(ShelfError::InUse { path: folder.to_owned() }),
        Err(fs::TryLockError::Error(error)) => Err(ShelfError::Io { path: folder.to_owned(), error }),
    }
}

/// The files of nodes in a directory, by key. Drafts of a cache that was killed are removed.
fn files(folder: &Path) -> io::Result<BTreeMap<Digest, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let part =
            |part: Option<&std::ffi::OsStr>| part.and_then(std::ffi::OsStr::to_str).unwrap_or_default().to_owned();
        let Some(key) = Digest::from_hex(&part(path.file_stem())) else { continue };
        let ending = part(path.extension());
        if ending == ENDING {
            files.insert(key, path);
        } else if ending.starts_with("draft-") {
            fs::remove_file(path)?;
        }
    }
    Ok(files)
}

fn read_key(path: &Path, is_new: bool) -> io::Result<Key> {
    match secret_file::read(path) {
        Ok(Some(key)) => Ok(key),
        Ok(None) => {
            let size = secret_file::SIZE;
            Err(io::Error::other(format!("the key must have {size} bytes, and nobody else may read it (mode 0600)")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_new => secret_file::create(path),
        Err(error) => Err(io::Error::other(format!("the key of what is kept cannot be read: {error}"))),
    }
}

fn read_file(path: &Path, seal: &Seal, key: &Digest) -> Result<Kept, Reason> {
    let most = u64::try_from(2 * LARGEST).unwrap_or(u64::MAX);
    let bytes = regular_file::read(path, most).map_err(|error| Reason::Unreadable(error.to_string()))?;
    let damaged = |what: &str| Reason::Damaged(what.to_owned());
    let rest = bytes.strip_prefix(FORMAT).ok_or_else(|| damaged("it does not begin as such a file"))?;
    let (mark, sealed) = rest.split_first_chunk::<MARK>().ok_or_else(|| damaged("it is too short"))?;
    if mark != seal.mark() {
        return Err(Reason::Sealed);
    }
    let kept = seal.open(&bound_to(key), sealed).ok_or_else(|| damaged("it has changed since it was written"))?;
    Kept::decode(&kept).map_err(Reason::Damaged)
}

/// Replaces a file as a whole. It is on the disk when this returns.
fn write_file(path: &Path, seal: &Seal, key: &Digest, kept: &Kept) -> io::Result<()> {
    let sealed = seal.close(&bound_to(key), &kept.encode());
    let sealed = sealed.ok_or_else(|| io::Error::other("the system has no randomness"))?;
    let draft = secret_file::draft(path, &[FORMAT, seal.mark(), &sealed].concat())?;
    fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// What a sealed file is bound to, so that no node gets another's.
fn bound_to(key: &Digest) -> Vec<u8> {
    [FORMAT, key.as_str().as_bytes()].concat()
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
