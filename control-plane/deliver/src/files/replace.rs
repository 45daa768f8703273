//! Replaces files below a directory: atomically, and readable by their owner only.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use postern_base::secret_file;

/// The mode of files: a plan or a certificate may have secrets.
const MODE: u32 = 0o600;
/// The mode of folders.
const FOLDER_MODE: u32 = 0o700;

/// Creates a folder that only its owner can read, or restricts an existing one.
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    secret_file::make_folder(path)?;
    fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))
}

/// Replaces a file atomically with a private one, unless it has this content and mode already. Returns whether it was
/// replaced.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<bool> {
    if is_there(path, content) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.new"));
    // A file that an earlier process left may be readable by others or be a link, so that it is removed and not written
    // to.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// Whether a file has this content and is readable by its owner only.
fn is_there(path: &Path, content: &[u8]) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    let private = metadata.is_file() && metadata.permissions().mode() & 0o777 == MODE;
    private && fs::read(path).is_ok_and(|present| present == content)
}
