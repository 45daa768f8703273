//! The command line: what `postern` can be told, and the exit codes that scripts can rely on.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::EnvFilter;

use crate::{
    eval::Eval,
    files::{self, Delivery},
    pipeline::compile,
    publication::Publication,
    reference,
    serve::{Hub, Sockets, follow, serve_within},
    snapshot::FilterCode,
    source,
    xds::Limits,
};

/// Route policies that run inside Envoy, proven before they get there.
#[derive(Debug, Parser)]
#[command(name = "postern", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory of resources to Envoys over xDS, and follow its changes
    Serve(Serve),
    Eval(Eval),
    /// Check a directory of resources without a server; exit code 1 if something is wrong
    Validate {
        /// The directory with `.yaml` files
        directory: PathBuf,
    },
    /// Write the reference of policies, docs/policies.md, to the standard output
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
struct Serve {
    /// The directory with `.yaml` files; a change in it is in force at once
    #[arg(long, value_name = "DIR")]
    config: PathBuf,
    /// The filter's code; default: `postern_filter.wasm` beside this program or in `filter/` next to its folder
    #[arg(long, value_name = "FILE", env = "POSTERN_FILTER")]
    filter: Option<PathBuf>,
    /// Where that file lies on every node; default: the code is sent with the configuration
    #[arg(long, value_name = "PATH")]
    filter_on_nodes: Option<PathBuf>,
    /// Where to serve xDS; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:18000")]
    xds: SocketAddr,
    /// Where to serve status and the filter's code over HTTP; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:18001")]
    http: SocketAddr,
    #[command(flatten)]
    files: files::Options,
    /// How log lines look
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Which log lines are shown, such as `debug` or `postern=debug,warn`
    #[arg(long, value_name = "FILTER", env = "POSTERN_LOG", default_value = "info")]
    log: String,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Cli {
    /// Runs the command and says how it went: 0 well, 1 not, 2 wrong usage.
    pub fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Serve(options) => options.run(),
            Command::Eval(options) => options.run(),
            Command::Validate { directory } => validate(&directory),
            Command::Reference => {
                print!("{}", reference::policies());
                Ok(())
            }
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

fn validate(directory: &Path) -> anyhow::Result<()> {
    let files = source::read(directory)?;
    // Which filter will run the resources has no influence on whether they are right.
    compile(&files, &FilterCode::new(Vec::new(), None))?;
    println!("{}: valid, {} files", directory.display(), files.len());
    Ok(())
}

impl Serve {
    #[tokio::main]
    async fn run(self) -> anyhow::Result<()> {
        self.start_logging()?;
        let code = FilterCode::new(self.read_filter()?, self.filter_on_nodes.clone());
        tracing::info!(filter = code.digest().short(), kilobytes = code.bytes().len() / 1024, "filter read");
        let hub = Arc::new(Hub::new(code));
        let delivery = self.files.delivery()?;
        let sockets = Sockets::bind(self.xds, self.http).await?;
        tracing::info!(xds = %sockets.xds_address()?, http = %sockets.http_address()?, "listening");
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            ended = follow(Arc::clone(&hub), &self.config) => ended?,
            () = deliver(delivery, hub.publications()) => {}
            ended = serve_within(Arc::clone(&hub), sockets, self.limits.clone()) => ended?,
            _ = tokio::signal::ctrl_c() => tracing::info!("interrupted"),
            _ = terminated.recv() => tracing::info!("terminated"),
        }
        Ok(())
    }

    fn start_logging(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).with_context(|| format!("`{}` is not a log filter", self.log))?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        match self.log_format {
            LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
            LogFormat::Json => lines.json().init(),
        }
        Ok(())
    }

    fn read_filter(&self) -> anyhow::Result<Vec<u8>> {
        let path = match &self.filter {
            Some(path) => path.clone(),
            None => find_filter().context(
                "the filter's code was not found: build it with `cargo xtask build-filter`, or name it with `--filter`",
            )?,
        };
        let bytes = fs::read(&path).with_context(|| format!("cannot read the filter {}", path.display()))?;
        anyhow::ensure!(bytes.starts_with(b"\0asm"), "{} is not a WebAssembly module", path.display());
        Ok(bytes)
    }
}

/// Delivers to files for as long as there is something to deliver, or never ends if nobody asked for that.
async fn deliver(delivery: Option<Delivery>, publications: watch::Receiver<Option<Arc<Publication>>>) {
    match delivery {
        Some(delivery) => delivery.follow(publications).await,
        None => std::future::pending().await,
    }
}

/// The filter beside this program, as a package lays it out, or where a build of this repository puts it.
fn find_filter() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let beside = folder.join("postern_filter.wasm");
    let built = folder.parent()?.join("filter/postern_filter.wasm");
    [beside, built].into_iter().find(|path| path.is_file())
}
