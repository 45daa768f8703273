//! The workspace as cargo knows it: its packages, which of them need which, and the roots of their crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::finding::Finding;

/// A package of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Package {
    /// The first file of each of its crates.
    pub(crate) roots: BTreeSet<PathBuf>,
    /// The packages of the workspace that it needs, for tests and build scripts too.
    needs: BTreeSet<String>,
}

/// Packages by name.
pub(crate) type Packages = BTreeMap<String, Package>;

/// Reads what `cargo metadata --no-deps` says.
pub(crate) fn read(metadata: &str) -> Result<Packages> {
    let metadata: Value = serde_json::from_str(metadata).context("`cargo metadata` is not JSON")?;
    let packages = list(&metadata, "packages");
    Ok(packages.iter().filter_map(|package| Some((text(package, "name")?.to_owned(), read_package(package)))).collect())
}

fn read_package(package: &Value) -> Package {
    let roots =
        list(package, "targets").iter().filter_map(|target| text(target, "src_path")).map(PathBuf::from).collect();
    let local = list(package, "dependencies").iter().filter(|dependency| text(dependency, "path").is_some());
    let needs = local.filter_map(|dependency| text(dependency, "name")).map(str::to_owned).collect();
    Package { roots, needs }
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Packages that need each other. Cargo itself refuses that, except where one needs the other for its tests only.
pub(crate) fn check(packages: &Packages) -> Vec<Finding> {
    let ring = packages.keys().filter(|name| leads_to(packages, name, name));
    let message = |name: &String| format!("package `{name}` needs itself, by way of its dependencies");
    ring.map(|name| Finding::new("Cargo.toml", 0, message(name))).collect()
}

fn leads_to(packages: &Packages, from: &str, to: &str) -> bool {
    let (mut seen, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(name) = ahead.pop() {
        let Some(package) = packages.get(name) else { continue };
        if package.needs.contains(to) {
            return true;
        }
        ahead.extend(package.needs.iter().map(String::as_str).filter(|name| seen.insert(*name)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(needs: &[(&str, &[&str])]) -> Packages {
        let package =
            |needs: &[&str]| Package { needs: needs.iter().map(ToString::to_string).collect(), ..Package::default() };
        needs.iter().map(|(name, needs)| ((*name).to_owned(), package(needs))).collect()
    }

    #[test]
    fn finds_packages_that_need_each_other() {
        assert!(check(&packages(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
        let findings = check(&packages(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn reads_what_cargo_says() {
        let metadata = r#"{"packages": [{"name": "a",
            "targets": [{"src_path": "/w/a/src/lib.rs"}],
            "dependencies": [{"name": "b", "path": "/w/b"}, {"name": "serde"}]}]}"#;
        let packages = read(metadata).unwrap();
        let a = packages.get("a").unwrap();
        assert_eq!((a.needs.len(), a.roots.len()), (1, 1));
    }
}
