//! Watches a directory of YAML files, and reads it when files are written completely.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher, event};
use postern_model::{
    File,
    directory::{self, SourceError, is_read},
};
use tokio::{sync::watch, task, time};

/// A file that was opened for writing and not closed counts as complete after this time without an event.
const QUIET: Duration = Duration::from_millis(50);
/// The longest wait for files to be complete.
const LONGEST: Duration = Duration::from_millis(500);

/// Reports changes of a directory. All changes between two calls are one.
#[derive(Debug)]
pub struct Watch {
    seen: watch::Receiver<Seen>,
    _watcher: RecommendedWatcher,
}

/// The events of a directory so far.
#[derive(Debug, Default)]
struct Seen {
    /// The files that are open for writing, with the time of their last event.
    open: HashMap<PathBuf, Instant>,
}

impl Seen {
    /// Records an event. Returns whether it can have changed what is read.
    fn note(&mut self, Event { kind, paths, .. }: &Event, now: Instant) -> bool {
        match kind {
            EventKind::Access(event::AccessKind::Close(event::AccessMode::Write)) => {}
            EventKind::Access(_) => return false,
            EventKind::Create(event::CreateKind::File) | EventKind::Modify(event::ModifyKind::Data(_)) => {
                // A file that is open without being written is not waited for, and so need not be remembered.
                self.open.retain(|_, last| now.saturating_duration_since(*last) < QUIET);
                self.open.extend(paths.iter().filter(|path| is_read(path)).map(|path| (path.clone(), now)));
                return true;
            }
            _ => {}
        }
        self.open.retain(|path, _| !paths.contains(path));
        true
    }

    /// The time at which all files count as complete; `None` if no file is open for writing.
    fn settled(&self) -> Option<Instant> {
        self.open.values().max().map(|last| *last + QUIET)
    }
}

impl Watch {
    /// Starts to watch a directory and its folders.
    pub fn start(directory: &Path) -> Result<Self, SourceError> {
        let failed = |error| {
            let error = io::Error::other(format!("cannot be watched: {error}"));
            SourceError::Read { path: directory.to_owned(), error }
        };
        let (sender, seen) = watch::channel(Seen::default());
        let told = move |event: notify::Result<Event>| {
            // After an error of the watch, events may be lost, so that the directory must be read.
            sender.send_if_modified(|seen| event.as_ref().map_or(true, |event| seen.note(event, Instant::now())));
        };
        // Links inside the directory need not be followed, since it is watched whole; others must not be.
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher = RecommendedWatcher::new(told, config).map_err(failed)?;
        // A link is followed to the directory that it leads to now: the link itself has no files.
        let directory = directory.canonicalize().map_err(|error| failed(error.into()))?;
        watcher.watch(&directory, RecursiveMode::Recursive).map_err(failed)?;
        Ok(Self { seen, _watcher: watcher })
    }

    /// Waits for the next change, and until all files count as complete. Returns false when the directory can no longer
    /// be watched.
    pub async fn changed(&mut self) -> bool {
        if self.seen.changed().await.is_err() {
            return false;
        }
        let settled = async {
            loop {
                let until = self.seen.borrow_and_update().settled().filter(|until| *until > Instant::now());
                let Some(until) = until else { break };
                // After either, look again.
                let _ = time::timeout_at(until.into(), self.seen.changed()).await;
            }
        };
        // After the longest wait the directory is read as it is; later events are another change.
        let _ = time::timeout(LONGEST, settled).await;
        true
    }

    /// Reads the directory, again and again while it changes meanwhile, so that several files that are written one
    /// after the other are usually one change.
    pub async fn read(&mut self, directory: &Path) -> Result<Vec<File>, SourceError> {
        let begin = Instant::now();
        loop {
            self.seen.mark_unchanged();
            let (path, failed) = (directory.to_owned(), directory.to_owned());
            let files = task::spawn_blocking(move || directory::read(&path))
                .await
                .unwrap_or_else(|error| Err(SourceError::Read { path: failed, error: io::Error::other(error) }));
            let is_stale = self.seen.has_changed().unwrap_or(false);
            if !is_stale || begin.elapsed() > LONGEST || !self.changed().await {
                return files;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn event(kind: EventKind, name: &str) -> Event {
        Event::new(kind).add_path(PathBuf::from(name))
    }

    #[test]
    fn waits_for_files_that_are_being_written_and_for_no_others() {
        use event::{AccessKind, AccessMode, CreateKind, DataChange, ModifyKind, RemoveKind, RenameMode};
        let created = EventKind::Create(CreateKind::File);
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        let looked_at = EventKind::Access(AccessKind::Close(AccessMode::Read));
        let (start, mut seen) = (Instant::now(), Seen::default());
        assert!(seen.note(&event(created, "d/a.yaml"), start));
        assert_eq!(seen.settled(), Some(start + QUIET));
        let later = start + Duration::from_millis(20);
        assert!(seen.note(&event(written, "d/a.yaml"), later));
        assert!(!seen.note(&event(looked_at, "d/a.yaml"), later));
        assert_eq!(seen.settled(), Some(later + QUIET));
        assert!(seen.note(&event(closed, "d/a.yaml"), later));
        assert_eq!(seen.settled(), None);
        // A renamed file is complete, and a file that is not read is not waited for.
        for (kind, name) in
            [(renamed, "d/b.yaml"), (written, "d/.a.yaml.swp"), (EventKind::Remove(RemoveKind::File), "d/b.yaml")]
        {
            assert!(seen.note(&event(kind, name), later));
            assert_eq!(seen.settled(), None, "for {name}");
        }
        // A file that stays open delays the others for a limited time only.
        assert!(seen.note(&event(written, "d/c.yaml"), later));
        let much_later = later + QUIET;
        assert!(
            seen.note(&event(written, "d/d.yaml"), much_later) && seen.note(&event(closed, "d/d.yaml"), much_later)
        );
        assert_eq!(seen.settled(), None);
    }

    #[tokio::test]
    async fn tells_of_what_happens_while_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut watch = Watch::start(directory.path()).unwrap();
        fs::write(at("a.yaml"), "kind: A").unwrap();
        assert!(watch.changed().await);
        fs::write(at("b.yaml"), "kind: B").unwrap();
        let files = watch.read(directory.path()).await.unwrap();
        assert_eq!(files.len(), 2);
        fs::remove_file(at("b.yaml")).unwrap();
        assert!(watch.changed().await);
        assert_eq!(watch.read(directory.path()).await.unwrap().len(), 1);
    }
}
