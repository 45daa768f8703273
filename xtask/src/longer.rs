//! Owns what `cargo xtask test --all` adds to the tests: the same tests with larger numbers, and what takes too long for every
//! change. Each part is one row of the table; one that cannot be run is one failure, and the next one follows.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};

use crate::paths::Paths;
use crate::run::{say, step};
use crate::suites::{Suites, watch};
use crate::table::Table;
use crate::tally::Counts;
use crate::{fuzz, mutants, reproducible};

/// The variable that chooses the route tables that are compared. With a new seed, each run compares others.
const ROUTES_SEED: &str = "POSTERN_ROUTES_SEED";

/// One part that is added.
struct Longer {
    name: &'static str,
    adds: &'static str,
    work: Work,
}

/// What a part does.
enum Work {
    /// Fuzzes every target for this number of seconds.
    Fuzz(u32),
    /// Runs tests that also run without `--all`, for longer.
    Tests(Tests),
    /// Tries the mutants of the xDS session.
    Mutants,
    /// Builds the filter once more, elsewhere.
    Reproducible,
}

/// Tests of one program, with the variable that makes them longer.
struct Tests {
    program: &'static str,
    /// A part of the names of the tests.
    filter: &'static str,
    variable: &'static str,
    value: &'static str,
}

const PARTS: [Longer; 8] = [
    Longer {
        name: "reproducible filter",
        adds: "builds the filter in another directory: its bytes are equal",
        work: Work::Reproducible,
    },
    Longer { name: "long fuzzing", adds: "fuzzes every target for 60 s", work: Work::Fuzz(60) },
    Longer {
        name: "routes, 20,000 tables",
        adds: "compares ten times as many route tables with a real Envoy, from a new seed",
        work: Work::Tests(Tests {
            program: "routes",
            filter: "an_envoy_takes_the_routes",
            variable: "POSTERN_ROUTES_TABLES",
            value: "20000",
        }),
    },
    Longer {
        name: "xds_model, 20,000 sequences",
        adds: "compares the xDS session with its model in ten times as many sequences",
        work: Work::Tests(Tests { program: "xds_model", filter: "", variable: "XDS_MODEL_SEQUENCES", value: "20000" }),
    },
    Longer {
        name: "driven, 400 steps",
        adds: "drives a real Envoy through ten times as many changes, refusals and restarts",
        work: Work::Tests(Tests { program: "e2e", filter: "driven::", variable: "POSTERN_DRIVEN_STEPS", value: "400" }),
    },
    Longer {
        name: "crashes, 200 kills",
        adds: "kills the control plane 200 times instead of 12",
        work: Work::Tests(Tests { program: "e2e", filter: "crashes::", variable: "POSTERN_KILLS", value: "200" }),
    },
    Longer {
        name: "memory, 5,000 clients",
        adds: "lets 5,000 clients vanish at once instead of 400",
        work: Work::Tests(Tests {
            program: "e2e",
            filter: "memory::case_40",
            variable: "POSTERN_CLIENTS",
            value: "5000",
        }),
    },
    Longer {
        name: "mutants",
        adds: "puts faults into a copy of the xDS session: the model test finds each",
        work: Work::Mutants,
    },
];

/// Says what is going to be added.
pub(crate) fn announce() {
    for part in &PARTS {
        say(format_args!("--all adds {}: {}", part.name, part.adds));
    }
}

/// Runs all parts, and adds each to the table.
pub(crate) fn run(paths: &Paths, suites: &Suites<'_>, table: &mut Table) {
    for part in &PARTS {
        let start = Instant::now();
        let counts = step(part.name, || part.work.run(paths, suites)).unwrap_or_else(|error| {
            say(format_args!("error: {}: {error:#}", part.name));
            FAILED
        });
        table.add(part.name, start.elapsed(), Some(counts));
    }
}

/// The result of a part that gives none.
const FAILED: Counts = Counts { passed: 0, failed: 1, skipped: 0 };

impl Work {
    fn run(&self, paths: &Paths, suites: &Suites<'_>) -> Result<Counts> {
        match self {
            Self::Fuzz(seconds) => fuzz::check(paths, *seconds),
            Self::Tests(tests) => tests.run(suites),
            Self::Mutants => mutants::check(paths, &[]),
            Self::Reproducible => reproducible::check(paths, &suites.setup.filter),
        }
    }
}

impl Tests {
    fn run(&self, suites: &Suites<'_>) -> Result<Counts> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        // Thousands of clients have thousands of connections.
        let mut command = suites.command_with_many_files();
        self.complete(&mut command, seed);
        let (tally, status) = watch(command)?;
        let counts = tally.total();
        ensure!(counts.ran(), "no test ran: {status}");
        Ok(if status.success() || counts.failed > 0 { counts } else { counts + FAILED })
    }

    /// Chooses these tests in a `cargo test`.
    fn complete(&self, command: &mut Command, seed: u64) {
        command.env(ROUTES_SEED, seed.to_string()).env(self.variable, self.value);
        command.args(["--test", self.program, "--no-fail-fast", "--", self.filter]);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Where the sources of each test program are.
    fn sources(program: &str) -> &'static str {
        match program {
            "routes" => "tests/routes",
            "e2e" => "tests/e2e",
            "xds_model" => "control-plane/deliver/tests/xds_model",
            other => panic!("where is the test program `{other}`?"),
        }
    }

    #[test]
    fn every_variable_is_read_by_the_tests_that_it_is_set_for() {
        for part in &PARTS {
            let Work::Tests(tests) = &part.work else { continue };
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(sources(tests.program));
            let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
            let text: String =
                files.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).unwrap()).collect();
            assert!(text.contains(&format!("\"{}\"", tests.variable)), "{}", part.name);
            let (module, function) = tests.filter.split_once("::").unwrap_or(("", tests.filter));
            assert!(module.is_empty() || text.contains(&format!("mod {module};")), "{}", part.name);
            assert!(text.contains(&format!("fn {function}")), "{}", part.name);
        }
    }

    #[test]
    fn chooses_tests_by_program_and_name() {
        let mut command = Command::new("cargo");
        let tests = Tests { program: "e2e", filter: "crashes::", variable: "POSTERN_KILLS", value: "200" };
        tests.complete(&mut command, 7);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.join(" "), "--test e2e --no-fail-fast -- crashes::");
        let variables: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_str(), value.and_then(|v| v.to_str()))).collect();
        assert_eq!(variables, [(Some("POSTERN_KILLS"), Some("200")), (Some(ROUTES_SEED), Some("7"))]);
    }
}
