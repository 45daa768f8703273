//! A directory of YAML files as it changes: it is watched, and read when what is written to it is whole.

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

/// How long nothing must happen to a file that somebody has begun to write and not closed, before it is read as it is …
const QUIET: Duration = Duration::from_millis(50);
/// … and how long changes may go on before what is there is read.
const LONGEST: Duration = Duration::from_millis(500);

/// Tells when a directory has changed. What happens between two questions is one change.
#[derive(Debug)]
pub struct Watch {
    seen: watch::Receiver<Seen>,
    _watcher: RecommendedWatcher,
}

/// What has happened in a directory so far.
#[derive(Debug, Default)]
struct Seen {
    /// The files that somebody has begun to write and not closed, and when something last happened to them.
    open: HashMap<PathBuf, Instant>,
}

impl Seen {
    /// Takes note of an event. Says whether it can have changed what is read.
    fn note(&mut self, Event { kind, paths, .. }: &Event, now: Instant) -> bool {
        match kind {
            EventKind::Access(event::AccessKind::Close(event::AccessMode::Write)) => {}
            EventKind::Access(_) => return false,
            EventKind::Create(event::CreateKind::File) | EventKind::Modify(event::ModifyKind::Data(_)) => {
                // One that is kept open without being written is not waited for, so that it need not be remembered.
                self.open.retain(|_, last| now.saturating_duration_since(*last) < QUIET);
                self.open.extend(paths.iter().filter(|path| is_read(path)).map(|path| (path.clone(), now)));
                return true;
            }
            _ => {}
        }
        self.open.retain(|path, _| !paths.contains(path));
        true
    }

    /// When all files are as good as closed: each was closed, or nothing has happened to it for a while.
    fn settled(&self) -> Option<Instant> {
        self.open.values().max().map(|last| *last + QUIET)
    }
}

impl Watch {
    /// Watches a directory and its folders from now on.
    pub fn start(directory: &Path) -> Result<Self, SourceError> {
        let failed = |error| {
            let error = io::Error::other(format!("cannot be watched: {error}"));
            SourceError::Read { path: directory.to_owned(), error }
        };
        let (sender, seen) = watch::channel(Seen::default());
        let told = move |event: notify::Result<Event>| {
            // After an error nobody knows what has happened: it is best to look.
            sender.send_if_modified(|seen| event.as_ref().map_or(true, |event| seen.note(event, Instant::now())));
        };
        // Links stay inside the directory, which is watched whole; one that does not must not have all else watched.
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher = RecommendedWatcher::new(told, config).map_err(failed)?;
        watcher.watch(directory, RecursiveMode::Recursive).map_err(failed)?;
        Ok(Self { seen, _watcher: watcher })
    }

    /// Waits for the next change, and until every file that is being written is closed, or nothing happens to it any more.
    /// `false` when nothing can be watched any more.
    pub async fn changed(&mut self) -> bool {
        if self.seen.changed().await.is_err() {
            return false;
        }
        let settled = async {
            loop {
                let until = self.seen.borrow_and_update().settled().filter(|until| *until > Instant::now());
                let Some(until) = until else { break };
                // Either way, look again.
                let _ = time::timeout_at(until.into(), self.seen.changed()).await;
            }
        };
        // Past the longest wait, what is there now is read, and what comes next is another change.
        let _ = time::timeout(LONGEST, settled).await;
        true
    }

    /// Reads the directory, and reads it again if it changes meanwhile: several files that are written one after the other
    /// are one change, as far as reading takes that long.
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
        // What takes the place of a file is whole, and what is not read is not waited for.
        for (kind, name) in
            [(renamed, "d/b.yaml"), (written, "d/.a.yaml.swp"), (EventKind::Remove(RemoveKind::File), "d/b.yaml")]
        {
            assert!(seen.note(&event(kind, name), later));
            assert_eq!(seen.settled(), None, "for {name}");
        }
        // One that is kept open does not hold up the others for ever.
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
