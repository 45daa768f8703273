//! Owns the documents that `postern` writes: asks it for each and puts it in its place.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::paths::Paths;
use crate::run::{output, say};
use crate::setup::{build, install_make};

/// The pages that `postern` writes.
const PAGES: [&str; 4] = ["policies", "resources", "expressions", "metrics"];

/// Writes the pages into docs/.
pub(crate) fn docs(paths: &Paths) -> Result<ExitCode> {
    install_make()?;
    build(paths)?;
    for name in PAGES {
        let page = output(Command::new(paths.postern()).args(["reference", name]))?;
        let path = paths.root.join("docs").join(name).with_extension("md");
        fs::write(&path, format!("{page}\n")).with_context(|| format!("cannot write {}", path.display()))?;
        say(format_args!("written: {}", paths.shown(&path)));
    }
    Ok(ExitCode::SUCCESS)
}
