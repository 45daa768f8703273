//! Owns the search for Prometheus and its `promtool`. Tests hold `/metrics` to what they read.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::apt;
use crate::paths::Paths;
use crate::run::{find_on_path, is_executable, step};

/// The environment variable that names the directory of both programs for the tests. If it is set, nothing is unpacked.
pub(crate) const VARIABLE: &str = "POSTERN_PROMETHEUS";

/// The directory that both programs are in.
pub(crate) fn directory(paths: &Paths) -> Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let directory = std::path::absolute(path)?;
        let shown = directory.display();
        ensure!(has_both(&directory), "`{VARIABLE}` names no directory with `prometheus` and `promtool`: `{shown}`");
        return Ok(directory);
    }
    let found = find_on_path("promtool").and_then(|promtool| Some(promtool.parent()?.to_owned()));
    if let Some(directory) = found.filter(|directory| has_both(directory)) {
        return Ok(std::path::absolute(directory)?);
    }
    unpack(paths).with_context(|| {
        format!(
            "there is no Prometheus, and none could be unpacked from Debian's package; put `prometheus` and `promtool` on PATH, \
             or set `{VARIABLE}` to the directory of both"
        )
    })
}

/// Unpacks Debian's package under target/, once.
fn unpack(paths: &Paths) -> Result<PathBuf> {
    fs::create_dir_all(&paths.target)?;
    let whole = paths.target.join("prometheus");
    // Two runs at once: the second waits, and finds the first one's work.
    let lock = File::create(whole.with_added_extension("lock"))?;
    lock.lock()?;
    let programs = whole.join("usr/bin");
    if !has_both(&programs) {
        let part = whole.with_added_extension("part");
        for leftover in [&whole, &part].into_iter().filter(|directory| directory.exists()) {
            fs::remove_dir_all(leftover)?;
        }
        fs::create_dir(&part)?;
        step(&format!("unpacking Prometheus into {}", paths.shown(&whole)), || apt::unpack("prometheus", &part))?;
        fs::rename(&part, &whole)?;
        ensure!(has_both(&programs), "Debian's package has no `usr/bin/prometheus` and `usr/bin/promtool`");
    }
    Ok(programs)
}

fn has_both(directory: &Path) -> bool {
    ["prometheus", "promtool"].iter().all(|program| is_executable(&directory.join(program)))
}
