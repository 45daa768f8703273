//! Owns runs of `cargo test`: passes their output on while counting and timing.

use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::paths::Paths;
use crate::run::{cargo, say};
use crate::setup::Setup;
use crate::tally::Tally;
use crate::{envoy, filter, grpc, prometheus};

/// How long to wait for output once cargo has ended: more than the pipe's own delay.
const GRACE: Duration = Duration::from_millis(500);

/// Everything that the tests need.
pub(crate) struct Suites<'a> {
    paths: &'a Paths,
    /// What the demo needs too.
    pub(crate) setup: Setup,
    python: PathBuf,
    other_envoys: Vec<(&'static str, PathBuf)>,
    prometheus: PathBuf,
    previous_filter: PathBuf,
}

impl<'a> Suites<'a> {
    /// Builds and installs what the tests need, with a certain release of Envoy if one is named. Does not build the tests.
    pub(crate) fn prepare(paths: &'a Paths, release: Option<&str>) -> Result<Self> {
        let setup = Setup::prepare(paths, release)?;
        let (python, other_envoys) = (grpc::python(paths)?, envoy::others(paths)?);
        let prometheus = prometheus::directory(paths)?;
        let previous_filter = filter::build_previous(paths)?;
        Ok(Self { paths, setup, python, other_envoys, prometheus, previous_filter })
    }

    /// The start of a `cargo test` of the workspace: whichever of its tests are run, all are built with the same features.
    pub(crate) fn command(&self) -> Command {
        let mut command = cargo(self.paths);
        self.tell(&mut command);
        command.args(["test", "--workspace"]);
        command
    }

    /// Like [`Suites::command`], with as many open files as the system permits.
    pub(crate) fn command_with_many_files(&self) -> Command {
        let plain = self.command();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n \"$(ulimit -H -n)\"; exec \"$@\"", "sh"]);
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(&self.paths.root);
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn tell(&self, command: &mut Command) {
        self.setup.tell(command, self.paths);
        command.env(grpc::VARIABLE, &self.python);
        command.envs(self.other_envoys.iter().map(|(variable, path)| (variable, path)));
        command.env("POSTERN_PREVIOUS_FILTER", &self.previous_filter);
        command.env(prometheus::VARIABLE, &self.prometheus);
    }
}

/// Runs a `cargo test`, with its output on stdout. Both its streams go through one pipe, so that the names of suites
/// (stderr) and their results (stdout) stay in order.
pub(crate) fn watch(mut command: Command) -> Result<(Tally, ExitStatus)> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot start `cargo test`")?;
    // It holds the pipe's writing end, which must close for the pipe to end.
    drop(command);

    let lines = lines(reader);
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut ended = false;
    loop {
        match lines.recv_timeout(GRACE) {
            Ok(line) => {
                let text = String::from_utf8_lossy(&line);
                tally.read(text.trim_end(), start.elapsed());
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
    tally.end(start.elapsed());
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
