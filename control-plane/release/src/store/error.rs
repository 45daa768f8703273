//! Errors of the store. Each message says how to recover.

use std::{io, path::PathBuf};

/// An error of the store. No revision was added, and what is in force stays in force.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer added a revision first.
    #[error("the latest revision is {}, not {}: look at what changed and apply again", shown(.latest), shown(.expected))]
    Conflict {
        /// The revision that the writer expected to follow.
        expected: Option<u64>,
        /// The latest revision.
        latest: Option<u64>,
    },
    /// The disk is full, or a limit on the file's size is reached.
    #[error("{}: no space is left for the store: {error}; free some, and apply again: nothing was changed", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Another error of the operating system.
    #[error("{}: the store cannot be used: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Another process has the store open.
    #[error("{}: the store is in use by another `postern`: end that one, or choose another `--state` directory", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "{}: the store is damaged: {reason}; put a copy of it from a backup in its place, or move it away and start again: \
         the resources of `--config` become revision 1 of a new store",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key of the store is missing or unreadable.
    #[error(
        "{}: the key of the store cannot be used: {error}; put it back, or name the file that has it with `--state-key`: what \
         was sealed with it cannot be read without it",
        path.display()
    )]
    Key {
        /// The key's file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The store is encrypted with another key.
    #[error("{}: the store was sealed with another key: name that one with `--state-key`, or put it back beside the store", path.display())]
    Sealed {
        /// The store's file.
        path: PathBuf,
    },
}

fn shown(revision: &Option<u64>) -> String {
    revision.map_or("none".to_owned(), |number| number.to_string())
}
