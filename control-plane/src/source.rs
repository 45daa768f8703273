//! Where resources come from: a directory of YAML files, read whole, and watched for changes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{sync::mpsc, time};

use crate::model::{File, attachment::is_attachment};

/// How deep folders may nest: a loop of links must end somewhere.
const DEEPEST: usize = 16;
/// How long a directory must be quiet before it is read, so that a change of several files is one change …
const QUIET: Duration = Duration::from_millis(50);
/// … and how long it may go on without being quiet.
const LONGEST: Duration = Duration::from_millis(500);

/// Why a directory could not be read or watched.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file system said no.
    #[error("{}: {error}", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// A directory that says nothing is more likely a mistake than a wish to serve nothing.
    #[error("{}: no `.yaml` or `.yml` files in this directory", .0.display())]
    Empty(PathBuf),
    /// A file without a byte is most likely being written.
    #[error("{}: the file is empty: is it being written?", .0.display())]
    EmptyFile(PathBuf),
    /// Folders in folders without an end.
    #[error("{}: folders are nested too deep", .0.display())]
    Nested(PathBuf),
    /// The directory cannot be watched.
    #[error("{}: cannot be watched: {error}", path.display())]
    Watch {
        /// What was to be watched.
        path: PathBuf,
        /// Why not.
        error: notify::Error,
    },
}

/// Every `.yaml` and `.yml` file in a directory and its folders, and the certificates and keys for them, in the order of
/// their paths.
pub fn read(directory: &Path) -> Result<Vec<File>, SourceError> {
    let mut paths = Vec::new();
    collect(directory, 0, &mut paths)?;
    paths.sort();
    if !paths.iter().any(|path| is_resources(path)) {
        return Err(SourceError::Empty(directory.to_owned()));
    }
    paths.into_iter().map(read_file).collect()
}

fn collect(directory: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> Result<(), SourceError> {
    if depth > DEEPEST {
        return Err(SourceError::Nested(directory.to_owned()));
    }
    let failed = |error| SourceError::Read { path: directory.to_owned(), error };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_hidden(&path) {
            continue;
        }
        if path.is_dir() {
            collect(&path, depth + 1, paths)?;
        } else if is_resources(&path) || is_attachment(&path) {
            paths.push(path);
        }
    }
    Ok(())
}

fn is_resources(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Editors and mounted volumes keep their own affairs in hidden files.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn read_file(path: PathBuf) -> Result<File, SourceError> {
    let bytes = fs::read(&path).map_err(|error| SourceError::Read { path: path.clone(), error })?;
    if bytes.is_empty() {
        return Err(SourceError::EmptyFile(path));
    }
    Ok(File { name: path.display().to_string(), bytes })
}

/// Tells when a directory has changed and is quiet again.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Watch {
    /// Watches a directory and its folders from now on.
    pub fn start(directory: &Path) -> Result<Self, SourceError> {
        let failed = |error| SourceError::Watch { path: directory.to_owned(), error };
        let (sender, changes) = mpsc::channel(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let reading = event.as_ref().is_ok_and(|event| event.kind.is_access() && !is_write_end(event));
            if !reading {
                // A full channel holds a change that is still to be seen: one is as good as many.
                let _ = sender.try_send(());
            }
        })
        .map_err(failed)?;
        watcher.watch(directory, RecursiveMode::Recursive).map_err(failed)?;
        Ok(Self { changes, _watcher: watcher })
    }

    /// Waits for the next change and for quiet after it. `false` when nothing can be watched any more.
    pub async fn changed(&mut self) -> bool {
        if self.changes.recv().await.is_none() {
            return false;
        }
        let settle =
            async { while time::timeout(QUIET, self.changes.recv()).await.is_ok_and(|change| change.is_some()) {} };
        // Past the longest wait, what is there now is read, and what comes next is another change.
        let _ = time::timeout(LONGEST, settle).await;
        true
    }
}

fn is_write_end(event: &Event) -> bool {
    use notify::event::{AccessKind, AccessMode, EventKind};
    matches!(event.kind, EventKind::Access(AccessKind::Close(AccessMode::Write)))
}
