//! A cache of compiled filters on disk, so that a start does not compile. It can be deleted at any time.
//!
//! The name and the seal of a module's file cover the digests of its filter and of wasmtime's version, configuration
//! and processor. Files that are foreign, old or damaged are never run: the filter is compiled again, and the file
//! replaced.
//!
//! The key of the seal does not lie in the cache, so that a cache can be shared by many who write to it: who can write
//! there, and cannot read the key, makes nobody run anything. Those who share a cache need the same key, or each of them
//! compiles for itself.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use postern_base::{digest::Digest, secret_file};

use crate::wasm::{Filter, HostError, SealKey};

/// The folder of the modules, in the directory of the cache.
const MODULES: &str = "modules";
/// The extension of a module's file.
const MODULE: &str = "module";
/// The number of modules that are kept: the current filter, and previous ones to go back to.
const KEPT: usize = 4;
/// The largest module that is read, in bytes. No filter compiles to more.
const LARGEST: u64 = 256 << 20;

/// Why the cache cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("compiled filters cannot be kept: {}: {error}", path.display())]
pub struct CacheError {
    path: PathBuf,
    error: io::Error,
}

/// How a filter was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Read from the cache.
    Cached,
    /// Compiled.
    Compiled,
}

/// The cache of compiled filters in a directory.
#[derive(Debug)]
pub struct ModuleCache {
    modules: PathBuf,
    key: SealKey,
}

impl ModuleCache {
    /// Opens the cache in a directory, with the key in the file `key`. Creates a key that only this user can read, if there
    /// is none. Fails if that file lies in the folder of the modules.
    pub fn open(home: &Path, key: &Path) -> Result<Self, CacheError> {
        let modules = home.join(MODULES);
        secret_file::make_folder(&modules).map_err(|error| CacheError { path: modules.clone(), error })?;
        let failed = |error| CacheError { path: key.to_owned(), error };
        let folder = key.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if is_within(folder, &modules).map_err(failed)? {
            return Err(failed(io::Error::other("the key of the compiled filters must not lie among them")));
        }
        secret_file::make_folder(folder).map_err(failed)?;
        Ok(Self { key: load_key(key).map_err(failed)?, modules })
    }

    /// The filter, from the cache if it has an intact module, else compiled and stored. A failure to store is logged,
    /// and is not an error.
    pub fn filter(&self, code: &[u8], digest: &Digest) -> Result<(Filter, Origin), HostError> {
        let environment = Filter::environment()?;
        let path = self.path(digest, &environment);
        if let Some(filter) = self.restore(&path, digest, &environment) {
            return Ok((filter, Origin::Cached));
        }
        let filter = Filter::compile(code)?;
        let sealed = self.key.seal(digest, &environment, &filter.serialize()?);
        if let Err(error) = write(&path, &sealed).and_then(|()| self.collect()) {
            tracing::warn!(path = %path.display(), "the compiled filter was not kept: {error}");
        }
        Ok((filter, Origin::Compiled))
    }

    fn path(&self, digest: &Digest, environment: &Digest) -> PathBuf {
        self.modules.join(format!("{digest}-{}.{MODULE}", environment.short()))
    }

    fn restore(&self, path: &Path, digest: &Digest, environment: &Digest) -> Option<Filter> {
        let sealed = match read(path) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), "the compiled filter cannot be read: {error}");
                return None;
            }
        };
        let Some(module) = self.key.open(digest, environment, &sealed) else {
            tracing::warn!(path = %path.display(), "the compiled filter is damaged or not ours: it is compiled again");
            return None;
        };
        match Filter::restore(&module) {
            Ok(filter) => {
                // Marks the module as used for `collect`. If that fails, it may be deleted and compiled again later.
                let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
                Some(filter)
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), "{error}: it is compiled again");
                None
            }
        }
    }

    /// Deletes all modules except the most recently used, and files that killed writers left.
    fn collect(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.modules)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        for (_, path) in files.iter().rev().skip(KEPT) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a folder, which may not exist yet, lies in another or is the same.
fn is_within(folder: &Path, other: &Path) -> io::Result<bool> {
    match folder.ancestors().find(|above| above.exists()) {
        Some(above) => Ok(above.canonicalize()?.starts_with(other.canonicalize()?)),
        None => Ok(false),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > LARGEST {
        return Err(io::Error::other(format!("it has {size} bytes")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file that only this user can read, atomically.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = secret_file::draft(path, bytes)?;
    fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Reads or creates the key. A file that others can read, or that is not a key, is replaced; modules that were sealed
/// with it are compiled again.
fn load_key(path: &Path) -> io::Result<SealKey> {
    match secret_file::read(path) {
        Ok(Some(key)) => return Ok(SealKey::new(key)),
        Ok(None) => {
            tracing::warn!(path = %path.display(), "the key of compiled filters was not kept safe: it is replaced");
            fs::remove_file(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    secret_file::create(path).map(SealKey::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"(module (func (export "proxy_abi_version_0_2_1")))"#;

    /// The little-endian number at a place.
    fn number(bytes: &[u8], place: usize, size: usize) -> usize {
        bytes[place..place + size].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    /// Where a compiled module, which is an ELF file, has wasmtime's version: in a section of its own, behind a byte for
    /// the section's format and one for the length.
    fn place_of_version(module: &[u8]) -> usize {
        let (headers, size) = (number(module, 0x28, 8), number(module, 0x3a, 2));
        let header = |index: usize| headers + index * size;
        let content = |index: usize| number(module, header(index) + 24, 8);
        let names = content(number(module, 0x3e, 2));
        let name = |index: usize| &module[names + number(module, header(index), 4)..];
        let is_engine = |index: &usize| name(*index).starts_with(b".wasmtime.engine\0");
        content((0..number(module, 0x3c, 2)).find(is_engine).unwrap()) + 2
    }

    #[test]
    fn never_takes_a_module_of_another_wasmtime() {
        let home = tempfile::tempdir().unwrap();
        let cache = ModuleCache::open(home.path(), &home.path().join("module.key")).unwrap();
        let code = wat::parse_str(CODE).unwrap();
        let (digest, environment) = (Digest::of(&code), Filter::environment().unwrap());
        let path = cache.path(&digest, &environment);
        let check = |sealed: &[u8], expect: Origin, what: &str| {
            write(&path, sealed).unwrap();
            assert_eq!(cache.filter(&code, &digest).unwrap().1, expect, "{what}");
            assert_eq!(cache.filter(&code, &digest).unwrap().1, Origin::Cached, "{what}: it was replaced");
        };
        let module = Filter::compile(&code).unwrap().serialize().unwrap();
        check(&cache.key.seal(&digest, &environment, &module), Origin::Cached, "our own");
        // Ours by its seal and its name, but of another version or configuration of wasmtime.
        let elsewhere = cache.key.seal(&digest, &Digest::of(b"another wasmtime"), &module);
        check(&elsewhere, Origin::Compiled, "sealed for another environment");
        // If even the seal says that it is for this wasmtime, wasmtime itself refuses what another one made.
        let mut other = module.clone();
        let version = place_of_version(&other);
        assert!(other[version].is_ascii_digit(), "the version is not there any more");
        other[version] ^= 1;
        let sealed = cache.key.seal(&digest, &environment, &other);
        let refused = Filter::restore(&cache.key.open(&digest, &environment, &sealed).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("incompatible version"), "{refused}");
        check(&sealed, Origin::Compiled, "made by another version");
    }
}
