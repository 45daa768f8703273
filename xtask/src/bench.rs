//! Owns the benches: builds what one measures, for speed, and becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::paths::Paths;
use crate::run::{cargo, run, say, step};
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
    /// The time from a change to the first Envoy that runs it, for 10, 1,000 and 10,000 routes, and the gate's part of it
    ///
    /// `cargo xtask bench gate -- --help` lists its options: `--rounds N` and `--json FILE`. The exit code is not zero when the
    /// gate took longer than it may.
    Gate {
        /// Passed on to the bench as they are
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
}

/// Builds everything and becomes the bench, so that Ctrl-C reaches the bench itself.
pub(crate) fn bench(paths: &Paths, bench: &Bench) -> Result<ExitCode> {
    match bench {
        Bench::Filter { rest } => become_bench(paths, "postern-bench", rest),
        Bench::Gate { rest } => become_bench(paths, "postern-bench-gate", rest),
    }
}

fn become_bench(paths: &Paths, name: &str, rest: &[OsString]) -> Result<ExitCode> {
    let filter = filter::build(paths)?;
    let envoy = envoy::resolve(paths)?;
    step("building the bench", || {
        run(cargo(paths).args(["build", "--release", "--package", "postern-tests", "--bin", name]))
    })?;
    let program = paths.target.join("release").join(name);
    let mut command = Command::new(&program);
    command.env("POSTERN_ENVOY", &envoy.path).env("POSTERN_FILTER", &filter.path).args(rest);
    say("starting the bench");
    Err(command.exec()).with_context(|| format!("cannot start the bench `{}`", program.display()))
}
