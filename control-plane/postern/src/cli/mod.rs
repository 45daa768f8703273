//! The command line: the commands of `postern`, and the exit codes that scripts can rely on.

mod bootstrap;
mod canary;
mod client;
mod clients;
mod completing;
mod conditions;
mod diff;
mod events;
mod explain;
mod filter;
mod logging;
mod node_cache;
mod options;
mod purge;
mod remote;
mod resource_name;
mod resources;
mod status;
mod table;
mod test;
mod validate;
mod warnings;

use std::{
    env,
    net::SocketAddr,
    path::PathBuf,
    process::{self, ExitCode},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::{CompleteEnv, Shell, env::Shells};
use postern_base::{open_files, terminal};
use postern_deliver::{
    discovery,
    files::{self, Delivery},
    xds::Limits,
};
use postern_model::{directory, schema};
use postern_release::{
    publication::Publication,
    releases::{KEPT, Releases, Terms},
    rollout::{Strategy, Tolerance},
    store::{Database, Memory, Store},
};
use postern_tools::{eval::Eval, reference};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time,
};

use self::{
    bootstrap::Bootstrap,
    canary::{CanaryStep, duration, tolerance},
    diff::Diff,
    events::Events,
    explain::{Explain, Simulate},
    filter::FilterOptions,
    logging::Logging,
    node_cache::NodeCache,
    purge::Purge,
    remote::{Apply, Rollback, RolloutCommand},
    resources::{Delete, Get},
    status::{Nodes, Revisions, Status},
    test::Test,
    validate::Validate,
};
use crate::{
    admin::metrics_page,
    control_plane::ControlPlane,
    http,
    reload::Reloads,
    serve::{Followed, ServeError, Sockets, follow, serve_with},
};

/// Route policies that run inside Envoy, proven before they get there.
#[derive(Debug, Parser)]
#[command(name = "postern", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The longest time that the end waits for a change under way.
const LONGEST_FAREWELL: Duration = Duration::from_secs(5);

const EXIT_CODES: &str = "Exit codes: 0 it went well, 1 it did not, 2 wrong usage. `diff` and `simulate` answer by theirs: 0 no \
                          change, or the request goes upstream; 1 a change, or the request is answered; 2 trouble.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory of resources to Envoys over xDS, and follow its changes
    Serve(Box<Serve>),
    NodeCache(Box<NodeCache>),
    Eval(Eval),
    Explain(Explain),
    Simulate(Simulate),
    Validate(Validate),
    /// Run your own tests of policies, without a server; exit code 1 if one fails
    Test(Test),
    /// Put a directory of resources in force as a new revision of a running control plane
    Apply(Apply),
    Diff(Diff),
    Status(Status),
    Nodes(Nodes),
    Get(Get),
    Delete(Delete),
    Purge(Purge),
    Events(Events),
    Revisions(Revisions),
    /// Go back to what an earlier revision said, as a new revision
    Rollback(Rollback),
    /// Pause, resume or abort the rollout under way
    #[command(subcommand)]
    Rollout(RolloutCommand),
    /// Print what an Envoy is started with to be a node of this control plane
    Bootstrap(Bootstrap),
    /// Print a script that completes commands and options in a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print a JSON Schema of all resources, or of one kind, for editors
    Schema {
        /// The kind, such as `Gateway`; all of them if left out
        kind: Option<String>,
    },
    /// Write a page of docs/ to the standard output
    #[command(hide = true)]
    Reference {
        /// Which one
        page: Page,
    },
}

#[derive(Debug, Args)]
struct Serve {
    /// A YAML file with flags of this command, such as `xds: 127.0.0.1:18000`. The command line and the environment take
    /// precedence
    #[arg(long, value_name = "FILE", env = "POSTERN_CONFIG_FILE")]
    config_file: Option<PathBuf>,
    /// The directory with `.yaml` files; a change in it is in force at once. Without it, all changes come by `postern apply`,
    /// and `--state` keeps them
    #[arg(long, value_name = "DIR", required_unless_present = "state")]
    config: Option<PathBuf>,
    /// Where revisions are kept; default: in memory, and a restart begins with revision 1
    #[arg(long, value_name = "DIR", env = "POSTERN_STATE")]
    state: Option<PathBuf>,
    /// The file with the key that stored resources are sealed with, made with the store; default: `store.key` beside it
    #[arg(long, value_name = "FILE", env = "POSTERN_STATE_KEY", requires = "state")]
    state_key: Option<PathBuf>,
    /// How many revisions are kept to go back to, unless `Settings` say it
    #[arg(long, value_name = "N", default_value_t = KEPT, value_parser = kept)]
    keep: usize,
    /// A step of every rollout: a share of the nodes or a tag, and how long to wait there, such as `25%:30s` or `stage=canary:1m`;
    /// more than once for more steps. Default: all nodes at once. What `Settings` say goes first
    #[arg(long = "canary", value_name = "STEP")]
    canary: Vec<CanaryStep>,
    /// How many nodes may refuse a revision before all go back: a number, or a share such as `5%`. Nodes count that ran the last
    /// good revision when this one started. What `Settings` say goes first
    #[arg(long, value_name = "N|SHARE", default_value = "0", value_parser = tolerance)]
    max_refused: Tolerance,
    /// How long a node that refused a revision must be away until the revision is tried again without it: the node has then left
    /// for good, and no longer holds up the others
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    departed_after: Duration,
    /// Let changes of the directory leave routes without authentication that have it now, or remove everything
    #[arg(long, requires = "config")]
    allow_unguarded: bool,
    /// Exit with the errors of a directory that is not valid, if nothing is stored that could be served in its place. Default:
    /// what is valid is served, and what is not answers 500 until it is mended
    #[arg(long, requires = "config")]
    strict: bool,
    #[command(flatten)]
    filter: FilterOptions,
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
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    discovery: discovery::Options,
    #[command(flatten)]
    web: http::Options,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Page {
    Policies,
    Resources,
    Expressions,
    Metrics,
}

impl Page {
    fn write(self) -> String {
        match self {
            Self::Policies => reference::policies(),
            Self::Resources => reference::resources(),
            Self::Expressions => reference::expressions(),
            Self::Metrics => metrics_page(),
        }
    }
}

impl Cli {
    /// Parses the command line, the environment and the file that they name. Ends the program if something is wrong, if
    /// help is asked for, or if a shell asks for completions.
    pub fn from_environment() -> Self {
        let command = || options::with_environment(completing::with_candidates(Self::command()));
        CompleteEnv::with_factory(command).complete();
        let arguments = match options::with_file(env::args_os().collect(), &command()) {
            Ok(arguments) => arguments,
            Err(error) => {
                eprintln!("{error:#}");
                process::exit(2);
            }
        };
        let matches = command().get_matches_from(arguments);
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Runs the command. Returns 0 for success, 1 for failure, 2 for wrong usage. For the two commands that answer a
    /// question it is 0 for no, 1 for yes and 2 for an error.
    pub fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Diff(options) => return answer(options.run()),
            Command::Simulate(options) => return answer(options.run().map(|upstream| !upstream)),
            Command::Serve(options) => options.run(),
            Command::NodeCache(options) => options.run(),
            Command::Eval(options) => options.run(),
            Command::Explain(options) => options.run(),
            Command::Validate(options) => options.run(),
            Command::Test(options) => options.run(),
            Command::Apply(options) => options.run(),
            Command::Status(options) => options.run(),
            Command::Nodes(options) => options.run(),
            Command::Get(options) => options.run(),
            Command::Delete(options) => options.run(),
            Command::Purge(options) => options.run(),
            Command::Events(options) => options.run(),
            Command::Revisions(options) => options.run(),
            Command::Rollback(options) => options.run(),
            Command::Rollout(command) => command.run(),
            Command::Bootstrap(options) => options.run(),
            Command::Completions { shell } => print_completions(shell),
            Command::Schema { kind } => print_schema(kind.as_deref()),
            Command::Reference { page } => {
                print!("{}", page.write());
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

/// The exit code of a question, as for `diff` and `grep`.
fn answer(answer: anyhow::Result<bool>) -> ExitCode {
    match answer {
        Ok(answer) => ExitCode::from(u8::from(answer)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

impl Serve {
    #[tokio::main]
    async fn run(self) -> anyhow::Result<()> {
        self.logging.start()?;
        for path in self.config.iter().flat_map(|config| directory::ignored(config)) {
            tracing::warn!(file = %path.display(), "ignored: resources are read from `.yaml` and `.yml` files");
        }
        let reloads = Reloads::on_hangup()?;
        open_files::allow_most(self.limits.streams);
        let code = self.filter.read(self.state.as_deref(), self.filter_on_nodes.clone())?;
        let store: Arc<dyn Store> = match (&self.state, &self.state_key) {
            (None, _) => Arc::new(Memory::default()),
            (Some(state), None) => Arc::new(Database::open(state)?),
            (Some(state), Some(key)) => Arc::new(Database::open_with(state, key)?),
        };
        let steps: Vec<_> = self.canary.iter().map(|step| step.0.clone()).collect();
        let strategy = if steps.is_empty() { Strategy::AllAtOnce } else { Strategy::Canary(steps) };
        let terms = Terms { strategy, tolerance: self.max_refused, departed_after: self.departed_after };
        let plane = Arc::new(ControlPlane::with_releases(code, Releases::new(store, terms, self.keep)));
        let delivery = self.files.delivery()?;
        let sockets = Sockets::bind(self.xds, self.http).await?;
        tracing::info!(xds = %sockets.xds_address()?, http = %sockets.http_address()?, "listening");
        let (allow_unguarded, strict) = (self.allow_unguarded, self.strict);
        let directory = self.config.as_deref().map(|path| Followed { path, allow_unguarded, strict });
        let mut terminated = signal(SignalKind::terminate())?;
        // In a task of its own, so that connections are accepted while a change is compiled.
        let (limits, web, discovery) = (self.limits.clone(), self.web.clone(), self.discovery.clone());
        let served = tokio::spawn(serve_with(Arc::clone(&plane), sockets, limits, web, discovery));
        tokio::select! {
            ended = follow(Arc::clone(&plane), directory, reloads) => ended?,
            () = deliver(delivery, plane.publications().follow()) => {}
            ended = served => ended.map_err(ServeError::Ended)??,
            _ = tokio::signal::ctrl_c() => tracing::info!("interrupted"),
            _ = terminated.recv() => tracing::info!("terminated"),
        }
        // A change under way is stored, if that is quick.
        let _ = time::timeout(LONGEST_FAREWELL, plane.commands().end()).await;
        Ok(())
    }
}

/// Prints what a shell runs to ask this program for completions.
fn print_completions(shell: Shell) -> anyhow::Result<()> {
    let (name, shells) = (shell.to_string(), Shells::builtins());
    let completer = shells.completer(&name).with_context(|| format!("there are no completions for {name}"))?;
    let mut script = Vec::new();
    completer.write_registration("COMPLETE", "postern", "postern", "postern", &mut script)?;
    Ok(terminal::write(&String::from_utf8_lossy(&script))?)
}

fn print_schema(kind: Option<&str>) -> anyhow::Result<()> {
    let schema = match kind {
        Some(kind) => schema::of_kind(kind)?,
        None => schema::of_all_kinds(),
    };
    Ok(terminal::write(&format!("{schema:#}\n"))?)
}

/// Delivers to files until the publications end. Never returns if no delivery was asked for.
async fn deliver(delivery: Option<Delivery>, publications: watch::Receiver<Option<Arc<Publication>>>) {
    match delivery {
        Some(delivery) => delivery.follow(publications).await,
        None => std::future::pending().await,
    }
}

fn kept(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=10_000).contains(&number) => Ok(number),
        _ => Err("expected a number from 1 to 10000".to_owned()),
    }
}
