//! The real `postern serve`, as a process.

use std::{
    env,
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{Client, process::Process, wait};

/// A running control plane. Dropping it ends it.
#[derive(Debug)]
pub struct ControlPlane {
    process: Process,
    /// The arguments that it was started with, without its addresses.
    arguments: Vec<OsString>,
    xds: SocketAddr,
    http: SocketAddr,
}

impl ControlPlane {
    /// Serves a directory on free ports.
    pub fn start(config: &Path) -> Result<Self> {
        Self::start_with(config, &[])
    }

    /// Like [`Self::start`], with further options.
    pub fn start_with(config: &Path, options: &[&OsStr]) -> Result<Self> {
        let mut arguments = vec!["--config".into(), config.into()];
        arguments.extend(options.iter().map(OsString::from));
        Self::start_anywhere(arguments)
    }

    /// Like [`Self::start`], with a directory for its state, and further options.
    pub fn start_with_state(config: &Path, state: &Path, options: &[&str]) -> Result<Self> {
        let mut arguments = vec!["--config".into(), config.into(), "--state".into(), state.into()];
        arguments.extend(options.iter().map(OsString::from));
        Self::start_anywhere(arguments)
    }

    /// Starts one that follows no directory. Nothing is in force until something is applied.
    pub fn start_without_directory(state: &Path) -> Result<Self> {
        Self::start_anywhere(vec!["--state".into(), state.into()])
    }

    /// Like [`Self::start_with`], with a limit on open files.
    pub fn start_with_open_files(config: &Path, options: &[&str], files: u32) -> Result<Self> {
        let mut arguments = vec!["--config".into(), config.into()];
        arguments.extend(options.iter().map(OsString::from));
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {files} && exec \"$@\""), "sh"]);
        limited.arg(from_environment("POSTERN_BIN")?).env("POSTERN_FILTER", from_environment("POSTERN_FILTER")?);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_by(limited, arguments, any, any)
    }

    fn start_anywhere(arguments: Vec<OsString>) -> Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_on(arguments, any, any)
    }

    fn start_on(arguments: Vec<OsString>, xds: SocketAddr, http: SocketAddr) -> Result<Self> {
        Self::start_by(Self::command()?, arguments, xds, http)
    }

    fn start_by(mut command: Command, arguments: Vec<OsString>, xds: SocketAddr, http: SocketAddr) -> Result<Self> {
        command.args(["serve", "--xds", &xds.to_string(), "--http", &http.to_string()]).args(&arguments);
        let mut process = Process::start("postern", &mut command)?;
        let listening = |line: &str| Some((field(line, "xds=")?, field(line, "http=")?));
        let (xds, http) = process.wait_for_line("its addresses", listening)?;
        if arguments.iter().any(|argument| argument == "--config") {
            process.wait_for_line("its first revision", |line| line.contains("in force").then_some(()))?;
        }
        Ok(Self { process, arguments, xds, http })
    }

    /// The command for the program, with the filter under test and no other arguments.
    pub fn command() -> Result<Command> {
        let mut command = Command::new(from_environment("POSTERN_BIN")?);
        command.env("POSTERN_FILTER", from_environment("POSTERN_FILTER")?);
        Ok(command)
    }

    /// Kills it (SIGKILL) and starts it anew on the same addresses.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.kill();
        *self = Self::start_on(std::mem::take(&mut self.arguments), self.xds, self.http)?;
        Ok(())
    }

    /// Like [`Self::kill_and_restart`], with other arguments in place of the last `dropped` ones.
    pub fn kill_and_restart_with(&mut self, dropped: usize, arguments: &[&str]) -> Result<()> {
        self.kill();
        self.arguments.truncate(self.arguments.len().saturating_sub(dropped));
        self.arguments.extend(arguments.iter().map(OsString::from));
        *self = Self::start_on(std::mem::take(&mut self.arguments), self.xds, self.http)?;
        Ok(())
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where xDS is served.
    pub fn xds(&self) -> SocketAddr {
        self.xds
    }

    /// Where HTTP is served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Its log so far.
    pub fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    /// The answer of `/status`.
    pub fn status(&self) -> Result<Value> {
        status(self.http)
    }

    /// Waits until `/status` fits, and returns it.
    pub fn wait_for_status(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
        wait_for_status(self.http, what, fits)
    }
}

/// The answer of `/status` of the control plane at an address.
pub fn status(http: SocketAddr) -> Result<Value> {
    Ok(serde_json::from_str(&Client::new(http).get("/status")?.body)?)
}

/// Waits until `/status` of the control plane at an address fits, and returns it.
pub fn wait_for_status(http: SocketAddr, what: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
    let (status, _) = wait::until(what, || {
        let status = status(http)?;
        Ok(fits(&status).then_some(status))
    })?;
    Ok(status)
}

/// The path that `cargo xtask` has set in an environment variable.
pub fn from_environment(name: &str) -> Result<PathBuf> {
    let path = env::var_os(name).map(PathBuf::from);
    path.with_context(|| format!("{name} is not set: start this with `cargo xtask test` or `cargo xtask demo`"))
}

/// The address behind `key` in a log line.
fn field(line: &str, key: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(key)?;
    rest.split_whitespace().next()?.parse().ok()
}
