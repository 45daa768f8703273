//! Finds paths that documents name and that do not exist: relative links, and text in backticks that can only be a path
//! of this repository. What users may have on their own disks (`policies/`, `request.yaml`) is ignored.

use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::tree::Tree;

/// Extensions of files that belong to this repository wherever a document says they are.
const OWN: [&str; 3] = ["rs", "proto", "toml"];

/// The paths that a document names and the tree does not have.
pub(crate) fn check(document: &str, text: &str, tree: &Tree) -> Vec<Finding> {
    let (mut findings, mut fenced, mut section) = (Vec::new(), false, None);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        if line.starts_with('#') {
            section = crate_section(line);
        }
        let links = links(line).filter(|link| !exists_beside(document, link, tree)).map(str::to_owned);
        let paths = quoted(line).filter(|(path, after)| is_missing(path, after, section, tree));
        let missing = links.chain(paths.map(|(path, _)| path.to_owned()));
        let message = |path| format!("`{path}` does not exist");
        findings.extend(missing.map(|path| Finding::new(document, index + 1, message(path))));
    }
    findings
}

/// The crate whose modules a section of the code map lists: "### `engine/`".
fn crate_section(line: &str) -> Option<&str> {
    line.strip_prefix("### `")?.strip_suffix("/`")
}

/// Each text in backticks, with what follows it.
fn quoted(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once('`')?;
        let (quoted, after) = after.split_once('`')?;
        rest = after;
        Some((quoted, after))
    })
}

fn is_missing(path: &str, after: &str, section: Option<&str>, tree: &Tree) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-*".contains(&byte);
    if path.is_empty() || !path.bytes().all(plain) || path.starts_with(['/', '.', '*']) || path.starts_with("target/") {
        return false;
    }
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    if path.contains('/') && tree.has_at_root(first) {
        return !has_from_root(path, tree);
    }
    if let Some(module) = section.filter(|_| is_module(path) && (!rest.is_empty() || after.starts_with(':'))) {
        return !has_module(Path::new(module), path, tree);
    }
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| OWN.contains(&extension)) && !tree.has_ending(Path::new(path))
}

/// A `*` stands for any part of a file's name.
fn has_from_root(path: &str, tree: &Tree) -> bool {
    match path.split_once('*') {
        None => {
            let with_extension = PathBuf::from(path).with_extension("rs");
            tree.has(Path::new(path)) || tree.has(&with_extension) || has_source(path, tree)
        }
        Some((start, end)) => tree.files().any(|file| {
            let file = file.to_string_lossy();
            file.starts_with(start) && file.ends_with(end)
        }),
    }
}

/// `filter/callbacks` stands for `filter/src/callbacks.rs`.
fn has_source(path: &str, tree: &Tree) -> bool {
    let Some((package, module)) = path.split_once('/') else { return false };
    has_module(Path::new(package), module, tree)
}

fn is_module(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/_.".contains(&byte))
}

/// Whether a package has a module, or a folder of them, whose path ends so.
fn has_module(package: &Path, module: &str, tree: &Tree) -> bool {
    let module = module.trim_end_matches('/');
    let file = if module.ends_with(".rs") { module.to_owned() } else { format!("{module}.rs") };
    let mut paths = tree.files().filter(|path| path.starts_with(package)).flat_map(Path::ancestors);
    paths.any(|path| path.ends_with(&file) || path.ends_with(module))
}

/// The targets of links that lead to files.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_file =
        |target: &&str| !target.contains("://") && !target.starts_with(['#', '<']) && !target.starts_with("mailto:");
    targets.filter(is_file).filter_map(|target| target.split('#').next())
}

fn exists_beside(document: &str, link: &str, tree: &Tree) -> bool {
    let mut path = Path::new(document).parent().map(Path::to_owned).unwrap_or_default();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            path.pop();
        } else {
            path.push(part);
        }
    }
    tree.has(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let files = ["README.md", "docs/a.md", "engine/src/plan.rs", "engine/src/cel/mod.rs", "tests/cases/a.yaml"];
        let findings = check("docs/a.md", text, &files.into_iter().collect());
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn finds_a_link_that_leads_nowhere() {
        assert!(missing("[a](a.md) [r](../README.md#x) [w](https://a.test/b.md) [s](#s)").is_empty());
        assert_eq!(missing("text\n[b](b.md)"), ["docs/a.md:2: `b.md` does not exist"]);
    }

    #[test]
    fn finds_a_path_that_is_not_there() {
        assert!(
            missing("`engine/src/plan.rs`, `engine/plan`, `tests/cases/*.yaml`, `cel/mod.rs`, `engine/`").is_empty()
        );
        for path in ["engine/src/gone.rs", "gone.rs", "tests/cases/*.json", "engine/src/gone/", "docs/gone.md"] {
            assert_eq!(missing(&format!("see `{path}`")).len(), 1, "{path}");
        }
    }

    #[test]
    fn leaves_alone_what_is_no_path_of_ours() {
        let text = "`policies/`, `application/json`, `/healthz`, `10.0.0.0/8`, `request.yaml`, `a::b`, `target/x/y.rs`";
        assert!(missing(text).is_empty());
        assert!(missing("```\n`engine/gone.rs`\n```").is_empty());
    }

    #[test]
    fn finds_a_module_that_the_code_map_has_and_the_crate_has_not() {
        assert!(missing("### `engine/`\n- `plan`: a. `cel/`: b. With `words`, too.").is_empty());
        assert_eq!(missing("### `engine/`\n- `gone`: a."), ["docs/a.md:2: `gone` does not exist"]);
        assert_eq!(missing("### `engine/`\n- `cel/gone` does it.").len(), 1);
    }
}
