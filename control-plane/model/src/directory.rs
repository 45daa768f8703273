//! Reads a directory of resources: its YAML files, and the certificates and keys next to them. Watching it for changes
//! is the module `source` of the crate `postern`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use postern_base::regular_file;

use crate::{File, attachment::is_attachment};

/// The largest depth of nested folders.
const DEEPEST: usize = 16;
/// The largest number of files and folders in a directory, and of bytes in all files that are read: the limits of a
/// bundle.
const MOST_ENTRIES: usize = 100_000;
const LARGEST: u64 = 64 << 20;

/// Why a directory was not read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// An error of the file system.
    #[error("{}: {error}", path.display())]
    Read {
        /// The path that could not be read.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// No files of resources. An empty directory is more likely a mistake than a wish to serve nothing.
    #[error("{}: no `.yaml` or `.yml` files in this directory{}", .0.display(), if ignored(.0).is_empty() { "" } else { ": its `.json` files are ignored" })]
    Empty(PathBuf),
    /// A file of zero bytes, which is most likely being written.
    #[error("{}: the file is empty: is it being written?", .0.display())]
    EmptyFile(PathBuf),
    /// Folders are nested deeper than the limit.
    #[error("{}: folders are nested too deep: at most {DEEPEST} levels are read", .0.display())]
    Nested(PathBuf),
    /// A symbolic link leads to a folder that contains it.
    #[error("{}: the link leads to a folder that it is in", .0.display())]
    Loop(PathBuf),
    /// A symbolic link leads out of the directory.
    #[error("{}: the link leads out of the directory, to {}: copy the file, or read the directory that has both", path.display(), target.display())]
    Outside {
        /// The link.
        path: PathBuf,
        /// Its target.
        target: PathBuf,
    },
    /// More entries than the limit.
    #[error("{}: there are more than {MOST_ENTRIES} files and folders", .0.display())]
    TooMany(PathBuf),
}

/// Reads every `.yaml` and `.yml` file in a directory and its subfolders, and the certificates and keys for them,
/// sorted by path. Hidden files are ignored. Symbolic links are followed inside the directory only. The first error
/// ends the reading.
pub fn read(directory: &Path) -> Result<Vec<File>, SourceError> {
    let mut left = LARGEST;
    paths(directory)?.into_iter().map(|path| read_file(path, &mut left)).collect()
}

/// Like [`read`]. The path may also be that of one file of resources; then the certificates and keys in its folder are
/// read, too.
pub fn read_path(path: &Path) -> Result<Vec<File>, SourceError> {
    if !path.is_file() {
        return read(path);
    }
    let mut left = LARGEST;
    let mut files = vec![read_file(path.to_owned(), &mut left)?];
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error| SourceError::Read { path: folder.to_owned(), error };
    for entry in fs::read_dir(folder).map_err(failed)?.take(MOST_ENTRIES) {
        let beside = entry.map_err(failed)?.path();
        if is_attachment(&beside) && beside.is_file() {
            // The file names what is beside it as if both were read from a directory.
            let name =
                path.parent().map_or_else(PathBuf::new, Path::to_owned).join(beside.file_name().unwrap_or_default());
            files.push(read_file(name, &mut left)?);
        }
    }
    Ok(files)
}

/// The `.json` files of a directory that look like resources. They are not read, since a directory can have JSON files
/// for other purposes. Empty if the directory cannot be read.
pub fn ignored(directory: &Path) -> Vec<PathBuf> {
    const MARK: &[u8] = b"postern/v1";
    const MOST_READ: u64 = 1 << 20;
    let looks_like_one = |path: &PathBuf| {
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let read = || regular_file::read(path, MOST_READ).unwrap_or_default();
        is_json && !is_hidden(path) && read().windows(MARK.len()).any(|part| part == MARK)
    };
    let mut found: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .take(MOST_ENTRIES)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(looks_like_one)
        .collect();
    found.sort();
    found
}

/// The paths of the files to read, sorted.
fn paths(directory: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let failed = |error| SourceError::Read { path: directory.to_owned(), error };
    let mut search =
        Search { root: directory.canonicalize().map_err(failed)?, above: Vec::new(), seen: 0, found: Vec::new() };
    search.folder(directory)?;
    let mut paths = search.found;
    paths.sort();
    if !paths.iter().any(|path| is_resources(path)) {
        return Err(SourceError::Empty(directory.to_owned()));
    }
    Ok(paths)
}

/// Like [`read`], without the files that cannot be read, and with why each of them cannot. Fails only if the directory
/// itself, or a folder in it, cannot be read.
pub fn read_what_can_be(directory: &Path) -> Result<(Vec<File>, Vec<SourceError>), SourceError> {
    let (mut files, mut errors, mut left) = (Vec::new(), Vec::new(), LARGEST);
    for path in paths(directory)? {
        match read_file(path, &mut left) {
            Ok(file) => files.push(file),
            Err(error) => errors.push(error),
        }
    }
    Ok((files, errors))
}

/// A walk through a directory that collects the paths to read.
struct Search {
    /// The canonical path of the directory.
    root: PathBuf,
    /// The canonical paths of the folders from the root to the current one.
    above: Vec<PathBuf>,
    /// The number of entries so far.
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
            // A broken link whose name would not be read anyway.
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

    /// An error if the path is a link out of the directory. Links inside are allowed, since mounted volumes use them.
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

/// Whether a name starts with a dot, as internal files of editors and mounted volumes do.
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

/// Whether [`read`] reads a file with this name.
pub fn is_read(path: &Path) -> bool {
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
}
