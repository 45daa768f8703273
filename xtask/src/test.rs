//! Owns the test run: everything that it consists of, in order, and its result.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{ExitCode, ExitStatus};
use std::time::Instant;

use anyhow::Result;

use crate::paths::Paths;
use crate::run::{run, say, seconds, step};
use crate::suites::{Suites, watch};
use crate::table::Table;
use crate::{fuzz, longer, tidy};

/// How long each fuzz target runs, in seconds.
const FUZZING: u32 = 5;

/// Builds everything, runs all tests, fuzzes every target for a moment, prints what each part took, and the counts as the
/// last line on stdout. With `all`, what takes longer follows; it is named before anything starts. With `envoy`, that release
/// is the Envoy of all tests that do not need a certain one.
pub(crate) fn test(paths: &Paths, filters: &[OsString], all: bool, envoy: Option<&str>) -> Result<ExitCode> {
    let start = Instant::now();
    // Who asks for some tests by name does not ask for all the rest.
    let whole = filters.is_empty();
    if all {
        longer::announce();
    }
    let mut table = Table::default();
    if whole {
        table.check("tidy", || tidy::check(paths))?;
    }
    let suites = table.step("set-up", || Suites::prepare(paths, envoy))?;
    table.step("building the tests", || run(suites.command().arg("--no-run")))?;
    let status = run_suites(&suites, filters, &mut table)?;
    if whole {
        table.check("fuzz targets", || fuzz::check(paths, FUZZING))?;
    }
    if all {
        longer::run(paths, &suites, &mut table);
    }

    say(format_args!("filter: {}", suites.setup.filter.summary(paths)));
    say(format_args!("Envoy: {}", suites.setup.envoy.summary(paths)));
    table.to_string().lines().for_each(say);
    say(format_args!("everything together took {}", seconds(start.elapsed())));
    conclude(&table, status)
}

fn run_suites(suites: &Suites<'_>, filters: &[OsString], table: &mut Table) -> Result<ExitStatus> {
    let mut command = suites.command();
    command.arg("--no-fail-fast").arg("--").args(filters);
    let (tally, status) = step("running the tests", || watch(command))?;
    for suite in tally.suites() {
        table.add(&suite.name, suite.took, suite.counts);
    }
    Ok(status)
}

/// Says why the run is a failure, if it is; then the counts, last and alone.
fn conclude(table: &Table, status: ExitStatus) -> Result<ExitCode> {
    let total = table.total();
    let good = if !status.success() {
        say(format_args!("error: `cargo test` failed: {status}"));
        false
    } else if !total.ran() {
        say("error: no test ran");
        false
    } else {
        total.failed == 0
    };
    writeln!(io::stdout(), "{total}")?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
