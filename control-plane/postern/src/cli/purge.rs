//! `postern purge`: removes a deleted resource from the revisions that are kept.

use std::io::{IsTerminal as _, Write as _, stdin, stdout};

use anyhow::{bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::{
    client::{Remote, at, items, text},
    remote::author,
    resource_name::Reference,
};

/// Remove a deleted resource from all revisions that are kept, for good: for secrets, and for the law
#[derive(Debug, Args)]
pub(super) struct Purge {
    /// The resource, such as `Consumer/mobile-app`
    #[arg(value_name = "KIND/NAME")]
    resource: Reference,
    /// Its mesh; default: `default`
    #[arg(long, value_name = "NAME")]
    mesh: Option<String>,
    /// Only say from which revisions it would be removed
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Purge {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let found = self.ask_for(true)?;
        if !self.dry_run {
            self.confirm(&found)?;
        }
        let outcome = if self.dry_run { found } else { self.ask_for(false)? };
        if self.remote.output.write(&outcome)? {
            return Ok(());
        }
        let done = if self.dry_run { "would be purged" } else { "purged" };
        println!("{done} from {}", revisions(&outcome));
        for file in items(at(&outcome, "/files")) {
            println!("  with its file {}", text(file));
        }
        for file in items(at(&outcome, "/remainingFiles")) {
            println!("  its file {} stays: what is in force has it, or could go back to it", text(file));
        }
        Ok(())
    }

    fn ask_for(&self, dry_run: bool) -> anyhow::Result<Value> {
        let resource = self.resource.in_mesh(self.mesh.as_deref())?;
        let body = json!({ "resource": resource, "dryRun": dry_run, "author": author() });
        self.remote.server.post("/api/v1/purge", &body, None)
    }

    /// Asks on a terminal. Elsewhere `--yes` is needed.
    fn confirm(&self, found: &Value) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let what = format!("purge it from {}, which can then no longer be gone back to as a whole", revisions(found));
        ensure!(stdin().is_terminal(), "this would {what}; it cannot be undone: say `--yes`");
        print!("{what}? It cannot be undone. [y/N] ");
        stdout().flush()?;
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if !["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()) {
            bail!("nothing was purged");
        }
        Ok(())
    }
}

fn revisions(purged: &Value) -> String {
    let numbers: Vec<_> = items(at(purged, "/revisions")).iter().map(text).collect();
    let noun = if numbers.len() == 1 { "revision" } else { "revisions" };
    format!("{noun} {}", numbers.join(", "))
}
