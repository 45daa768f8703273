//! The servers that ext_authz and ext_proc ask, each as a process of its own: the bench's program, started anew.

mod ext_authz;
mod ext_proc;

use std::{env, net::SocketAddr, process::Command};

use anyhow::Result;
use clap::ValueEnum;
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use tokio::{net::TcpListener, runtime};
use tonic::transport::{Server, server::TcpIncoming};

use super::policies::Policies;
use crate::process::Process;

/// What a line of a server's standard error begins with once it listens.
const LISTENING: &str = "listening on ";

/// How Envoy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    ExtAuthz,
    ExtProc,
}

/// A server under guard. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    address: SocketAddr,
}

impl Running {
    pub(super) fn start(protocol: Protocol, policies: Policies) -> Result<Self> {
        let (name, policies) = (name(protocol), name(policies));
        let mut command = Command::new(env::current_exe()?);
        command.args(["--serve", &name, "--policies", &policies]);
        let mut process = Process::start(&name, &mut command)?;
        let find = |line: &str| line.strip_prefix(LISTENING)?.parse().ok();
        let address = process.wait_for_line("its address", find)?;
        Ok(Self { process, address })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The name of a value on the command line.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Serves until killed. One thread: it is the cheapest a server can be, and Envoy has one worker too.
pub(super) fn serve(protocol: Protocol, policies: Policies) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        eprintln!("{LISTENING}{}", listener.local_addr()?);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let mut server = Server::builder();
        let router = match protocol {
            Protocol::ExtAuthz => server.add_service(ext_authz::service(policies)?),
            Protocol::ExtProc => server.add_service(ext_proc::service(policies)?),
        };
        Ok(router.serve_with_incoming(incoming).await?)
    })
}

/// A header to be set in place of what it had. ext_proc reads only the raw value, ext_authz only the text.
fn overwriting(value: HeaderValue) -> HeaderValueOption {
    let action = HeaderAppendAction::OverwriteIfExistsOrAdd;
    HeaderValueOption { header: Some(value), append_action: action.into(), ..Default::default() }
}
