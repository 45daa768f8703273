//! A real Envoy, started from a bootstrap of this repository on ports of its own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    Client, Request,
    control_plane::from_environment,
    process::Process,
    site::{free_port, replaced, repository},
    wait,
};

/// The ports that the bootstraps name.
const XDS_PORT: &str = "port_value: 18000";
const ADMIN_PORT: &str = "port_value: 9901";

/// A release of Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The release that everything is tested with.
    Usual,
    /// The oldest release that is supported.
    Oldest,
    /// A release that is older than that.
    TooOld,
    /// A build without the Wasm runtime V8.
    WithoutWasm,
}

impl Release {
    /// The variable that names the program.
    const fn variable(self) -> &'static str {
        match self {
            Self::Usual => "POSTERN_ENVOY",
            Self::Oldest => "POSTERN_OLDEST_ENVOY",
            Self::TooOld => "POSTERN_TOO_OLD_ENVOY",
            Self::WithoutWasm => "POSTERN_ENVOY_WITHOUT_WASM",
        }
    }
}

/// A running Envoy. Dropping it ends it.
#[derive(Debug)]
pub struct Envoy {
    release: Release,
    options: Vec<String>,
    /// Its working directory, if it has one of its own.
    working: Option<PathBuf>,
    process: Process,
    admin: SocketAddr,
    bootstrap: PathBuf,
    _directory: TempDir,
}

impl Envoy {
    /// Starts `envoy-config/whole.yaml` as a node of the control plane at `xds`.
    pub fn whole(xds: SocketAddr) -> Result<Self> {
        Self::start("whole.yaml", xds, &[])
    }

    /// Starts a bootstrap of `envoy-config/` with its ports, and what else is asked for, replaced.
    pub fn start(bootstrap: &str, xds: SocketAddr, replace: &[(&str, &str)]) -> Result<Self> {
        Self::start_release(Release::Usual, bootstrap, xds, replace)
    }

    /// Like [`Self::start`], with another release of Envoy.
    pub fn start_release(release: Release, bootstrap: &str, xds: SocketAddr, replace: &[(&str, &str)]) -> Result<Self> {
        let port = format!("port_value: {}", xds.port());
        let (text, admin) = adapted(bootstrap, &[&[(XDS_PORT, port.as_str())], replace].concat())?;
        Self::launched(release, &text, admin)
    }

    /// Like [`Self::start`], with a working directory: relative paths in its configuration are below it.
    pub fn start_in(working: &Path, bootstrap: &str, xds: SocketAddr, replace: &[(&str, &str)]) -> Result<Self> {
        let port = format!("port_value: {}", xds.port());
        let (text, admin) = adapted(bootstrap, &[&[(XDS_PORT, port.as_str())], replace].concat())?;
        Self::launched_with(Release::Usual, &text, admin, &[], Some(working))
    }

    /// Like [`Self::start`], for a bootstrap that names no xDS server.
    pub fn start_alone(bootstrap: &str, replace: &[(&str, &str)]) -> Result<Self> {
        let (text, admin) = adapted(bootstrap, replace)?;
        Self::from_bootstrap(&text, admin)
    }

    /// Starts a bootstrap as it is; `admin` is the address of the admin interface that it names.
    pub fn from_bootstrap(text: &str, admin: SocketAddr) -> Result<Self> {
        Self::launched(Release::Usual, text, admin)
    }

    /// Like [`Self::from_bootstrap`], with the time in seconds for which replaced listeners drain.
    pub fn from_bootstrap_draining_for(text: &str, admin: SocketAddr, seconds: u32) -> Result<Self> {
        Self::launched_with(Release::Usual, text, admin, &["--drain-time-s".to_owned(), seconds.to_string()], None)
    }

    fn launched(release: Release, text: &str, admin: SocketAddr) -> Result<Self> {
        Self::launched_with(release, text, admin, &[], None)
    }

    fn launched_with(
        release: Release,
        text: &str,
        admin: SocketAddr,
        options: &[String],
        working: Option<&Path>,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("bootstrap.yaml");
        fs::write(&path, text)?;
        let (options, working) = (options.to_vec(), working.map(Path::to_owned));
        let process = launch(release, &path, &options, working.as_deref())?;
        let envoy = Self { release, options, working, process, admin, bootstrap: path, _directory: directory };
        envoy.wait_until_live()?;
        Ok(envoy)
    }

    /// Kills it (SIGKILL) and starts it anew: the same node, with nothing in its memory.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = launch(self.release, &self.bootstrap, &self.options, self.working.as_deref())?;
        self.wait_until_live()
    }

    /// The address of its admin interface.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its log so far.
    pub fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    /// Its access log so far: a JSON object a request.
    pub fn access_log(&self) -> Vec<Value> {
        self.process.stdout().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until a gateway answers `request` with 200 and the access log has every probe that was sent for it: Envoy
    /// writes it a little later than it answers, and whoever reads it by place must not find a probe there.
    pub fn wait_until_serving(&self, gateway: SocketAddr, request: &Request) -> Result<()> {
        let before = self.access_log_len();
        let mut answered = 0;
        wait::until_true("the gateway to serve", || {
            let status = Client::new(gateway).send(request)?.status;
            answered += 1;
            Ok(status == 200)
        })?;
        wait::until_true("the access log", || Ok(self.access_log_len() >= before + answered))?;
        Ok(())
    }

    /// How many requests its access log has.
    pub fn access_log_len(&self) -> usize {
        self.process.stdout_len()
    }

    /// A request of its access log, by its index; `None` if it is not there yet.
    pub fn access_log_line(&self, index: usize) -> Option<Value> {
        self.process.stdout_line(index).and_then(|line| serde_json::from_str(&line).ok())
    }

    /// The value of a counter or gauge; `None` if it does not exist (yet).
    pub fn stat(&self, name: &str) -> Result<Option<u64>> {
        let stats = self.stats(name)?;
        Ok(stats.into_iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value))
    }

    /// All counters and gauges whose name contains `part`.
    pub fn stats(&self, part: &str) -> Result<Vec<(String, u64)>> {
        let answer = Client::new(self.admin).get(&format!("/stats?filter={part}"))?;
        let parse = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(answer.body.lines().filter_map(parse).collect())
    }

    /// How many messages of the control plane had fields that this Envoy does not know and so ignored.
    pub fn unknown_fields(&self) -> Result<u64> {
        Ok(self.stat("server.dynamic_unknown_fields")?.unwrap_or_default())
    }

    fn wait_until_live(&self) -> Result<()> {
        let admin = self.admin;
        wait::until_true("Envoy to be live", || Ok(Client::new(admin).get("/ready")?.status == 200))
            .with_context(|| self.log().join("\n"))?;
        Ok(())
    }
}

impl Drop for Envoy {
    /// Asserts that the Envoy knew every field that it was sent, whatever the test was about.
    #[expect(clippy::panic, reason = "it fails the test that dropped it")]
    fn drop(&mut self) {
        if !std::thread::panicking() && self.unknown_fields().is_ok_and(|count| count > 0) {
            let warnings: Vec<_> = self.log().into_iter().filter(|line| line.contains("nknown field")).collect();
            panic!("Envoy was sent fields that it does not know: {warnings:#?}");
        }
    }
}

/// A bootstrap of this repository with a free port for its admin interface, and other replacements.
fn adapted(bootstrap: &str, replace: &[(&str, &str)]) -> Result<(String, SocketAddr)> {
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let mut text = fs::read_to_string(repository().join("envoy-config").join(bootstrap))?;
    text = replaced(&text, ADMIN_PORT, &format!("port_value: {}", admin.port()))?;
    for (from, to) in replace {
        text = replaced(&text, from, to)?;
    }
    Ok((text, admin))
}

fn launch(release: Release, bootstrap: &Path, options: &[String], working: Option<&Path>) -> Result<Process> {
    let mut command = Command::new(from_environment(release.variable())?);
    working.map(|working| command.current_dir(working));
    command.arg("-c").arg(bootstrap);
    // No hot restart: it would share memory between Envoys on one machine. Logs are flushed as they come.
    command.args(["--disable-hot-restart", "--concurrency", "2", "--file-flush-interval-msec", "20"]);
    command.args(["--log-level", "info"]).args(options);
    Process::start("envoy", &mut command)
}
