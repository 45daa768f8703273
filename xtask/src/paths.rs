//! Owns where things are: the workspace, its target directory and what xtask puts there. Touches no file.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The places all tasks share.
pub(crate) struct Paths {
    /// The root of the workspace.
    pub(crate) root: PathBuf,
    /// The target directory of every native build.
    pub(crate) target: PathBuf,
}

impl Paths {
    /// Finds the workspace from this crate's own place, and the target directory as cargo does.
    pub(crate) fn find() -> Result<Self> {
        let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&package).parent().context("the xtask crate is not inside a workspace")?.to_owned();
        let target = match env::var_os("CARGO_TARGET_DIR").filter(|directory| !directory.is_empty()) {
            Some(directory) => std::path::absolute(directory).context("cannot resolve `CARGO_TARGET_DIR`")?,
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// The target directory of the wasm32 build, which another compiler may fill.
    pub(crate) fn wasm_target(&self) -> PathBuf {
        self.target.join("wasm")
    }

    /// The target directory of the fuzz targets, with their corpora, logs and findings.
    pub(crate) fn fuzz(&self) -> PathBuf {
        self.target.join("fuzz")
    }

    /// Where mutants are built: a copy of the source, and a target directory of its own.
    pub(crate) fn mutants(&self) -> PathBuf {
        self.target.join("mutants")
    }

    /// Where the filter is built once more, from a copy of the source, to compare the two.
    pub(crate) fn reproducible(&self) -> PathBuf {
        self.target.join("reproducible")
    }

    /// The filter that tests, demo and users load.
    pub(crate) fn filter(&self) -> PathBuf {
        self.target.join("filter").join("postern_filter.wasm")
    }

    /// The filter as it was before the current format of plans, for tests of upgrades.
    pub(crate) fn previous_filter(&self) -> PathBuf {
        self.target.join("filter").join("previous_filter.wasm")
    }

    /// Where every control plane that is started from here keeps the compiled filter.
    pub(crate) fn cache(&self) -> PathBuf {
        self.target.join("cache")
    }

    /// The key of the compiled filters, outside of their cache.
    pub(crate) fn cache_key(&self) -> PathBuf {
        self.target.join("cache-key/module.key")
    }

    /// The control plane's program.
    pub(crate) fn postern(&self) -> PathBuf {
        self.target.join("debug").join("postern")
    }

    /// The demo's program.
    pub(crate) fn demo(&self) -> PathBuf {
        self.target.join("debug").join("postern-demo")
    }

    /// The path as people read it: relative to the workspace when inside it.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}
