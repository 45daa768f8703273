//! Owns the filter's module: its build, its ceiling, its place under target/ and what is told about it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use wasmparser::{Parser, Payload};

use crate::paths::Paths;
use crate::run::{run, say, step};
use crate::toolchain::{TARGET, Way};

/// Above this many bytes something heavy came in: Envoy compiles the module when it starts.
const CEILING: usize = 1_000_000;

/// The names a module imports, by the module they come from.
type Imports = BTreeMap<String, Vec<String>>;

/// The filter, built.
pub(crate) struct Filter {
    /// The path of the module.
    pub(crate) path: PathBuf,
    way: String,
    size: usize,
    digest: String,
    imports: Imports,
}

impl Filter {
    /// The SHA-256 of its bytes, in hexadecimal.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// One line: where, how large, how built and which.
    pub(crate) fn summary(&self, paths: &Paths) -> String {
        let Self { path, way, size, digest, .. } = self;
        format!("{}, {} KB, built with {way}, sha256 {digest}", paths.shown(path), size.div_ceil(1024))
    }
}

/// Builds the filter, and prints its path, size and digest.
pub(crate) fn build(paths: &Paths) -> Result<Filter> {
    build_as(paths, &[], paths.filter())
}

/// Builds the filter as one that loads plans up to the format before the current one.
pub(crate) fn build_previous(paths: &Paths) -> Result<PathBuf> {
    let previous = build_as(paths, &["--features", "postern-filter/previous-format"], paths.previous_filter())?;
    Ok(previous.path)
}

fn build_as(paths: &Paths, options: &[&str], path: PathBuf) -> Result<Filter> {
    let way = Way::choose()?;
    let name = format!(
        "building the filter for {TARGET} with {way}{}{}",
        if options.is_empty() { "" } else { ", " },
        options.join(" ")
    );
    let package = ["--package", "postern-filter", "--profile", "filter"];
    step(&name, || run(way.cargo_build(paths).args(package).args(options)))?;

    let built = paths.wasm_target().join(TARGET).join("filter").join("postern_filter.wasm");
    let bytes = fs::read(&built).with_context(|| format!("cannot read the filter `{}`", built.display()))?;
    ensure!(
        bytes.len() <= CEILING,
        "the filter has {} bytes, more than its ceiling of {CEILING}: find what came in (`{}`)",
        bytes.len(),
        paths.shown(&built)
    );
    let imports = imports(&bytes).with_context(|| format!("cannot read the filter `{}`", built.display()))?;
    replace(&path, &bytes).with_context(|| format!("cannot write the filter `{}`", path.display()))?;

    let digest = hex::encode(Sha256::digest(&bytes));
    let filter = Filter { path, way: way.to_string(), size: bytes.len(), digest, imports };
    tell(&filter, paths);
    Ok(filter)
}

fn tell(filter: &Filter, paths: &Paths) {
    say(format_args!("filter: {}", filter.summary(paths)));
    for (module, names) in &filter.imports {
        say(format_args!("filter: {} imports from `{module}`: {}", names.len(), names.join(" ")));
    }
    if filter.imports.is_empty() {
        say("filter: no imports");
    }
}

fn imports(module: &[u8]) -> Result<Imports> {
    let mut imports = Imports::new();
    for payload in Parser::new(0).parse_all(module) {
        let Payload::ImportSection(section) = payload? else { continue };
        for import in section {
            let import = import?;
            imports.entry(import.module.to_owned()).or_default().push(import.name.to_owned());
        }
    }
    Ok(imports)
}

/// Replaces the file atomically. A file with equal bytes is left alone, so that watchers see no change.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    if path.exists() && fs::read(path)? == bytes {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("the path has no directory")?)?;
    let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&fresh, bytes)?;
    fs::rename(&fresh, path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_imports_by_module() {
        let module = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x17\x03\x03env\x01b\0\0\x03env\x01a\0\0\x01w\x01c\0\0";
        let expected = [("env", vec!["b", "a"]), ("w", vec!["c"])];
        let expected = expected.map(|(m, names)| (m.to_owned(), names.into_iter().map(str::to_owned).collect()));
        assert_eq!(imports(module).unwrap(), Imports::from(expected));
    }

    #[test]
    fn leaves_equal_bytes_untouched() {
        let directory = std::env::temp_dir().join(format!("xtask-replace-{}", std::process::id()));
        let path = directory.join("a.wasm");
        replace(&path, b"one").unwrap();
        let first = fs::metadata(&path).unwrap().modified().unwrap();
        replace(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), first);
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "no temporary file is left");
        fs::remove_dir_all(&directory).unwrap();
    }
}
