//! Where resources come from: a directory of YAML files, read whole, and watched for changes.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher, event};
use tokio::{sync::watch, task, time};

use crate::{
    model::{File, attachment::is_attachment},
    regular_file,
};

/// How deep folders may nest.
const DEEPEST: usize = 16;
/// How many entries a directory may have with all of its folders, and how many bytes in all files that are read: as many as
/// a bundle may have.
const MOST_ENTRIES: usize = 100_000;
const LARGEST: u64 = 64 << 20;
/// How long nothing must happen to a file that somebody has begun to write and not closed, before it is read as it is …
const QUIET: Duration = Duration::from_millis(50);
/// … and how long changes may go on before what is there is read.
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
    #[error("{}: folders are nested too deep: at most {DEEPEST} levels are read", .0.display())]
    Nested(PathBuf),
    /// A link leads to a folder that it is in.
    #[error("{}: the link leads to a folder that it is in", .0.display())]
    Loop(PathBuf),
    /// A link leads out of the directory.
    #[error("{}: the link leads out of the directory, to {}: copy the file, or read the directory that has both", path.display(), target.display())]
    Outside {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// More files than anybody has.
    #[error("{}: there are more than {MOST_ENTRIES} files and folders", .0.display())]
    TooMany(PathBuf),
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
/// their paths. Links are followed as long as they stay inside the directory.
pub fn read(directory: &Path) -> Result<Vec<File>, SourceError> {
    let failed = |error| SourceError::Read { path: directory.to_owned(), error };
    let mut search =
        Search { root: directory.canonicalize().map_err(failed)?, above: Vec::new(), seen: 0, found: Vec::new() };
    search.folder(directory)?;
    let mut paths = search.found;
    paths.sort();
    if !paths.iter().any(|path| is_resources(path)) {
        return Err(SourceError::Empty(directory.to_owned()));
    }
    let mut left = LARGEST;
    paths.into_iter().map(|path| read_file(path, &mut left)).collect()
}

/// A walk through a directory.
struct Search {
    /// The directory, without links.
    root: PathBuf,
    /// The folders that lead to the current one, without links.
    above: Vec<PathBuf>,
    /// How many entries were looked at.
    seen: usize,
    found: Vec<PathBuf>,
}

impl Search {
    fn folder(&mut self, path: &Path) -> Result<(), SourceError> {
        let failed = |error| SourceError::Read { path: path.to_owned(), error };
        let real = path.canonicalize().map_err(failed)?;
        if self.above.contains(&real) {
            return Err(SourceError::Loop(path.to_owned()));
        }
        if self.above.len() > DEEPEST {
            return Err(SourceError::Nested(path.to_owned()));
        }
        self.above.push(real);
        for entry in fs::read_dir(path).map_err(failed)? {
            self.entry(entry.map_err(failed)?.path())?;
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, path: PathBuf) -> Result<(), SourceError> {
        self.seen = self.seen.saturating_add(1);
        if self.seen > MOST_ENTRIES {
            return Err(SourceError::TooMany(path));
        }
        if is_hidden(&path) {
            return Ok(());
        }
        let wanted = is_read(&path);
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // It leads nowhere, or in a circle, and has no name that would be read.
            Err(_) if !wanted => return Ok(()),
            Err(error) => return Err(SourceError::Read { path, error }),
        };
        if !metadata.is_dir() && !wanted {
            return Ok(());
        }
        self.stays_inside(&path)?;
        if metadata.is_dir() {
            return self.folder(&path);
        }
        self.found.push(path);
        Ok(())
    }

    /// A link may lead anywhere inside the directory, as those of mounted volumes do. What is outside was not handed over.
    fn stays_inside(&self, path: &Path) -> Result<(), SourceError> {
        let failed = |error| SourceError::Read { path: path.to_owned(), error };
        if !fs::symlink_metadata(path).map_err(failed)?.is_symlink() {
            return Ok(());
        }
        let target = path.canonicalize().map_err(failed)?;
        if target.starts_with(&self.root) {
            Ok(())
        } else {
            Err(SourceError::Outside { path: path.to_owned(), target })
        }
    }
}

fn is_resources(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Editors and mounted volumes keep their own affairs in hidden files.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn read_file(path: PathBuf, left: &mut u64) -> Result<File, SourceError> {
    let bytes = match regular_file::read(&path, *left) {
        Ok(bytes) => bytes,
        Err(error) => return Err(SourceError::Read { path, error }),
    };
    if bytes.is_empty() {
        return Err(SourceError::EmptyFile(path));
    }
    *left = left.saturating_sub(bytes.len() as u64);
    Ok(File { name: path.display().to_string(), bytes })
}

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
        let failed = |error| SourceError::Watch { path: directory.to_owned(), error };
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
            let files = task::spawn_blocking(move || read(&path))
                .await
                .unwrap_or_else(|error| Err(SourceError::Read { path: failed, error: io::Error::other(error) }));
            let is_stale = self.seen.has_changed().unwrap_or(false);
            if !is_stale || begin.elapsed() > LONGEST || !self.changed().await {
                return files;
            }
        }
    }
}

/// Whether a file of this name is read.
fn is_read(path: &Path) -> bool {
    !is_hidden(path) && (is_resources(path) || is_attachment(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn check(directory: &Path, expect: &str) {
        match read(directory) {
            Ok(files) => {
                let names: Vec<_> = files.iter().map(|file| file.name.rsplit('/').next().unwrap_or_default()).collect();
                assert_eq!(names.join(" "), expect);
            }
            Err(error) => assert!(!expect.is_empty() && error.to_string().contains(expect), "{error}"),
        }
    }

    #[test]
    fn reads_a_mounted_volume() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("..2026_01")).unwrap();
        fs::write(at("..2026_01/a.yaml"), "kind: A").unwrap();
        symlink("..2026_01", at("..data")).unwrap();
        symlink("..data/a.yaml", at("a.yaml")).unwrap();
        check(directory.path(), "a.yaml");
        // The directory itself may be a link.
        let beside = tempfile::tempdir().unwrap();
        symlink(directory.path(), beside.path().join("policies")).unwrap();
        check(&beside.path().join("policies"), "a.yaml");
    }

    #[test]
    fn follows_no_link_in_a_circle_or_out_of_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a.yaml"), "kind: A").unwrap();
        fs::create_dir_all(at("x/y")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        check(directory.path(), "a.yaml");
        symlink("../..", at("x/y/up")).unwrap();
        check(directory.path(), "up: the link leads to a folder that it is in");
        fs::remove_file(at("x/y/up")).unwrap();
        symlink("self.yaml", at("self.yaml")).unwrap();
        check(directory.path(), "self.yaml: Too many levels of symbolic links");
        fs::remove_file(at("self.yaml")).unwrap();
        symlink("/etc/hostname", at("b.yaml")).unwrap();
        check(directory.path(), "b.yaml: the link leads out of the directory, to /etc/hostname");
        fs::remove_file(at("b.yaml")).unwrap();
        symlink("/", at("root")).unwrap();
        check(directory.path(), "root: the link leads out of the directory, to /: ");
        fs::remove_file(at("root")).unwrap();
        symlink("/dev/zero", at("zero.yaml")).unwrap();
        check(directory.path(), "zero.yaml: the link leads out of the directory, to /dev/zero");
    }

    #[test]
    fn reads_regular_files_of_bounded_size_alone() {
        let error = |path: &str, most| regular_file::read(Path::new(path), most).unwrap_err().to_string();
        assert_eq!(error("/dev/zero", 10), "not a regular file: only regular files are read");
        assert_eq!(error("/dev", 10), "not a regular file: only regular files are read");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        fs::write(&file, "12345").unwrap();
        assert_eq!(regular_file::read(&file, 5).unwrap(), b"12345");
        assert_eq!(error(file.to_str().unwrap(), 4), "larger than 4 bytes: no more are read");
    }

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
