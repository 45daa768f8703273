//! The paths of resources below a directory.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use postern_compile::snapshot::ResourceType;

/// The path of a resource. All clusters are in one file, and so are all listeners.
pub fn place(kind: ResourceType, name: &str) -> PathBuf {
    match folder(kind) {
        Some(folder) => Path::new(folder).join(format!("{}.json", file_name(name))),
        None => PathBuf::from(if kind == ResourceType::Cluster { "cds.json" } else { "lds.json" }),
    }
}

/// The folder of a type that has a file for each resource; `None` for clusters and listeners.
pub(crate) fn folder(kind: ResourceType) -> Option<&'static str> {
    match kind {
        ResourceType::Secret => Some("sds"),
        ResourceType::Endpoints => Some("eds"),
        ResourceType::ExtensionConfig => Some("ecds"),
        ResourceType::RouteConfiguration => Some("rds"),
        ResourceType::Cluster | ResourceType::Listener | ResourceType::VirtualHost => None,
    }
}

/// A file name for a resource: all but letters, digits, `-`, `_` and inner dots is written as `%` and two digits.
fn file_name(name: &str) -> String {
    let mut file = String::new();
    for byte in name.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && !file.is_empty());
        if plain {
            file.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(file, "%{byte:02x}");
        }
    }
    file
}
