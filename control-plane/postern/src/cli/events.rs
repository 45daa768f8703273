//! `postern events`: prints the journal as it grows.

use std::{io::BufRead as _, thread, time::Duration};

use clap::Args;
use postern_base::{terminal, yaml::to_yaml};
use serde_json::Value;

use super::{
    client::{Output, Remote, at, items, text},
    table::short,
};

/// The delay before reconnecting to a control plane.
const AGAIN: Duration = Duration::from_secs(1);

/// Follow what happens: revisions, rollouts, and what nodes accept and refuse
#[derive(Debug, Args)]
pub(super) struct Events {
    /// How many earlier events to begin with
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: u64,
    /// End after those
    #[arg(long)]
    no_follow: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Events {
    /// Prints events until it is interrupted. After a lost connection it resumes with the events that were missed.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = format!("/api/v1/events?last={}&follow={}", self.last, !self.no_follow);
        let mut seen = None;
        let mut lines = self.remote.server.follow(&path, None)?;
        loop {
            let ended = self.read(&mut lines, &mut seen)?;
            if self.no_follow || ended == End::NobodyReads {
                return Ok(());
            }
            eprintln!("the control plane has gone away: waiting for it");
            lines = loop {
                thread::sleep(AGAIN);
                // An empty id belongs to no process, so that earlier events are sent, with a notice that some may be
                // missing.
                if let Ok(lines) = self.remote.server.follow(&path, Some(seen.as_deref().unwrap_or_default())) {
                    break lines;
                }
            };
        }
    }

    fn read(&self, lines: &mut impl std::io::BufRead, seen: &mut Option<String>) -> anyhow::Result<End> {
        for line in lines.lines() {
            let Ok(line) = line else { return Ok(End::Lost) };
            if let Some(id) = line.strip_prefix("id: ") {
                *seen = Some(id.to_owned());
            }
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let event: Value = serde_json::from_str(data)?;
            let shown = match self.remote.output {
                Output::Table => format!("{} {}\n", time(at(&event, "/at")), words(&event)),
                Output::Json => format!("{data}\n"),
                Output::Yaml => format!("---\n{}", to_yaml(&event)),
            };
            if !terminal::write_line(&shown)? {
                return Ok(End::NobodyReads);
            }
        }
        Ok(End::Lost)
    }
}

/// Why the stream ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Lost,
    NobodyReads,
}

/// The time of day in UTC.
fn time(at: &Value) -> String {
    let seconds = at.as_u64().unwrap_or_default() / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

fn words(event: &Value) -> String {
    let field = |name: &str| text(event.get(name).unwrap_or(&Value::Null));
    match at(event, "/event").as_str().unwrap_or_default() {
        "revisionAccepted" => match field("message").as_str() {
            "" => format!("revision {} accepted from {}", field("revision"), field("author")),
            message => format!("revision {} accepted from {}: {message}", field("revision"), field("author")),
        },
        "changeRefused" => {
            let reasons: Vec<_> = items(at(event, "/reasons")).iter().map(text).collect();
            // A line each, below the first one.
            format!("change refused: {}", reasons.join("\n         "))
        }
        "changeHeld" => {
            let (digest, removals) = (field("digest"), field("removals"));
            format!(
                "change of the directory held, {removals} resources would be removed: postern sync confirm {digest}"
            )
        }
        "resourcePurged" => {
            let numbers: Vec<_> = items(at(event, "/revisions")).iter().map(text).collect();
            format!("{} purged by {} from revisions {}", field("resource"), field("author"), numbers.join(", "))
        }
        "rollout" => {
            let step = format!(
                "rollout of revision {}: {}, step {} of {}",
                field("candidate"),
                field("state"),
                field("step"),
                field("steps")
            );
            match at(event, "/reason").as_str() {
                Some(reason) => format!("{step}: node `{}`: {reason}", field("node")),
                None => step,
            }
        }
        "nodeConnected" => format!("node {} of {} connected", field("node"), field("service")),
        "nodeAcked" => format!("node {} accepted {} {}", field("node"), field("type"), short(at(event, "/version"))),
        "nodeNacked" => {
            let version = short(at(event, "/version"));
            format!("node {} refused {} {version}: {}", field("node"), field("type"), field("reason"))
        }
        "nodeGone" => format!("node {} is gone", field("node")),
        "missed" => match at(event, "/count").as_u64() {
            Some(count) => format!("{count} events were missed"),
            None => "some events may have been missed".to_owned(),
        },
        other => other.to_owned(),
    }
}
