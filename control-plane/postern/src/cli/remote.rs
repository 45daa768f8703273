//! Commands that change what a running control plane has in force, and wait for the nodes.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::{Args, Subcommand};
use postern_base::node::DEFAULT_MESH;
use serde_json::{Value, json};

use super::{
    client::{Output, Remote, at, items, text},
    resource_name::Reference,
    sources, warnings,
};

/// The interval of polling for progress.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Apply {
    /// Files, directories with `.yaml` files, or `-` for the standard input
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    remote: Remote,
}

/// How a revision is made of something new.
#[derive(Debug, Args)]
pub(super) struct Change {
    /// Only say whether it would be taken
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) waiting: Waiting,
    #[command(flatten)]
    pub(super) unguarded: AllowUnguarded,
    /// Why
    #[arg(long, short, value_name = "TEXT", default_value = "")]
    pub(super) message: String,
    /// The number of the revision that this follows: refuse if another came in between
    #[arg(long, value_name = "N")]
    pub(super) parent: Option<u64>,
}

/// The explicit word for a change that opens routes.
#[derive(Debug, Args)]
pub(super) struct AllowUnguarded {
    /// Let it leave routes without authentication that have it now, or remove the last resource
    #[arg(long)]
    pub(super) allow_unguarded: bool,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {
    /// The number of the revision to go back to
    revision: u64,
    /// Go back with this resource alone, such as `RoutePolicy/users-api`, and leave all others as they are; more than once for
    /// more resources
    #[arg(long, value_name = "KIND/NAME")]
    only: Vec<Reference>,
    /// The mesh of these resources; default: `default`
    #[arg(long, value_name = "NAME", requires = "only")]
    mesh: Option<String>,
    /// Spread it like any other change, by the settings in force. Default: to all nodes at once, without pauses
    #[arg(long)]
    gradually: bool,
    /// Spread it by this step, such as `25%:30s` or `stage=canary:1m`; more than once for more steps
    #[arg(long = "canary", value_name = "STEP", conflicts_with = "gradually")]
    canary: Vec<String>,
    #[command(flatten)]
    unguarded: AllowUnguarded,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    remote: Remote,
}

/// Whether and how long to wait for nodes.
#[derive(Debug, Args)]
pub(super) struct Waiting {
    /// Wait until every live node runs it, or it was rolled back
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

#[derive(Debug, Subcommand)]
pub(super) enum RolloutCommand {
    /// Go no further for now
    Pause(Remote),
    /// Go on
    Resume(Remote),
    /// Go to the next step without the pause of this one, as soon as its nodes have acknowledged
    Promote {
        /// To all nodes at once, without further steps
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Go back to the last good revision
    Abort(Remote),
}

impl Apply {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let files = sources::files(&self.sources)?;
        let Change { dry_run, waiting, unguarded, message, parent } = &self.change;
        let body = json!({
            "files": files,
            "dryRun": dry_run,
            "allowUnguarded": unguarded.allow_unguarded,
            "message": message,
            "author": author(),
        });
        let outcome = self.remote.server.post("/api/v1/apply", &body, *parent)?;
        waiting.finish(&self.remote, &outcome)
    }
}

impl Rollback {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let allow_unguarded = self.unguarded.allow_unguarded;
        let only = self.only.iter().map(|resource| resource.in_mesh(self.mesh.as_deref()));
        let only = only.collect::<anyhow::Result<Vec<_>>>()?;
        let body = json!({
            "revision": self.revision,
            "only": only,
            "allowUnguarded": allow_unguarded,
            "gradually": self.gradually,
            "canary": self.canary,
            "author": author(),
        });
        let outcome = self.remote.server.post("/api/v1/rollback", &body, None)?;
        self.waiting.finish(&self.remote, &outcome)
    }
}

impl RolloutCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (name, done, remote) = match &self {
            Self::Pause(remote) => ("pause", "paused", remote),
            Self::Resume(remote) => ("resume", "resumed", remote),
            Self::Promote { now: false, remote } => {
                ("promote", "promoted: the next step follows without a pause", remote)
            }
            Self::Promote { now: true, remote } => ("promote?now=true", "promoted: all nodes get it now", remote),
            Self::Abort(remote) => ("abort", "aborted: all nodes go back to the last good revision", remote),
        };
        remote.server.post(&format!("/api/v1/rollout/{name}"), &json!({}), None)?;
        if !remote.output.write(&remote.server.get("/api/v1/rollout")?)? {
            println!("{done}");
        }
        Ok(())
    }
}

/// The author to record: the user who runs the command.
pub(super) fn author() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "cli".to_owned())
}

impl Waiting {
    /// Prints the result of a change, and waits for the nodes if that was asked for.
    pub(super) fn finish(&self, remote: &Remote, outcome: &Value) -> anyhow::Result<()> {
        let number = at(outcome, "/revision/number").as_u64().filter(|_| self.wait);
        if remote.output != Output::Table {
            let Some(number) = number else { return remote.output.write(outcome).map(drop) };
            self.wait_for(remote, number)?;
            let revision = remote.server.get(&format!("/api/v1/revisions/{number}"))?;
            let mut result = outcome.clone();
            result.as_object_mut().map(|result| result.insert("revision".to_owned(), revision));
            return remote.output.write(&result).map(drop);
        }
        warnings::show(outcome);
        match (at(outcome, "/result").as_str().unwrap_or_default(), at(outcome, "/revision/number")) {
            ("created", number) => println!("revision {number} created"),
            ("unchanged", number) => println!("nothing to do: revision {number} says the same"),
            _ => println!("valid"),
        }
        for revived in items(at(outcome, "/revived")) {
            let mesh = at(revived, "/mesh").as_str().filter(|mesh| *mesh != DEFAULT_MESH);
            let mesh = mesh.map(|mesh| format!(" of mesh {mesh}")).unwrap_or_default();
            let [kind, name, field] = ["/kind", "/name", "/field"].map(|part| text(at(revived, part)));
            println!("valid again: {kind}/{name}{mesh}: {field}");
        }
        number.map_or(Ok(()), |number| self.wait_for(remote, number))
    }

    /// Shows the progress of a revision until its rollout has ended. Fails if it was rolled back, aborted or
    /// superseded, or after the time limit.
    fn wait_for(&self, remote: &Remote, number: u64) -> anyhow::Result<()> {
        let (begin, timeout) = (Instant::now(), Duration::from_secs(self.timeout));
        let mut progress = ProgressLine { silent: remote.output != Output::Table, shown: String::new() };
        loop {
            let rollout = remote.server.get("/api/v1/rollout")?;
            let revision = remote.server.get(&format!("/api/v1/revisions/{number}"))?;
            let ready = ready_nodes(&revision);
            progress.show(bar(&rollout, ready));
            if at(&rollout, "/candidate").as_u64() != Some(number) {
                progress.end();
                bail!("revision {} has taken the place of revision {number}", at(&rollout, "/candidate"));
            }
            let state = at(&rollout, "/state").as_str().unwrap_or_default();
            let late = begin.elapsed() > timeout;
            if late || ["completed", "rolledBack", "aborted"].contains(&state) {
                progress.end();
            }
            match state {
                "completed" => {
                    let took = begin.elapsed().as_secs_f64();
                    progress.say(&format!("revision {number} runs on {} nodes, {took:.1} s", ready.1));
                    return Ok(());
                }
                "rolledBack" => {
                    let node = at(&rollout, "/node").as_str().unwrap_or_default();
                    let reason = at(&rollout, "/reason").as_str().unwrap_or_default();
                    bail!("rolled back to revision {}: node `{node}`: {reason}", at(&rollout, "/lastGood"));
                }
                "aborted" => bail!("aborted: all nodes go back to revision {}", at(&rollout, "/lastGood")),
                _ if late => bail!("not on all nodes after {} s", timeout.as_secs()),
                _ => std::thread::sleep(LOOK),
            }
        }
    }
}

/// How many nodes run a revision, and how many are to.
fn ready_nodes(revision: &Value) -> (usize, usize) {
    let nodes = || items(at(revision, "/conditions")).iter().filter(|condition| at(condition, "/node").is_string());
    (nodes().filter(|condition| at(condition, "/status") == "True").count(), nodes().count())
}

fn bar(rollout: &Value, (ready, all): (usize, usize)) -> String {
    const WIDTH: usize = 30;
    let filled = (ready * WIDTH).checked_div(all).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH - filled));
    format!("step {} of {} [{bar}] {ready} of {all} nodes", at(rollout, "/step"), at(rollout, "/steps"))
}

/// The progress line.
struct ProgressLine {
    silent: bool,
    shown: String,
}

impl ProgressLine {
    /// Replaces the previous line on a terminal; elsewhere prints a new line.
    fn show(&mut self, line: String) {
        if self.silent || line == self.shown {
            return;
        }
        let mut out = std::io::stdout();
        let shown = if out.is_terminal() { write!(out, "\r\x1b[K{line}") } else { writeln!(out, "{line}") };
        // A closed output is reported by the exit code.
        let _ = shown.and_then(|()| out.flush());
        self.shown = line;
    }

    /// Ends the progress line, so that the next output starts a new one.
    fn end(&self) {
        if !self.silent && std::io::stdout().is_terminal() {
            println!();
        }
    }

    fn say(&self, line: &str) {
        if !self.silent {
            println!("{line}");
        }
    }
}
