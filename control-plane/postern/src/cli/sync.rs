//! `postern sync`: makes what is in force exactly a directory, and confirms what a followed directory would remove.

use std::{
    io::{IsTerminal as _, Write as _, stderr, stdin},
    path::PathBuf,
};

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{Remote, at, items, text},
    remote::{Change, Waiting, author},
    sources,
};

/// Make what is in force exactly a directory: add, change, and remove what is not there
///
/// What would be removed is shown first. In a terminal, `sync` asks; elsewhere it wants `--yes`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Sync {
    #[command(subcommand)]
    command: Option<SyncCommand>,
    /// The directory with `.yaml` files: all resources
    #[arg(required = true)]
    directory: Option<PathBuf>,
    /// Do not ask before resources are removed
    #[arg(long)]
    yes: bool,
    /// Let it remove more resources at once than `Settings` (`rollout.maxRemoved`) or `postern serve --max-removed` allow
    #[arg(long)]
    remove_many: bool,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum SyncCommand {
    /// Put in force what a followed directory says and `postern status` shows as held
    Confirm(Confirm),
}

#[derive(Debug, Args)]
struct Confirm {
    /// The digest of the held change, as `postern status` shows it; a terminal is asked if it is left out
    digest: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    remote: Remote,
}

impl Sync {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if let Some(SyncCommand::Confirm(confirm)) = self.command {
            return confirm.run();
        }
        // Required unless a subcommand is given.
        let files = sources::directory(&self.directory.clone().unwrap_or_default())?;
        let Change { dry_run, waiting, unguarded, message, parent } = &self.change;
        let send = |dry_run: bool, shown: &str| {
            let body = json!({
                "files": files,
                "dryRun": dry_run,
                "allowRemovals": !dry_run,
                "removeMany": self.remove_many,
                "removals": shown,
                "allowUnguarded": unguarded.allow_unguarded,
                "message": message,
                "author": author(),
            });
            self.remote.server.post("/api/v1/sync", &body, *parent)
        };
        let dry = send(true, "")?;
        let removals = at(&dry, "/removals");
        show(removals, if *dry_run { "would remove" } else { "removes" });
        if *dry_run {
            return waiting.finish(&self.remote, &dry);
        }
        self.confirm(removals)?;
        let outcome = send(false, at(removals, "/digest").as_str().unwrap_or_default())?;
        waiting.finish(&self.remote, &outcome)
    }

    /// Asks on a terminal. Elsewhere `--yes` is needed, and for many removals `--remove-many` everywhere.
    fn confirm(&self, removals: &Value) -> anyhow::Result<()> {
        let resources = items(at(removals, "/resources")).len();
        if resources == 0 {
            return Ok(());
        }
        let most = at(removals, "/most").as_u64().unwrap_or_default();
        let are_many = resources as u64 > most;
        let is_asked = !self.yes && !stdin().is_terminal();
        let words: Vec<_> = [(is_asked, "--yes"), (are_many && !self.remove_many, "--remove-many")]
            .into_iter()
            .filter_map(|(is_missing, word)| is_missing.then_some(word))
            .collect();
        if !words.is_empty() {
            let limit = if are_many { format!(", and one change may remove {most}") } else { String::new() };
            bail!(
                "this would remove {resources} of {} resources{limit}: if that is meant, say `{}`; to add and change only, use \
                 `postern apply`; nothing was changed",
                at(removals, "/of"),
                words.join(" ")
            );
        }
        if self.yes { Ok(()) } else { ask("remove them?") }
    }
}

impl Confirm {
    fn run(self) -> anyhow::Result<()> {
        let digest = match &self.digest {
            Some(digest) => digest.clone(),
            None => self.ask_for_it()?,
        };
        let body = json!({ "digest": digest, "author": author() });
        let outcome = self.remote.server.post("/api/v1/sync/confirm", &body, None)?;
        self.waiting.finish(&self.remote, &outcome)
    }

    fn ask_for_it(&self) -> anyhow::Result<String> {
        let held = self.remote.server.get("/api/v1/sync/held")?;
        let digest = text(at(&held, "/digest"));
        show(at(&held, "/removals"), "removes");
        for route in items(at(&held, "/routes")) {
            eprintln!("route {} loses its last authentication step", text(route));
        }
        ensure!(stdin().is_terminal(), "if that is meant, say `postern sync confirm {digest}`; nothing was changed");
        ask("put it in force?")?;
        Ok(digest)
    }
}

/// Writes what would be removed to the standard error.
fn show(removals: &Value, verb: &str) {
    let resources = items(at(removals, "/resources"));
    if resources.is_empty() {
        return;
    }
    eprintln!("this {verb} {} of {} resources:", resources.len(), at(removals, "/of"));
    for resource in resources {
        let mesh = at(resource, "/mesh").as_str().filter(|mesh| *mesh != postern_base::node::DEFAULT_MESH);
        let mesh = mesh.map(|mesh| format!(" of mesh {mesh}")).unwrap_or_default();
        eprintln!("  {}/{}{mesh}", text(at(resource, "/kind")), text(at(resource, "/name")));
    }
}

/// Asks a question on the terminal. Fails unless the answer is yes.
fn ask(question: &str) -> anyhow::Result<()> {
    eprint!("{question} [y/N] ");
    stderr().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    if !["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()) {
        bail!("nothing was changed");
    }
    Ok(())
}
