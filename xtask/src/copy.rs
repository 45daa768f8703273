//! Owns copies of the source: what is to be built elsewhere, changed or not. Builds nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::paths::Paths;
use crate::run::output;

/// Copies the files that git knows, as they are now, to a directory, and removes what was there before.
pub(crate) fn sources(paths: &Paths, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let files = output(Command::new("git").args(["ls-files", "-z"]).current_dir(&paths.root))?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let from = paths.root.join(file);
        // What is deleted and not yet committed is not copied.
        if from.is_file() {
            let to = to.join(file);
            fs::create_dir_all(to.parent().context("a file is in no directory")?)?;
            fs::copy(&from, &to).with_context(|| format!("cannot copy `{file}`"))?;
        }
    }
    Ok(())
}
