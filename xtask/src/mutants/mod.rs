//! Owns the mutants of the xDS session: puts one fault after the other into a copy of the source, and tells which of them the
//! model test (`control-plane/deliver/tests/xds_model`) finds. The faults are in `list`.

mod list;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use self::list::{MUTANTS, Mutant};
use crate::copy;
use crate::paths::Paths;
use crate::run::{cargo, say, step};
use crate::tally::Counts;

/// Where the session's source is.
const SESSION: &str = "control-plane/deliver/src/xds/session";

/// Tries all mutants, or those whose names contain one of these, and prints a table on stdout.
pub(crate) fn mutants(paths: &Paths, names: &[String]) -> Result<ExitCode> {
    let counts = check(paths, names)?;
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Like [`mutants`]; each mutant is one test, which fails if the mutant survives.
pub(crate) fn check(paths: &Paths, names: &[String]) -> Result<Counts> {
    let chosen = |mutant: &&Mutant| names.is_empty() || names.iter().any(|name| mutant.name.contains(name.as_str()));
    let chosen: Vec<_> = MUTANTS.iter().filter(chosen).collect();
    ensure!(!chosen.is_empty(), "there is no such mutant");
    let source = paths.mutants().join("source");
    copy::sources(paths, &source)?;
    // A replacement that fits nothing is told before anything is built.
    let mutated = chosen.iter().map(|mutant| mutant.apply(&source)).collect::<Result<Vec<_>>>()?;
    let sound = step("the session as it is", || finding(paths, &source))?;
    ensure!(sound.is_none(), "the model test fails without any mutant: {}", sound.unwrap_or_default());

    let mut counts = Counts::default();
    let mut stdout = io::stdout();
    writeln!(stdout, "{:<24}{:<76}caught by", "mutant", "what it breaks")?;
    for (mutant, text) in chosen.into_iter().zip(mutated) {
        let file = source.join(SESSION).join(mutant.file);
        let whole = fs::read(&file)?;
        fs::write(&file, text)?;
        let found = step(mutant.name, || finding(paths, &source));
        fs::write(&file, whole)?;
        let found = found?;
        counts.passed += u64::from(found.is_some());
        counts.failed += u64::from(found.is_none());
        let found = found.unwrap_or_else(|| "NOTHING: it survives".to_owned());
        writeln!(stdout, "{:<24}{:<76}{found}", mutant.name, mutant.breaks)?;
    }
    Ok(counts)
}

impl Mutant {
    /// The text of its file with the fault in it. The text that it replaces must be there, once.
    fn apply(&self, source: &Path) -> Result<String> {
        let file = source.join(SESSION).join(self.file);
        let text = fs::read_to_string(&file).with_context(|| format!("mutant `{}`: {}", self.name, file.display()))?;
        let places = text.matches(self.old).count();
        ensure!(places == 1, "mutant `{}`: its old text occurs {places} times in {SESSION}/{}", self.name, self.file);
        Ok(text.replacen(self.old, self.new, 1))
    }
}

/// Builds the model test of a copy and runs it. Returns the first sequence that fails, if one does.
fn finding(paths: &Paths, source: &Path) -> Result<Option<String>> {
    let test = |arguments: &[&str]| {
        let mut cargo = cargo(paths);
        cargo.current_dir(source).env("CARGO_TARGET_DIR", paths.mutants().join("target"));
        cargo
            .args(["test", "--package", "postern-deliver", "--test", "xds_model"])
            .args(arguments)
            .stdin(Stdio::null());
        cargo.env("RUST_BACKTRACE", "0");
        cargo
    };
    // What does not compile proves nothing.
    let built = test(&["--no-run"]).output()?;
    if !built.status.success() {
        bail!("it does not compile:\n{}", String::from_utf8_lossy(&built.stderr));
    }
    let tested = test(&[]).output()?;
    let told = String::from_utf8_lossy(&tested.stdout).into_owned() + &String::from_utf8_lossy(&tested.stderr);
    let found = told.lines().find(|line| line.contains(", seed "));
    match (tested.status.success(), found) {
        (true, _) => Ok(None),
        (false, Some(line)) => {
            say(line);
            Ok(Some(line.split(':').next().unwrap_or_default().to_owned()))
        }
        (false, None) => bail!("the model test failed without a seed:\n{told}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_fits_the_session_as_it_is() {
        let root = Paths::find().unwrap().root;
        for mutant in MUTANTS {
            let whole = fs::read_to_string(root.join(SESSION).join(mutant.file)).unwrap();
            assert_ne!(mutant.apply(&root).unwrap(), whole, "{}", mutant.name);
        }
    }
}
