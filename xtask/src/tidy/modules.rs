//! The modules of one crate: found from its root by `mod`, each with what it imports and names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::source::{Module as Declared, Source};

/// Where a module stands: the names from the crate's root down.
pub(crate) type ModulePath = Vec<String>;

/// A crate by its modules.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    /// Those that are compiled outside of tests too.
    pub(crate) modules: BTreeMap<ModulePath, Module>,
    /// The files of all, those of tests included.
    pub(crate) files: Vec<PathBuf>,
}

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    pub(crate) source: Source,
}

/// Reads the text of a file; `None` if there is none.
pub(crate) type Files<'a> = &'a dyn Fn(&Path) -> Option<String>;

impl Crate {
    /// Reads a crate from its root.
    pub(crate) fn read(root: &Path, files: Files<'_>) -> Result<Self> {
        let mut found = Self::default();
        let directory = root.parent().unwrap_or(root).to_owned();
        let text = files(root).with_context(|| format!("cannot read `{}`", root.display()))?;
        found.add(Vec::new(), root, &directory, Source::read(&text), files, false)?;
        Ok(found)
    }

    /// Adds a module and those below it. `directory` has the files of its children.
    fn add(
        &mut self,
        place: ModulePath,
        file: &Path,
        directory: &Path,
        source: Result<Source>,
        files: Files<'_>,
        test: bool,
    ) -> Result<()> {
        let mut source = source.with_context(|| format!("cannot read `{}`", file.display()))?;
        self.files.push(file.to_owned());
        for declared in std::mem::take(&mut source.modules) {
            let place = [place.as_slice(), std::slice::from_ref(&declared.name)].concat();
            let test = test || declared.test;
            match declared.body {
                Some(body) => self.add(place, file, &directory.join(&declared.name), Ok(body), files, test)?,
                None => {
                    let (file, text) = find(&declared, file, directory, files)?;
                    let below = directory_of(&file, directory, &declared);
                    self.add(place, &file, &below, Source::read(&text), files, test)?;
                }
            }
        }
        if !test {
            self.modules.insert(place, Module { file: file.to_owned(), source });
        }
        Ok(())
    }
}

/// The file of a module, and its text.
fn find(declared: &Declared, parent: &Path, directory: &Path, files: Files<'_>) -> Result<(PathBuf, String)> {
    let name = &declared.name;
    let candidates = match &declared.path {
        Some(path) => vec![parent.parent().unwrap_or(parent).join(path)],
        None => vec![directory.join(name).with_extension("rs"), directory.join(name).join("mod.rs")],
    };
    let found = candidates.into_iter().find_map(|file| files(&file).map(|text| (file, text)));
    found.with_context(|| format!("`{}` declares module `{name}`, which has no file", parent.display()))
}

/// Where the children of a module in a file of its own are.
fn directory_of(file: &Path, directory: &Path, declared: &Declared) -> PathBuf {
    let own = file.parent().unwrap_or(file);
    match &declared.path {
        Some(_) => own.to_owned(),
        None if file.ends_with("mod.rs") => own.to_owned(),
        None => directory.join(&declared.name),
    }
}
