//! Commands that talk to a running control plane.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{Output, Remote, at},
    table::{age, short, table},
};
use crate::source;

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Apply {
    /// The directory with `.yaml` files: all resources, and not a change to some
    directory: PathBuf,
    /// Only say whether it would be taken
    #[arg(long)]
    dry_run: bool,
    /// Wait until every live node runs it, or it was rolled back
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// Why
    #[arg(long, short, value_name = "TEXT", default_value = "")]
    message: String,
    /// The number of the revision that this follows: refuse if another came in between
    #[arg(long, value_name = "N")]
    parent: Option<u64>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {
    /// The number of the revision to go back to
    revision: u64,
    /// Wait until every live node runs it
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
pub(super) enum RolloutCommand {
    /// Go no further for now
    Pause(Remote),
    /// Go on
    Resume(Remote),
    /// Go back to the last good revision
    Abort(Remote),
}

impl Apply {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let file = |file: crate::model::File| {
            let text = String::from_utf8(file.bytes).with_context(|| format!("{} is not text", file.name))?;
            Ok(json!({ "name": file.name, "text": text }))
        };
        let files = source::read(&self.directory)?.into_iter().map(file).collect::<anyhow::Result<Vec<_>>>()?;
        let body = json!({ "files": files, "dryRun": self.dry_run, "message": self.message, "author": author() });
        let outcome = self.remote.post("/api/v1/apply", &body, self.parent)?;
        finish(&self.remote, &outcome, self.wait && !self.dry_run, self.timeout)
    }
}

impl Rollback {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let body = json!({ "revision": self.revision, "author": author() });
        let outcome = self.remote.post("/api/v1/rollback", &body, None)?;
        finish(&self.remote, &outcome, self.wait, self.timeout)
    }
}

impl RolloutCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (name, done, remote) = match &self {
            Self::Pause(remote) => ("pause", "paused", remote),
            Self::Resume(remote) => ("resume", "resumed", remote),
            Self::Abort(remote) => ("abort", "aborted: all nodes go back to the last good revision", remote),
        };
        remote.post(&format!("/api/v1/rollout/{name}"), &json!({}), None)?;
        println!("{done}");
        Ok(())
    }
}

fn finish(remote: &Remote, outcome: &Value, wait: bool, timeout: u64) -> anyhow::Result<()> {
    let number = at(outcome, "/revision/number").as_u64();
    if remote.output == Output::Json && !wait {
        println!("{outcome:#}");
        return Ok(());
    }
    match (at(outcome, "/result").as_str().unwrap_or_default(), number) {
        ("created", Some(number)) => println!("revision {number} created"),
        ("unchanged", Some(number)) => println!("nothing to do: revision {number} says the same"),
        _ => println!("valid"),
    }
    match number {
        Some(number) if wait => wait_for(remote, number, Duration::from_secs(timeout)),
        _ => Ok(()),
    }
}

/// Shows how nodes take a revision, until it is over.
fn wait_for(remote: &Remote, number: u64, timeout: Duration) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut shown = String::new();
    loop {
        let status = remote.get("/status")?;
        let revision = remote.get(&format!("/api/v1/revisions/{number}"))?;
        let rollout = at(&status, "/rollout");
        let ready = ready_nodes(&revision);
        let line = progress(rollout, ready);
        if line != shown {
            show_progress(&line);
            shown = line;
        }
        if at(rollout, "/candidate").as_u64() != Some(number) {
            end_progress();
            bail!("revision {} has taken the place of revision {number}", at(rollout, "/candidate"));
        }
        let state = at(rollout, "/state").as_str().unwrap_or_default();
        let late = begin.elapsed() > timeout;
        if late || ["completed", "rolledBack", "aborted"].contains(&state) {
            end_progress();
        }
        match state {
            "completed" => {
                println!("revision {number} runs on {} nodes, {:.1} s", ready.1, begin.elapsed().as_secs_f64());
                return Ok(());
            }
            "rolledBack" => {
                let node = at(rollout, "/node").as_str().unwrap_or_default();
                let reason = at(rollout, "/reason").as_str().unwrap_or_default();
                bail!("rolled back to revision {}: node `{node}`: {reason}", at(rollout, "/lastGood"));
            }
            "aborted" => bail!("aborted: all nodes go back to revision {}", at(rollout, "/lastGood")),
            _ if late => bail!("not on all nodes after {} s", timeout.as_secs()),
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// How many nodes run a revision, of how many that are to.
fn ready_nodes(revision: &Value) -> (usize, usize) {
    let conditions = at(revision, "/conditions").as_array().map(Vec::as_slice).unwrap_or_default();
    let nodes = || conditions.iter().filter(|condition| at(condition, "/node").is_string());
    (nodes().filter(|condition| at(condition, "/status") == "True").count(), nodes().count())
}

fn progress(rollout: &Value, (ready, all): (usize, usize)) -> String {
    const WIDTH: usize = 30;
    let filled = (ready * WIDTH).checked_div(all).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH - filled));
    format!("step {} of {} [{bar}] {ready} of {all} nodes", at(rollout, "/step"), at(rollout, "/steps"))
}

/// Over the line before on a terminal, else a line of its own.
fn show_progress(line: &str) {
    let mut out = std::io::stdout();
    let shown = if out.is_terminal() { write!(out, "\r\x1b[K{line}") } else { writeln!(out, "{line}") };
    // A reader that is gone is told by the exit code.
    let _ = shown.and_then(|()| out.flush());
}

/// What comes after progress stands on a line of its own.
fn end_progress() {
    if std::io::stdout().is_terminal() {
        println!();
    }
}

/// A table at a glance.
pub(super) fn status(remote: &Remote) -> anyhow::Result<()> {
    let status = remote.get("/status")?;
    if remote.output == Output::Json {
        println!("{status:#}");
        return Ok(());
    }
    let rollout = at(&status, "/rollout");
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if rollout.is_null() {
        println!("revision  none");
    } else {
        println!("revision  {} ({})", at(rollout, "/candidate"), short(at(&status, "/revision")));
        print!("rollout   {}, step {} of {}", text(at(rollout, "/state")), at(rollout, "/step"), at(rollout, "/steps"));
        println!("; last good: {}", text(at(rollout, "/lastGood")));
        if let Some(reason) = at(rollout, "/reason").as_str() {
            println!("          node `{}`: {reason}", text(at(rollout, "/node")));
        }
    }
    for line in at(&status, "/refusedChange").as_array().into_iter().flatten() {
        println!("refused   {}", text(line));
    }
    let absent = remote.get("/api/v1/nodes/absent")?;
    let absent = absent.as_object().into_iter().flatten().map(|(id, node)| {
        let ran = format!("ran revision {}", text(at(node, "/revision")));
        [id.clone(), text(at(node, "/service")), format!("no, seen {} ago", age(at(node, "/seen"))), ran, String::new()]
    });
    let listed = |id: &str| at(&status, "/nodes").as_array().into_iter().flatten().any(|node| at(node, "/id") == id);
    let absent: Vec<_> = absent.filter(|[id, ..]| !listed(id)).collect();
    let rows = at(&status, "/nodes").as_array().into_iter().flatten().map(|node| {
        let plan = at(node, "/types/extensionConfig");
        let refused = at(node, "/types").as_object().into_iter().flatten().find_map(|(kind, status)| {
            let refused = status.get("refused")?;
            Some(format!("{kind}: {}", text(refused.get("reason").unwrap_or(at(refused, "/message")))))
        });
        let connected = if at(node, "/connected") == true { "yes" } else { "no" };
        [
            text(at(node, "/id")),
            text(at(node, "/service")),
            connected.to_owned(),
            short(at(plan, "/running")),
            refused.unwrap_or_default(),
        ]
    });
    println!();
    table(["NODE", "SERVICE", "CONNECTED", "PLAN", "REFUSED"], rows.chain(absent).collect());
    Ok(())
}

pub(super) fn revisions(remote: &Remote) -> anyhow::Result<()> {
    let revisions = remote.get("/api/v1/revisions")?;
    if remote.output == Output::Json {
        println!("{revisions:#}");
        return Ok(());
    }
    let rows = revisions.as_array().into_iter().flatten().map(|revision| {
        let text = |name: &str| revision.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (number, documents) = (at(revision, "/number").to_string(), at(revision, "/documents").to_string());
        [number, short(at(revision, "/digest")), age(at(revision, "/at")), documents, text("author"), text("message")]
    });
    table(["REVISION", "DIGEST", "AGE", "DOCUMENTS", "AUTHOR", "MESSAGE"], rows.collect());
    Ok(())
}

fn author() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "cli".to_owned())
}
