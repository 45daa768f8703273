//! The files of the workspace, without what is built and what is hidden.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// All files of the workspace, relative to its root, in order.
#[derive(Debug, Default)]
pub(crate) struct Tree(Vec<PathBuf>);

impl Tree {
    /// Finds all files below a root.
    pub(crate) fn walk(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        walk(root, Path::new(""), &mut files)?;
        files.sort();
        Ok(Self(files))
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// The files with this extension.
    pub(crate) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &Path> {
        self.files().filter(move |file| file.extension().is_some_and(|found| found == extension))
    }

    /// Whether there is a file or directory of this path.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.files().any(|file| file.starts_with(path))
    }

    /// Whether there is a file or directory whose path ends so.
    pub(crate) fn has_ending(&self, end: &Path) -> bool {
        self.files().flat_map(Path::ancestors).any(|path| path.ends_with(end))
    }

    /// Whether the root has an entry of this name.
    pub(crate) fn has_at_root(&self, name: &str) -> bool {
        self.files().any(|file| file.components().next().is_some_and(|first| first.as_os_str() == name))
    }
}

/// A tree of these files, for tests.
#[cfg(test)]
impl<'a> FromIterator<&'a str> for Tree {
    fn from_iter<I: IntoIterator<Item = &'a str>>(files: I) -> Self {
        Self(files.into_iter().map(PathBuf::from).collect())
    }
}

fn walk(root: &Path, directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let path = root.join(directory);
    for entry in fs::read_dir(&path).with_context(|| format!("cannot list `{}`", path.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".") && name != ".ci";
        if hidden || name == "target" || name == "__pycache__" {
            continue;
        }
        let relative = directory.join(&name);
        if entry.file_type()?.is_dir() {
            walk(root, &relative, files)?;
        } else {
            files.push(relative);
        }
    }
    Ok(())
}
