//! Owns how commands run and how progress is told: a line on stderr when a step starts, and one when it ends.
//! Stdout is left to what a task answers.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::paths::Paths;

/// The interval at which a command with a time limit is polled.
const POLL: Duration = Duration::from_millis(50);

/// Prints one line on stderr.
pub(crate) fn say(line: impl Display) {
    let mut stderr = io::stderr();
    let (bold, plain) = if stderr.is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(stderr, "{bold}xtask:{plain} {line}");
}

/// Does one long piece of work between a line that names it and a line that says how long it took.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    say(name);
    let start = Instant::now();
    let outcome = work();
    let verb = if outcome.is_ok() { "done in" } else { "failed after" };
    say(format_args!("{name}: {verb} {}", seconds(start.elapsed())));
    outcome
}

/// A time as people read it.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Runs a command to its end, with all its output on stderr.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(io::stderr()).status();
    let status = status.with_context(|| format!("cannot start `{}`", shown(command)))?;
    ensure!(status.success(), "`{}` failed: {status}", shown(command));
    Ok(())
}

/// Runs a command as [`run`] does, and kills it when it takes longer than the limit.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let child = command.stdin(Stdio::null()).stdout(io::stderr()).spawn();
    let mut child = child.with_context(|| format!("cannot start `{}`", shown(command)))?;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "`{}` failed: {status}", shown(command));
            return Ok(());
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            bail!("`{}` was not done after {}", shown(command), seconds(limit));
        }
        thread::sleep(POLL);
    }
}

/// Runs a short command and returns what it wrote on stdout, trimmed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}: {}", shown(command), output.status, complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The cargo that started xtask, in the workspace, with the one target directory of native builds.
pub(crate) fn cargo(paths: &Paths) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    forget_this_package(&mut cargo);
    cargo
}

/// Removes the variables that `cargo run` sets for xtask itself: build scripts that watch them would run again each
/// time.
pub(crate) fn forget_this_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CARGO_PKG_") || bytes.starts_with(b"CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// The first executable file of that name on `PATH`.
pub(crate) fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| is_executable(candidate))
}

/// Whether the path is a file that may be executed.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
