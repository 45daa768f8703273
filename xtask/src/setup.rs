//! Owns what demo and tests both need: the filter, an Envoy and the native programs. Starts the demo.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::apt;
use crate::envoy::{self, Envoy};
use crate::filter::{self, Filter};
use crate::paths::Paths;
use crate::run::{cargo, find_on_path, run, say, step};

/// Builds what the demo starts, with the features that the tests have: cargo unifies features over the packages that are
/// selected, and over development dependencies only where a test is built. With any other selection, half of the crates from
/// outside are compiled twice. The tests named here bring the development dependencies from outside, and `xtask` its own.
const BUILD: [&str; 12] = [
    "build",
    "--workspace",
    "--bin",
    "postern",
    "--bin",
    "postern-demo",
    "--bin",
    "xtask",
    "--test",
    "defaults",
    "--test",
    "support",
];

/// Everything that a test on a real Envoy starts.
pub(crate) struct Setup {
    /// The filter it loads.
    pub(crate) filter: Filter,
    /// The Envoy that loads it.
    pub(crate) envoy: Envoy,
}

impl Setup {
    /// Builds and installs all of it, with a certain release of Envoy if one is named.
    pub(crate) fn prepare(paths: &Paths, release: Option<&str>) -> Result<Self> {
        install_make()?;
        let filter = filter::build(paths)?;
        let envoy = envoy::resolve(paths, release)?;
        build(paths)?;
        Ok(Self { filter, envoy })
    }

    /// Sets the environment variables by which a program finds all of it.
    pub(crate) fn tell(&self, command: &mut Command, paths: &Paths) {
        command.env("POSTERN_ENVOY", &self.envoy.path);
        command.env("POSTERN_FILTER", &self.filter.path);
        command.env("POSTERN_BIN", paths.postern());
        command.env("POSTERN_CACHE", paths.cache());
        command.env("POSTERN_CACHE_KEY", paths.cache_key());
    }
}

/// Builds `postern` and the demo.
pub(crate) fn build(paths: &Paths) -> Result<()> {
    step("building Postern and the demo", || run(cargo(paths).args(BUILD)))
}

/// Installs `make`, if it is absent: the allocator of the control plane is built with it.
pub(crate) fn install_make() -> Result<()> {
    if find_on_path("make").is_some() {
        return Ok(());
    }
    apt::install(&["make"]).context("the control plane's allocator is built with `make`, and there is none on PATH")
}

/// Installs what builds and tests need and this machine lacks.
pub(crate) fn setup(paths: &Paths) -> Result<ExitCode> {
    install_make()?;
    filter::build(paths)?;
    envoy::resolve(paths, None)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds everything and becomes the demo, so that Ctrl-C reaches the demo itself.
pub(crate) fn demo(paths: &Paths, once: bool, rest: &[OsString]) -> Result<ExitCode> {
    let setup = Setup::prepare(paths, None)?;
    let program = paths.demo();
    let mut command = Command::new(&program);
    setup.tell(&mut command, paths);
    command.args(once.then_some("--once")).args(rest);
    say("starting the demo");
    Err(command.exec()).with_context(|| format!("cannot start the demo `{}`", program.display()))
}
