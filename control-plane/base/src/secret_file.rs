//! Keys, and whatever else nobody else may read, in files.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Where the operating system gives randomness away.
const RANDOM: &str = "/dev/urandom";

/// How many bytes a key has.
pub const SIZE: usize = 32;

/// A key.
pub type Key = [u8; SIZE];

/// A key that nobody had before.
pub(crate) fn random() -> io::Result<Key> {
    let mut key = [0; SIZE];
    File::open(RANDOM)?.read_exact(&mut key)?;
    Ok(key)
}

/// The key in a file; `None` if it is no key, or no secret.
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

/// Makes a key in a file that is not there. If another process was faster, its key is the one.
pub fn create(path: &Path) -> io::Result<Key> {
    let draft = draft(path, &random()?)?;
    // A link, unlike a renaming, leaves a key alone that another process made meanwhile.
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    // What is sealed with it must not outlive its name.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(path)?.ok_or_else(|| io::Error::other("it can be read by others")),
    }
}

/// Makes a folder that only this user can look into, with all above it that are not there. One that is there stays as it
/// is.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes bytes that only this user can read, durably, beside a file and under a name that nobody else uses.
pub fn draft(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("draft-{}-{number}", process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(&draft)))?;
    Ok(draft)
}
