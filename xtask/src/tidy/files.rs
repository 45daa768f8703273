//! Finds files that nothing uses, and files that are too long.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::tree::Tree;

/// The most lines of a source: those of the longest one so far. The number may only fall.
const LONGEST: usize = 569;
/// The most lines of a test's source, which is a list of cases.
const LONGEST_TEST: usize = 737;
/// Directories that a runner lists, so that no file in them can be forgotten.
const LISTED: [&str; 2] = ["tests/cases", "tests/cases/routes"];

/// Sources that no crate reaches by `mod`.
pub(crate) fn orphans(tree: &Tree, reached: &BTreeSet<PathBuf>) -> Vec<Finding> {
    let orphans = tree.with_extension("rs").filter(|file| !reached.contains(*file));
    let message = || "no crate reaches this file by `mod`".to_owned();
    orphans.map(|file| Finding::new(&file.to_string_lossy(), 0, message())).collect()
}

/// Data of tests, and bootstraps, that no source names.
pub(crate) fn unused_data(tree: &Tree, text: &dyn Fn(&Path) -> String) -> Vec<Finding> {
    let is_data = |file: &&Path| file.starts_with("tests") || file.starts_with("envoy-config");
    let data = ["yaml", "json", "pem"].into_iter().flat_map(|extension| tree.with_extension(extension));
    let data = data.filter(is_data).filter(|file| !is_listed(file));
    let programs = || ["rs", "py"].into_iter().flat_map(|extension| tree.with_extension(extension));
    let names = |program: &Path, name: &str| text(program).contains(name);
    let is_named = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        programs().any(|program| program != file && names(program, &name))
    };
    let message = || "no test names this file".to_owned();
    data.filter(|file| !is_named(file)).map(|file| Finding::new(&file.to_string_lossy(), 0, message())).collect()
}

fn is_listed(file: &Path) -> bool {
    let directory = file.parent().unwrap_or(file);
    let is_case = file.extension().is_some_and(|extension| extension == "yaml");
    is_case && LISTED.iter().any(|listed| directory == Path::new(listed))
}

/// Sources that are longer than the longest so far.
pub(crate) fn too_long(tree: &Tree, text: &dyn Fn(&Path) -> String) -> Vec<Finding> {
    let lengths = tree.with_extension("rs").map(|file| (file, text(file).lines().count()));
    lengths.filter_map(|(file, lines)| length_finding(file, lines)).collect()
}

fn length_finding(file: &Path, lines: usize) -> Option<Finding> {
    let in_tests = file.components().any(|part| part.as_os_str() == "tests");
    let most = if in_tests { LONGEST_TEST } else { LONGEST };
    let message = || format!("{lines} lines, and no source may have more than {most}: split it");
    (lines > most).then(|| Finding::new(&file.to_string_lossy(), 0, message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn finds_a_source_that_no_crate_reaches() {
        let tree: Tree = ["a/src/lib.rs", "a/src/b.rs", "a/Cargo.toml"].into_iter().collect();
        let reached = |files: &[&str]| files.iter().map(PathBuf::from).collect();
        assert!(orphans(&tree, &reached(&["a/src/lib.rs", "a/src/b.rs"])).is_empty());
        let findings = orphans(&tree, &reached(&["a/src/lib.rs"]));
        assert_eq!(shown(&findings), ["a/src/b.rs: no crate reaches this file by `mod`"]);
    }

    #[test]
    fn finds_data_that_no_test_names() {
        let tree: Tree = ["tests/a.rs", "tests/b.json", "tests/c.json", "tests/cases/d.yaml"].into_iter().collect();
        let findings = unused_data(&tree, &|_| "read(\"b.json\")".to_owned());
        assert_eq!(shown(&findings), ["tests/c.json: no test names this file"]);
    }

    #[test]
    fn bounds_the_length_of_sources() {
        assert!(length_finding(Path::new("a/src/b.rs"), LONGEST).is_none());
        assert!(length_finding(Path::new("a/src/b.rs"), LONGEST + 1).is_some());
        assert!(length_finding(Path::new("a/tests/b.rs"), LONGEST + 1).is_none());
    }
}
