//! `cargo xtask tidy`: checks what no compiler does. It builds nothing, and reports everything at once.
//!
//! Two checks of the same kind are tests, since they need the compiled code: every policy is built by the fuzz
//! generator (tests/fuzz), and every documented default is the real one (control-plane/compile/tests).

mod cycles;
mod documents;
mod files;
mod finding;
mod imports;
mod known;
mod modules;
mod readme;
mod resolve;
mod source;
mod specifications;
mod test_names;
mod tree;
mod workspace;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use self::finding::Finding;
use self::modules::Crate;
use self::tree::Tree;
use self::workspace::Packages;
use crate::paths::Paths;
use crate::run::{cargo, output, say};
use crate::tally::Counts;

/// The documents whose paths are checked, beside those in docs/.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Prints everything that is not tidy. Fails if there is anything.
pub(crate) fn tidy(paths: &Paths) -> Result<ExitCode> {
    let counts = check(paths)?;
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Like [`tidy`], as one test of the test run.
pub(crate) fn check(paths: &Paths) -> Result<Counts> {
    let mut findings = findings(paths)?;
    findings.sort();
    findings.iter().for_each(say);
    match findings.len() {
        0 => say("tidy: nothing found"),
        1 => say("tidy: 1 finding"),
        many => say(format_args!("tidy: {many} findings")),
    }
    Ok(Counts { passed: u64::from(findings.is_empty()), failed: findings.len() as u64, skipped: 0 })
}

fn findings(paths: &Paths) -> Result<Vec<Finding>> {
    let root = &paths.root;
    let text = |file: &Path| fs::read_to_string(root.join(file)).unwrap_or_default();
    let tree = Tree::walk(root)?;
    let metadata = output(cargo(paths).args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let packages = workspace::read(&metadata)?;
    let mut findings = workspace::check(&packages);
    let reached = check_modules(paths, &packages, &mut findings)?;
    findings.extend(files::orphans(&tree, &reached));
    findings.extend(files::unused_data(&tree, &text));
    findings.extend(files::too_long(&tree, &text));
    for document in tree.with_extension("md").filter(|file| is_document(file)) {
        findings.extend(documents::check(&document.to_string_lossy(), &text(document), &tree));
    }
    findings.extend(specifications::check(&text(Path::new(specifications::PAGE)), &tree, &text));
    let is_test = |file: &&Path| {
        file.starts_with("tests/e2e")
            || (file.starts_with("control-plane") && file.components().any(|part| part.as_os_str() == "tests"))
    };
    let tests: Vec<_> = tree.with_extension("rs").filter(is_test).map(|file| (file, text(file))).collect();
    findings.extend(readme::check(&text(Path::new("README.md")), &tests));
    Ok(findings)
}

fn is_document(file: &Path) -> bool {
    file.starts_with("docs") || DOCUMENTS.iter().any(|name| file == Path::new(name))
}

/// Looks for cycles in every crate; the files that the crates consist of.
fn check_modules(paths: &Paths, packages: &Packages, findings: &mut Vec<Finding>) -> Result<BTreeSet<PathBuf>> {
    let mut reached = BTreeSet::new();
    let relative = |path: &Path| path.strip_prefix(&paths.root).unwrap_or(path).to_owned();
    let shown = |path: &Path| relative(path).display().to_string();
    for root in packages.values().flat_map(|package| &package.roots) {
        let found = Crate::read(root, &|file| fs::read_to_string(file).ok())?;
        findings.extend(cycles::check(&found, &shown(root), known::KNOWN, &shown));
        reached.extend(found.files.iter().map(|file| relative(file)));
    }
    findings.extend(cycles::check_roots(known::KNOWN, |root| reached.contains(Path::new(root))));
    Ok(reached)
}
