//! Owns fuzzing: compiles the targets with libFuzzer on a stable toolchain, runs each for a while, and tells what came
//! of it. What a target does is in tests/fuzz.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};

use crate::apt;
use crate::paths::Paths;
use crate::run::{cargo, find_on_path, output, run, say, step};
use crate::tally::Counts;

/// The targets, as their programs are named behind `fuzz-`.
pub(crate) const TARGETS: [&str; 10] =
    ["plan", "expression", "pairs", "request", "jwt", "address", "origin", "fields", "json-schema", "matches"];

/// What libFuzzer needs from the compiler: what cargo-fuzz sets, without a sanitizer, which would need nightly.
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The result of one target.
struct FuzzRun {
    target: String,
    runs: u64,
    coverage: u64,
    /// The time of the slowest run, in whole seconds.
    slowest: u64,
    /// The input that was found, if one was.
    finding: Option<PathBuf>,
}

/// Fuzzes some targets, or all, and prints a table on stdout.
pub(crate) fn fuzz(paths: &Paths, targets: &[String], seconds: u32) -> Result<ExitCode> {
    let all = TARGETS.map(str::to_owned);
    let outcomes = run_all(paths, if targets.is_empty() { &all } else { targets }, seconds)?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{:<12}{:>12}{:>10}{:>10}  finding", "target", "runs", "coverage", "slowest")?;
    for outcome in &outcomes {
        writeln!(stdout, "{outcome}")?;
    }
    let good = outcomes.iter().all(|outcome| outcome.finding.is_none());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fuzzes every target for this number of seconds; each is one test.
pub(crate) fn check(paths: &Paths, seconds: u32) -> Result<Counts> {
    let outcomes = run_all(paths, &TARGETS.map(str::to_owned), seconds)?;
    outcomes.iter().for_each(say);
    let failed = outcomes.iter().filter(|outcome| outcome.finding.is_some()).count() as u64;
    Ok(Counts { passed: outcomes.len() as u64 - failed, failed, skipped: 0 })
}

fn run_all(paths: &Paths, targets: &[String], seconds: u32) -> Result<Vec<FuzzRun>> {
    let programs = step("building the fuzz targets", || build(paths))?;
    let name = format!("fuzzing each target for {seconds} s");
    step(&name, || {
        let together = thread::available_parallelism().map_or(1, usize::from);
        let mut outcomes = Vec::with_capacity(targets.len());
        for targets in targets.chunks(together) {
            outcomes.extend(run_together(paths, &programs, targets, seconds)?);
        }
        Ok(outcomes)
    })
}

/// Runs several targets at once, each on a core of its own.
fn run_together(paths: &Paths, programs: &Path, targets: &[String], seconds: u32) -> Result<Vec<FuzzRun>> {
    thread::scope(|scope| {
        let running: Vec<_> =
            targets.iter().map(|target| scope.spawn(move || run_one(paths, programs, target, seconds))).collect();
        running.into_iter().map(|run| run.join().unwrap_or_else(|_| bail!("a fuzz target's thread panicked"))).collect()
    })
}

/// Builds all targets and returns the directory of their programs. The host is named as a target, so that build scripts
/// are compiled without these flags.
fn build(paths: &Paths) -> Result<PathBuf> {
    if find_on_path("c++").is_none() {
        apt::install(&["g++"]).context("libFuzzer needs a C++ compiler, and there is no `c++` on PATH")?;
    }
    let host = output(Command::new("rustc").current_dir(&paths.root).args(["--print", "host-tuple"]))?;
    let mut command = cargo(paths);
    command.env("CARGO_TARGET_DIR", paths.fuzz()).env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    run(command.args(["build", "--package", "postern-fuzz", "--bins", "--profile", "fuzz", "--target", &host]))?;
    Ok(paths.fuzz().join(host).join("fuzz"))
}

fn run_one(paths: &Paths, programs: &Path, target: &str, seconds: u32) -> Result<FuzzRun> {
    let [corpus, artifacts] = ["corpus", "artifacts"].map(|kind| paths.fuzz().join(kind).join(target));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let log = artifacts.with_added_extension("log");
    let program = programs.join(format!("fuzz-{target}"));
    let mut command = Command::new(&program);
    command.env("POSTERN_FUZZ_SEEDS", &corpus).arg(&corpus);
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(format!("-max_total_time={seconds}"));
    command.args(["-rss_limit_mb=2048", "-timeout=10", "-max_len=8192", "-print_final_stats=1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let status = command.status().with_context(|| format!("cannot start `{}`", program.display()))?;
    let log = fs::read(&log).map(|text| String::from_utf8_lossy(&text).into_owned())?;
    let outcome = FuzzRun::read(target, &log);
    if let Some(finding) = &outcome.finding {
        tell(paths, &log, target, finding);
    } else {
        ensure!(status.success(), "`{}` failed without a finding: {status}:\n{log}", program.display());
        ensure!(outcome.runs > 0, "`{}` ran nothing:\n{log}", program.display());
    }
    Ok(outcome)
}

/// Prints the end of the log, and how to replay the finding.
fn tell(paths: &Paths, log: &str, target: &str, finding: &Path) {
    let lines: Vec<_> = log.lines().filter(|line| !line.starts_with(['#', '\t'])).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(40)) {
        say(line);
    }
    let finding = paths.shown(finding);
    say(format_args!("replay: cargo run --package postern-fuzz --bin fuzz-{target} -- {finding}"));
}

impl FuzzRun {
    /// Reads libFuzzer's log.
    fn read(target: &str, log: &str) -> Self {
        let after = |mark: &str| log.lines().rev().find_map(|line| Some(line.split_once(mark)?.1.trim()));
        let number = |mark| after(mark).and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        Self {
            target: target.to_owned(),
            runs: number("stat::number_of_executed_units:"),
            coverage: number(" cov: "),
            slowest: number("stat::slowest_unit_time_sec:"),
            finding: after("Test unit written to ").map(PathBuf::from),
        }
    }
}

impl fmt::Display for FuzzRun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, runs, coverage, slowest, finding } = self;
        let finding = finding.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
        write!(formatter, "{target:<12}{runs:>12}{coverage:>10}{slowest:>8} s  {finding}")
    }
}

#[cfg(test)]
mod tests {
    use super::FuzzRun;

    fn check(log: &str, expected: &str) {
        assert_eq!(FuzzRun::read("plan", log).to_string(), expected);
    }

    #[test]
    fn reads_a_run_without_a_finding() {
        check(
            "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
             #4096\tDONE   cov: 120 ft: 300 corp: 9/90b exec/s: 0 rss: 30Mb\n\
             stat::number_of_executed_units: 4096\nstat::slowest_unit_time_sec:       1\n",
            "plan                4096       120       1 s  none",
        );
    }

    #[test]
    fn reads_a_finding() {
        check(
            "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
             artifact_prefix='/a/'; Test unit written to /a/crash-01\nstat::number_of_executed_units: 3\n",
            "plan                   3        10       0 s  /a/crash-01",
        );
    }
}
