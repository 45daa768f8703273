//! The processes of one case: its Envoy, the server that it may need, and the connections of the load.

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{
    bootstrap::Bootstrap,
    cases::{Case, Meaning},
    cpu,
    load::Load,
    places::Places,
    policies::{KEY, KEY_HEADER, envoy_names, route_path},
    server, upstream,
};
use crate::{Client, Request, control_plane::from_environment, process::Process, site::free_port, wait};

/// A case, ready for requests. Dropping it ends its processes.
pub(super) struct Stage {
    envoy: Process,
    server: Option<server::Running>,
    load: Load,
    _directory: TempDir,
}

impl Stage {
    /// Starts what the case needs and checks that it does what it is for.
    pub(super) fn start(case: &Case, places: &Places, upstream: SocketAddr, connections: u32) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (admin, listener) = (local(free_port()?), local(free_port()?));
        let filters = case.subject.filters(case.routes, directory.path())?;
        let server =
            case.subject.server().map(|(protocol, policies)| server::Running::start(protocol, policies)).transpose()?;
        let address = server.as_ref().map(server::Running::address);
        let bootstrap =
            Bootstrap { admin, listener, upstream, server: address, filters, routes: envoy_names(case.routes)? };
        let path = directory.path().join("bootstrap.json");
        fs::write(&path, bootstrap.json().to_string())?;
        let envoy = places.start_envoy(|| launch(&path))?;
        wait_until_live(&envoy, admin)?;
        let tokens = case.tokens.make()?;
        check(case.meaning, listener, tokens.first()).with_context(|| envoy.stderr().join("\n"))?;
        let load = Load::open(listener, connections, &tokens)?;
        Ok(Self { envoy, server, load, _directory: directory })
    }

    /// Sends requests that do not count, until caches are warm and code is compiled.
    pub(super) fn warm_up(&mut self, requests: u32) -> Result<()> {
        self.load.send(requests)
    }

    /// Sends requests and says what CPU time Envoy and the server spent on them.
    pub(super) fn measure(&mut self, requests: u32) -> Result<Duration> {
        let before = self.cpu()?;
        self.load.send(requests)?;
        Ok(self.cpu()?.saturating_sub(before))
    }

    fn cpu(&self) -> Result<Duration> {
        let envoy = cpu::spent(self.envoy.id())?;
        let server = self.server.as_ref().map(|server| cpu::spent(server.id())).transpose()?;
        Ok(envoy + server.unwrap_or_default())
    }
}

fn launch(bootstrap: &Path) -> Result<Process> {
    let mut command = Command::new(from_environment("POSTERN_ENVOY")?);
    command.arg("-c").arg(bootstrap);
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
    Process::start("envoy", &mut command)
}

fn wait_until_live(envoy: &Process, admin: SocketAddr) -> Result<()> {
    wait::until_true("Envoy to be live", || Ok(Client::new(admin).get("/ready")?.status == 200))
        .with_context(|| envoy.stderr().join("\n"))?;
    Ok(())
}

/// One request without a key and a token, and one with them.
fn check(meaning: Meaning, listener: SocketAddr, token: Option<&String>) -> Result<()> {
    let mut client = Client::new(listener);
    let without = client.get(&route_path(0))?.status;
    let expected = meaning.without_credentials;
    ensure!(without == expected, "a request without credentials got {without}, not {expected}");
    let request = Request::get(route_path(0)).header(KEY_HEADER, KEY);
    let answer = client.send(&match token {
        Some(token) => request.header("authorization", token),
        None => request,
    })?;
    ensure!(answer.status == 200, "a request with credentials got {}", answer.status);
    let expected = if meaning.edits { upstream::GUARDED } else { upstream::PLAIN };
    ensure!(answer.body == expected, "the upstream saw a {} request, not a {expected} one", answer.body);
    Ok(())
}
