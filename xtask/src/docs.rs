//! Owns the documents that are written by programs: asks each program for its document and puts it in its place.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::paths::Paths;
use crate::run::{cargo, output, say};

/// The pages that `postern` writes.
const PAGES: [&str; 2] = ["policies", "resources"];

/// Writes the pages into docs/.
pub(crate) fn docs(paths: &Paths) -> Result<ExitCode> {
    for name in PAGES {
        let page = output(cargo(paths).args(["run", "--quiet", "--package", "postern", "--", "reference", name]))?;
        let path = paths.root.join("docs").join(name).with_extension("md");
        fs::write(&path, format!("{page}\n")).with_context(|| format!("cannot write {}", path.display()))?;
        say(format_args!("written: {}", paths.shown(&path)));
    }
    Ok(ExitCode::SUCCESS)
}
