//! Owns the search for a Python with `grpcio`. A test runs its xDS client, which is independent of our code.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::environment::Environment;
use crate::paths::Paths;
use crate::run::{is_executable, output};

/// The environment variable that names it for the test. If it is set, nothing is installed.
pub(crate) const VARIABLE: &str = "POSTERN_GRPC_PYTHON";

const ENVIRONMENT: Environment<'_> = Environment {
    name: "gRPC for Python",
    directory: "grpcio-1.85.1",
    packages: &["grpcio==1.85.1", "typing-extensions==4.16.0"],
    program: with_grpc,
};

/// A Python that has `grpcio`.
pub(crate) fn python(paths: &Paths) -> Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        ensure!(is_executable(Path::new(&path)), "`{VARIABLE}` names no program: `{}`", path.display());
        return Ok(std::path::absolute(path)?);
    }
    ENVIRONMENT.provide(paths).with_context(|| {
        format!("there is no Python with `grpcio`, and none could be installed; set `{VARIABLE}` to one that has it")
    })
}

fn with_grpc(python: &Path) -> Result<PathBuf> {
    output(Command::new(python).args(["-c", "import grpc"]))?;
    Ok(python.to_owned())
}
