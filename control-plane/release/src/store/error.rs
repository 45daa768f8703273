//! Why the store did not do what it was asked for, in words that say the way back.

use std::{io, path::PathBuf};

/// A store's refusal. Whatever it is, no revision was added, and what is in force goes on being served.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else was faster.
    #[error("the latest revision is {}, not {}: look at what changed and apply again", shown(.latest), shown(.expected))]
    Conflict {
        /// What the writer believed to follow.
        expected: Option<u64>,
        /// What it would have followed.
        latest: Option<u64>,
    },
    /// The disk is full, or a limit on the file's size is reached.
    #[error("{}: no space is left for the store: {error}; free some, and apply again: nothing was changed", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
    /// The operating system refused something else.
    #[error("{}: the store cannot be used: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// Another process has it.
    #[error("{}: the store is in use by another `postern`: end that one, or choose another `--state` directory", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file does not hold what was written.
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
    /// It was sealed with a key that is not there.
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
    /// It was sealed with another key.
    #[error("{}: the store was sealed with another key: name that one with `--state-key`, or put it back beside the store", path.display())]
    Sealed {
        /// The store's file.
        path: PathBuf,
    },
}

fn shown(revision: &Option<u64>) -> String {
    revision.map_or("none".to_owned(), |number| number.to_string())
}
