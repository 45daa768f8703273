//! Owns the test run: starts `cargo test`, passes its output on while counting, and prints the result.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::paths::Paths;
use crate::run::{cargo, run, say, seconds, step};
use crate::setup::Setup;
use crate::tally::Tally;
use crate::{envoy, fuzz, grpc, tidy};

/// How long to wait for output once cargo has ended: more than the pipe's own delay.
const GRACE: Duration = Duration::from_millis(500);

/// Builds everything, runs all tests, fuzzes every target for a moment and prints the counts as the last line on stdout.
pub(crate) fn test(paths: &Paths, filters: &[OsString]) -> Result<ExitCode> {
    let start = Instant::now();
    // Who asks for some tests by name does not ask for all the rest.
    let whole = filters.is_empty();
    let tidy = if whole { Some(step("tidying", || tidy::check(paths))?) } else { None };
    let setup = Setup::prepare(paths)?;
    let python = grpc::python(paths)?;
    let oldest = envoy::oldest(paths)?;
    step("building the tests", || run(cargo_test(paths, &setup).arg("--no-run")))?;

    let mut command = cargo_test(paths, &setup);
    command.env(grpc::VARIABLE, python).env(envoy::OLDEST_VARIABLE, oldest);
    command.arg("--no-fail-fast").arg("--").args(filters);
    let (mut tally, status) = step("running the tests", || watch(command))?;
    tidy.into_iter().for_each(|counts| tally.add("tidy", counts));
    if whole {
        tally.add("fuzz targets", fuzz::shortly(paths)?);
    }

    say(format_args!("filter: {}", setup.filter.summary(paths)));
    say(format_args!("Envoy: {}", setup.envoy.summary(paths)));
    for suite in tally.suites() {
        say(suite);
    }
    say(format_args!("everything together took {}", seconds(start.elapsed())));
    conclude(&tally, status)
}

fn cargo_test(paths: &Paths, setup: &Setup) -> Command {
    let mut command = cargo(paths);
    setup.tell(&mut command, paths);
    command.args(["test", "--workspace"]);
    command
}

/// Says why the run is a failure, if it is; then the counts, last and alone.
fn conclude(tally: &Tally, status: ExitStatus) -> Result<ExitCode> {
    let total = tally.total();
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

/// Runs a `cargo test`, with its output on stdout. Both its streams go through one pipe, so that the names of suites
/// (stderr) and their results (stdout) stay in order.
fn watch(mut command: Command) -> Result<(Tally, ExitStatus)> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot start `cargo test`")?;
    // It holds the pipe's writing end, which must close for the pipe to end.
    drop(command);

    let lines = lines(reader);
    let mut tally = Tally::default();
    let mut ended = false;
    loop {
        match lines.recv_timeout(GRACE) {
            Ok(line) => {
                let text = String::from_utf8_lossy(&line);
                tally.read(text.trim_end());
                io::stdout().write_all(&line)?;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if ended => {
                say("warning: a test left a process behind, which still holds its output");
                break;
            }
            Err(RecvTimeoutError::Timeout) => ended = child.try_wait()?.is_some(),
        }
    }
    let status = child.wait()?;
    if !status.success() {
        tally.count_crashes();
    }
    Ok((tally, status))
}

/// Reads lines in a thread of its own: a process left behind by a test would otherwise block the reading for ever.
fn lines(reader: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) if sender.send(line).is_err() => break,
                Ok(_) => {}
            }
        }
    });
    receiver
}
