//! Where resources lie below a directory, and how a file there changes.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::snapshot::ResourceType;

/// Where a resource is. Clusters and listeners are in one file each, whatever the name.
pub fn place(kind: ResourceType, name: &str) -> PathBuf {
    match folder(kind) {
        Some(folder) => Path::new(folder).join(format!("{}.json", file_name(name))),
        None => PathBuf::from(if kind == ResourceType::Cluster { "cds.json" } else { "lds.json" }),
    }
}

/// The folder of types that have a file for each resource.
pub(super) fn folder(kind: ResourceType) -> Option<&'static str> {
    match kind {
        ResourceType::Secret => Some("sds"),
        ResourceType::Endpoints => Some("eds"),
        ResourceType::ExtensionConfig => Some("ecds"),
        ResourceType::RouteConfiguration => Some("rds"),
        ResourceType::Cluster | ResourceType::Listener | ResourceType::VirtualHost => None,
    }
}

/// Who may read a file of this type: secrets are for its owner and group.
pub(super) fn mode(kind: ResourceType) -> u32 {
    if kind == ResourceType::Secret { 0o640 } else { 0o644 }
}

/// A name that can stand in a folder: all but letters, digits, `-`, `_` and inner dots is written as `%` and two digits.
fn file_name(name: &str) -> String {
    let mut file = String::new();
    for byte in name.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && !file.is_empty());
        if plain {
            file.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(file, "%{byte:02x}");
        }
    }
    file
}

/// Puts content at a path, whole at every moment, unless it is there already. Says whether it was not.
pub(super) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}
