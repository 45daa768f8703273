//! The real `postern node-cache`, as a process.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{ControlPlane, process::Process};

/// A running node cache. Dropping it ends it.
#[derive(Debug)]
pub struct NodeCache {
    process: Process,
    state: PathBuf,
    control_plane: SocketAddr,
    options: Vec<String>,
    address: SocketAddr,
}

impl NodeCache {
    /// Starts one on a free port, for a control plane, with a directory for its state and further options.
    pub fn start(control_plane: SocketAddr, state: &Path, options: &[&str]) -> Result<Self> {
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        Self::start_on(control_plane, state, options, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn start_on(control_plane: SocketAddr, state: &Path, options: Vec<String>, listen: SocketAddr) -> Result<Self> {
        let mut command = ControlPlane::command()?;
        command.args(["node-cache", "--listen", &listen.to_string(), "--xds", &control_plane.to_string(), "--state"]);
        command.arg(state).args(&options);
        let mut process = Process::start("node cache", &mut command)?;
        let listening = |line: &str| line.split_once("node_cache=")?.1.split_whitespace().next()?.parse().ok();
        let address = process.wait_for_line("its address", listening)?;
        Ok(Self { process, state: state.to_owned(), control_plane, options, address })
    }

    /// Kills it (SIGKILL) and starts it anew on the same address.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.kill();
        *self = Self::start_on(self.control_plane, &self.state, std::mem::take(&mut self.options), self.address)?;
        Ok(())
    }

    /// Ends it (SIGTERM), so that all that was accepted is on the disk, and starts it anew on the same address.
    pub fn restart(&mut self) -> Result<()> {
        self.process.terminate()?;
        self.kill_and_restart()
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its log so far.
    pub fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    /// The only file of a node in its directory.
    pub fn file(&self) -> Result<PathBuf> {
        let entries = self.state.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let is_node = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "node");
        entries.iter().find(is_node).cloned().with_context(|| format!("nothing is kept in {}", self.state.display()))
    }
}
