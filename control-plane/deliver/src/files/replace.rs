//! How a file below a directory changes: whole at every moment, and for its owner alone.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use postern_base::secret_file;

/// Who may read a file: its owner. A plan may have secrets in it, and so has a certificate.
const MODE: u32 = 0o600;
/// The same for a folder.
const FOLDER_MODE: u32 = 0o700;

/// Makes a folder that only its owner can look into, also if it is there already.
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    secret_file::make_folder(path)?;
    fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))
}

/// Puts content at a path, whole at every moment and for its owner alone, unless it is there already. Says whether it was
/// not.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<bool> {
    if is_there(path, content) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.new"));
    // What an earlier process left behind may be open to others, or lead elsewhere: it is not written to.
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

/// Whether a file has this content, and nobody but its owner can read it.
fn is_there(path: &Path, content: &[u8]) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    let private = metadata.is_file() && metadata.permissions().mode() & 0o777 == MODE;
    private && fs::read(path).is_ok_and(|present| present == content)
}
