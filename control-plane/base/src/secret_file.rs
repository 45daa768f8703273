//! Files that only this user may read: keys of fixed size, and drafts of secret content. What keys are used for is the
//! matter of others.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// The operating system's source of randomness.
const RANDOM: &str = "/dev/urandom";

/// The size of a key, in bytes.
pub const SIZE: usize = 32;

/// A secret key.
pub type Key = [u8; SIZE];

/// A new random key.
pub(crate) fn random() -> io::Result<Key> {
    let mut key = [0; SIZE];
    File::open(RANDOM)?.read_exact(&mut key)?;
    Ok(key)
}

/// The key in a file. `None` if the file has another size, is not regular, or is accessible to other users.
pub fn read(path: &Path) -> io::Result<Option<Key>> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let private = metadata.is_file() && metadata.permissions().mode() & 0o077 == 0;
    if !private || metadata.len() != SIZE as u64 {
        return Ok(None);
    }
    let mut key = [0; SIZE];
    file.read_exact(&mut key)?;
    Ok(Some(key))
}

/// Writes a new random key to `path` and returns it. If the file exists already, keeps it and returns its key; an error
/// if that file is not a private key file.
pub fn create(path: &Path) -> io::Result<Key> {
    let draft = draft(path, &random()?)?;
    // A hard link, unlike a rename, does not replace a key that another process made meanwhile.
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    // The name must be on disk before anything is sealed with the key.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(path)?.ok_or_else(|| io::Error::other("it can be read by others")),
    }
}

/// Makes a folder, and missing parents, with access for this user only. An existing folder is left as it is.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes bytes to a new file next to `path`, with access for this user only, and syncs it. Returns the new file's
/// path, which no other draft has. If writing fails, the file is removed.
pub fn draft(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("draft-{}-{number}", process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(&draft)))?;
    Ok(draft)
}
