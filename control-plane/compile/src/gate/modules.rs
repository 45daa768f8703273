//! Compiled filters on a disk, so that a start does not compile: a cache that can be deleted at any time.
//!
//! A module's file carries the digest of its filter, and that of wasmtime's version, configuration and processor, in
//! its name and under its seal. What is foreign, old or damaged is compiled again and replaced, never run.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use postern_base::{digest::Digest, secret_file};

use crate::wasm::{Filter, HostError, SealKey};

/// The key, in the directory that the cache is opened in.
const KEY: &str = "module.key";
/// The folder of the modules, beside it.
const MODULES: &str = "modules";
/// How a module's file ends.
const MODULE: &str = "module";
/// How many modules are kept: those of this filter and of a few before it, for a way back.
const KEPT: usize = 4;
/// More than any filter compiles to: what is larger is none of ours.
const LARGEST: u64 = 256 << 20;

/// Why compiled modules cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("compiled filters cannot be kept: {}: {error}", path.display())]
pub struct CacheError {
    path: PathBuf,
    error: io::Error,
}

/// Where a filter came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was compiled before, and kept.
    Cached,
    /// It was compiled now.
    Compiled,
}

/// The compiled filters of a directory.
#[derive(Debug)]
pub struct ModuleCache {
    modules: PathBuf,
    key: SealKey,
}

impl ModuleCache {
    /// Opens the cache of a directory. The first time, it makes a key that only this user can read.
    pub fn open(home: &Path) -> Result<Self, CacheError> {
        let modules = home.join(MODULES);
        secret_file::make_folder(&modules).map_err(|error| CacheError { path: modules.clone(), error })?;
        let path = home.join(KEY);
        let key = load_key(&path).map_err(|error| CacheError { path, error })?;
        Ok(Self { modules, key })
    }

    /// The filter, from the cache if it is there, whole and ours. That it could not be kept is in the log, and no error.
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
                // For `collect`: what is used stays. If the time cannot be set, it is compiled again some day.
                let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
                Some(filter)
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), "{error}: it is compiled again");
                None
            }
        }
    }

    /// Deletes all but the modules that were used last, and what writers left that were killed.
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

/// Writes a file that only this user can read, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = secret_file::draft(path, bytes)?;
    fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// The key of a file. A file that others could read, or that is no key, is replaced: what was sealed with it is then
/// compiled again.
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
