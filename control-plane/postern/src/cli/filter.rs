//! The filter that commands load plans in: where its code is found, and where its compiled form is cached.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use anyhow::Context;
use clap::Args;
use postern_compile::{
    gate::{Gate, ModuleCache, Origin},
    snapshot::FilterCode,
    wasm::{Filter, Limits},
};

/// The name of the file with the key of compiled filters.
const KEY: &str = "module.key";

/// Which filter, and which cache.
#[derive(Debug, Args)]
pub(super) struct FilterOptions {
    /// The filter's code; default: `postern_filter.wasm` beside this program or in `filter/` next to its folder
    #[arg(long, value_name = "FILE", env = "POSTERN_FILTER")]
    filter: Option<PathBuf>,
    /// Where the compiled filter is kept for the next start; default: the state directory if there is one, else `postern` in
    /// the user's cache directory
    #[arg(long, value_name = "DIR", env = "POSTERN_CACHE")]
    cache: Option<PathBuf>,
    /// The file with the key that compiled filters are sealed with, made if there is none; default: `module.key` in the state
    /// directory if there is one, else `postern/module.key` in the user's directory for state. Those who share a cache need the
    /// same
    #[arg(long, value_name = "FILE", env = "POSTERN_CACHE_KEY")]
    cache_key: Option<PathBuf>,
}

impl FilterOptions {
    /// Reads the filter. Fails if none is named and none is found.
    pub(super) fn read(&self, state: Option<&Path>, on_nodes: Option<PathBuf>) -> anyhow::Result<FilterCode> {
        let code = self.find()?.context(
            "the filter's code was not found: build it with `cargo xtask build-filter`, or name it with `--filter`",
        )?;
        self.gated(state, FilterCode::new(code, on_nodes))
    }

    /// Adds builds that some nodes have in place of this one.
    pub(super) fn beside(code: FilterCode, others: &[PathBuf]) -> anyhow::Result<FilterCode> {
        let add = |code: FilterCode, path: &PathBuf| {
            let beside = code.beside(read(path)?);
            beside.with_context(|| format!("the filter {} cannot be run", path.display()))
        };
        others.iter().try_fold(code, add)
    }

    /// Like [`Self::read`], but `None` if no filter is named and none is found.
    pub(super) fn read_if_there(&self) -> anyhow::Result<Option<FilterCode>> {
        self.find()?.map(|code| self.gated(None, FilterCode::new(code, None))).transpose()
    }

    fn find(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(path) = self.filter.clone().or_else(find_filter) else { return Ok(None) };
        read(&path).map(Some)
    }

    fn gated(&self, state: Option<&Path>, code: FilterCode) -> anyhow::Result<FilterCode> {
        let begin = Instant::now();
        let modules = self.modules(state);
        let (filter, origin) = match &modules {
            Some(modules) => modules.filter(code.bytes(), code.digest()),
            None => Filter::compile(code.bytes()).map(|filter| (filter, Origin::Compiled)),
        }
        .context("the filter cannot be run")?;
        let (milliseconds, cached) = (begin.elapsed().as_millis(), origin == Origin::Cached);
        tracing::info!(filter = code.digest().short(), cached, milliseconds, "filter ready for the gate");
        Ok(code.gated(Gate::of_cached(filter, Limits::default(), modules.map(Arc::new))))
    }

    /// The cache of compiled filters, if there is a place for one.
    fn modules(&self, state: Option<&Path>) -> Option<ModuleCache> {
        let home = self.cache.clone().or_else(|| state.map(Path::to_owned)).or_else(user_cache);
        let key = self.cache_key.clone().or_else(|| Some(state.map(Path::to_owned).or_else(user_state)?.join(KEY)));
        match home.zip(key).map(|(home, key)| ModuleCache::open(&home, &key)) {
            Some(Ok(cache)) => return Some(cache),
            Some(Err(error)) => tracing::warn!("{error}"),
            None => tracing::debug!("no directory for compiled filters"),
        }
        None
    }
}

/// Reads a filter's code.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read the filter {}", path.display()))?;
    anyhow::ensure!(bytes.starts_with(b"\0asm"), "{} is not a WebAssembly module", path.display());
    Ok(bytes)
}

/// The filter beside this program, as packages install it, or where a build of this repository puts it.
fn find_filter() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let beside = folder.join("postern_filter.wasm");
    let built = folder.parent()?.join("filter/postern_filter.wasm");
    [beside, built].into_iter().find(|path| path.is_file())
}

/// `$XDG_CACHE_HOME/postern` or `~/.cache/postern`; `None` if neither variable has an absolute path.
fn user_cache() -> Option<PathBuf> {
    user_directory("XDG_CACHE_HOME", ".cache")
}

/// `$XDG_STATE_HOME/postern` or `~/.local/state/postern`; `None` if neither variable has an absolute path.
fn user_state() -> Option<PathBuf> {
    user_directory("XDG_STATE_HOME", ".local/state")
}

fn user_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let directory = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(directory(variable).or_else(|| Some(directory("HOME")?.join(below_home)))?.join("postern"))
}
