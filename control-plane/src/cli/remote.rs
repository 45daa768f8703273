//! Commands that talk to a running control plane.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::source;

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Where the control plane is, and how answers look.
#[derive(Debug, Args)]
pub(super) struct Remote {
    /// Where the control plane serves HTTP
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_SERVER", default_value = "127.0.0.1:18001")]
    server: String,
    /// How the answer looks
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

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
    let number = outcome["revision"]["number"].as_u64();
    if remote.output == Output::Json && !wait {
        println!("{outcome:#}");
        return Ok(());
    }
    match (outcome["result"].as_str().unwrap_or_default(), number) {
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
        let rollout = &status["rollout"];
        let ready = ready_nodes(&revision);
        let line = progress(rollout, ready);
        if line != shown {
            show_progress(&line);
            shown = line;
        }
        if rollout["candidate"].as_u64() != Some(number) {
            bail!("\nrevision {} has taken the place of revision {number}", rollout["candidate"]);
        }
        match rollout["state"].as_str().unwrap_or_default() {
            "completed" => {
                println!("\nrevision {number} runs on {} nodes, {:.1} s", ready.1, begin.elapsed().as_secs_f64());
                return Ok(());
            }
            "rolledBack" => {
                let node = rollout["node"].as_str().unwrap_or_default();
                let reason = rollout["reason"].as_str().unwrap_or_default();
                bail!("\nrolled back to revision {}: node `{node}`: {reason}", rollout["lastGood"]);
            }
            "aborted" => bail!("\naborted: all nodes go back to revision {}", rollout["lastGood"]),
            _ if begin.elapsed() > timeout => bail!("\nnot on all nodes after {} s", timeout.as_secs()),
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// How many nodes run a revision, of how many that are to.
fn ready_nodes(revision: &Value) -> (usize, usize) {
    let conditions = revision["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let nodes = || conditions.iter().filter(|condition| condition["node"].is_string());
    (nodes().filter(|condition| condition["status"] == "True").count(), nodes().count())
}

fn progress(rollout: &Value, (ready, all): (usize, usize)) -> String {
    const WIDTH: usize = 30;
    let filled = (ready * WIDTH).checked_div(all).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH - filled));
    format!("step {} of {} [{bar}] {ready} of {all} nodes", rollout["step"], rollout["steps"])
}

/// Over the line before on a terminal, else a line of its own.
fn show_progress(line: &str) {
    let mut out = std::io::stdout();
    let shown = if out.is_terminal() { write!(out, "\r\x1b[K{line}") } else { writeln!(out, "{line}") };
    // A reader that is gone is told by the exit code.
    let _ = shown.and_then(|()| out.flush());
}

/// A table at a glance.
pub(super) fn status(remote: &Remote) -> anyhow::Result<()> {
    let status = remote.get("/status")?;
    if remote.output == Output::Json {
        println!("{status:#}");
        return Ok(());
    }
    let rollout = &status["rollout"];
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if rollout.is_null() {
        println!("revision  none");
    } else {
        println!("revision  {} ({})", rollout["candidate"], short(&status["revision"]));
        print!("rollout   {}, step {} of {}", text(&rollout["state"]), rollout["step"], rollout["steps"]);
        println!("; last good: {}", text(&rollout["lastGood"]));
        if let Some(reason) = rollout["reason"].as_str() {
            println!("          node `{}`: {reason}", text(&rollout["node"]));
        }
    }
    for line in status["refusedChange"].as_array().into_iter().flatten() {
        println!("refused   {}", text(line));
    }
    let rows = status["nodes"].as_array().into_iter().flatten().map(|node| {
        let plan = &node["types"]["extensionConfig"];
        let refused = node["types"].as_object().into_iter().flatten().find_map(|(kind, status)| {
            let refused = status.get("refused")?;
            Some(format!("{kind}: {}", text(refused.get("reason").unwrap_or(&refused["message"]))))
        });
        let connected = if node["connected"] == true { "yes" } else { "no" };
        [
            text(&node["id"]),
            text(&node["service"]),
            connected.to_owned(),
            short(&plan["running"]),
            refused.unwrap_or_default(),
        ]
    });
    println!();
    table(["NODE", "SERVICE", "CONNECTED", "PLAN", "REFUSED"], rows.collect());
    Ok(())
}

pub(super) fn revisions(remote: &Remote) -> anyhow::Result<()> {
    let revisions = remote.get("/api/v1/revisions")?;
    if remote.output == Output::Json {
        println!("{revisions:#}");
        return Ok(());
    }
    let rows = revisions.as_array().into_iter().flatten().map(|revision| {
        let text = |name: &str| revision[name].as_str().unwrap_or_default().to_owned();
        let (number, documents) = (revision["number"].to_string(), revision["documents"].to_string());
        [number, short(&revision["digest"]), age(&revision["at"]), documents, text("author"), text("message")]
    });
    table(["REVISION", "DIGEST", "AGE", "DOCUMENTS", "AUTHOR", "MESSAGE"], rows.collect());
    Ok(())
}

impl Remote {
    fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = agent().get(self.url(path)).call();
        self.read(answer)
    }

    fn post(&self, path: &str, body: &Value, parent: Option<u64>) -> anyhow::Result<Value> {
        let mut request = agent().post(self.url(path)).header("content-type", "application/json");
        if let Some(parent) = parent {
            request = request.header("if-match", format!("\"{parent}\""));
        }
        let answer = request.send(body.to_string());
        self.read(answer)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.trim_start_matches("http://"))
    }

    fn read(&self, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> anyhow::Result<Value> {
        let mut answer = answer.with_context(|| {
            format!(
                "no control plane answers at {}: start one with `postern serve`, or name it with `--server`",
                self.server
            )
        })?;
        let text = answer.body_mut().read_to_string().context("the answer ended early")?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if answer.status().is_success() {
            return Ok(value);
        }
        let errors = value["errors"].as_array().filter(|errors| !errors.is_empty());
        match (errors, value["detail"].as_str()) {
            (_, Some(detail)) => bail!("{detail}"),
            _ => bail!("{}: {text}", answer.status()),
        }
    }
}

fn agent() -> ureq::Agent {
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(120)));
    config.build().into()
}

fn author() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "cli".to_owned())
}

fn short(digest: &Value) -> String {
    digest.as_str().and_then(|digest| digest.get(..12)).unwrap_or("-").to_owned()
}

fn age(at: &Value) -> String {
    let now = crate::store::milliseconds(std::time::SystemTime::now());
    let seconds = now.saturating_sub(at.as_u64().unwrap_or(now)) / 1000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Columns as wide as what is in them.
fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: Vec<[String; COLUMNS]>) {
    let rows: Vec<_> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
