//! Owns the benches: builds what one measures, for speed, and becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::paths::Paths;
use crate::run::{cargo, run, say, step};
use crate::setup::install_make;
use crate::{envoy, filter};

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// The CPU time that the filter adds to a request in Envoy, beside Envoy's own filters, Lua, ext_authz and ext_proc
    ///
    /// `cargo xtask bench filter -- --help` lists its options; the most used are `--rounds N`, `--cases A,B` and
    /// `--json FILE`. The exit code is not zero when a case could not be measured, and when a target was missed.
    Filter {
        /// Passed on to the bench as they are
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// What a fleet costs the control plane: memory a stream, CPU time and delay a change, in both variants of xDS
    ///
    /// `cargo xtask bench xds -- --help` lists its options; the most used are `--streams N,M`, `--variant sotw` and
    /// `--json FILE`. The exit code is not zero when a case could not be measured, and when a target was missed.
    Xds {
        /// Passed on to the bench as they are
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// The time from resources to what every group of nodes is served, whole and after one change, for 100, 1,000 and 10,000
    /// policies
    ///
    /// `cargo xtask bench compile -- --help` lists its options: `--rounds N` and `--json FILE`. The exit code is not zero when
    /// the time does not grow linearly, or a change compiles more than one group.
    Compile {
        /// Passed on to the bench as they are
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// The time from a change to the first Envoy that runs it, of every route and of one, for 10, 1,000 and 10,000 routes, the
    /// gate's part of it, and our part beside a stub that pushes the same bytes
    ///
    /// `cargo xtask bench gate -- --help` lists its options: `--rounds N`, `--one-changed` and `--json FILE`. The exit code is not
    /// zero when something took longer than it may.
    Gate {
        /// Passed on to the bench as they are
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
}

/// Builds everything and becomes the bench, so that Ctrl-C reaches the bench itself.
pub(crate) fn bench(paths: &Paths, bench: &Bench) -> Result<ExitCode> {
    match bench {
        Bench::Filter { rest } => beside_envoy(paths, "postern-bench", rest),
        Bench::Compile { rest } => alone(paths, "postern-bench-compile", rest),
        Bench::Gate { rest } => beside_envoy(paths, "postern-bench-gate", rest),
        Bench::Xds { rest } => xds(paths, rest),
    }
}

/// A bench that starts Envoys.
fn beside_envoy(paths: &Paths, name: &str, rest: &[OsString]) -> Result<ExitCode> {
    let filter = filter::build(paths)?;
    let envoy = envoy::resolve(paths, None)?;
    build(paths, &[name])?;
    let mut command = Command::new(release(paths, name));
    command.env("POSTERN_ENVOY", &envoy.path).env("POSTERN_FILTER", &filter.path).args(rest);
    become_it(command)
}

/// A bench that starts nothing but itself.
fn alone(paths: &Paths, name: &str, rest: &[OsString]) -> Result<ExitCode> {
    let filter = filter::build(paths)?;
    build(paths, &[name])?;
    let mut command = Command::new(release(paths, name));
    command.env("POSTERN_FILTER", &filter.path).args(rest);
    become_it(command)
}

fn xds(paths: &Paths, rest: &[OsString]) -> Result<ExitCode> {
    let filter = filter::build(paths)?;
    build(paths, &["postern", "postern-bench-xds"])?;
    let mut command = Command::new(release(paths, "postern-bench-xds"));
    command.env("POSTERN_BIN", release(paths, "postern")).env("POSTERN_FILTER", &filter.path).args(rest);
    become_it(command)
}

fn build(paths: &Paths, programs: &[&str]) -> Result<()> {
    install_make()?;
    let programs = programs.iter().flat_map(|program| ["--bin", program]);
    step("building the bench", || {
        let mut cargo = cargo(paths);
        run(cargo.args(["build", "--release", "--package", "postern", "--package", "postern-tests"]).args(programs))
    })
}

fn release(paths: &Paths, program: &str) -> PathBuf {
    paths.target.join("release").join(program)
}

fn become_it(mut command: Command) -> Result<ExitCode> {
    say("starting the bench");
    Err(command.exec()).with_context(|| format!("cannot start the bench `{}`", command.get_program().display()))
}
