//! Completions that know kinds, and the names and revisions of the control plane. They ask it for half a second at most:
//! without an answer, kinds are still completed.

use std::{ffi::OsStr, time::Duration};

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use postern_model::SCHEMAS;
use serde_json::Value;

use super::client::{at, items, text};

const PATIENCE: Duration = Duration::from_millis(500);
/// The maximum number of candidates.
const MOST: usize = 1_000;

/// The commands with what completes their arguments. Arguments that a command does not have are left out.
pub(super) fn with_candidates(mut command: Command) -> Command {
    let references = || ArgValueCompleter::new(references);
    let revisions = || ArgValueCompleter::new(revisions);
    let nodes = || ArgValueCompleter::new(nodes);
    for (name, id, candidates) in [
        ("get", "resource", references()),
        ("get", "revision", revisions()),
        ("status", "resource", references()),
        ("delete", "resource", references()),
        ("delete", "reference", references()),
        ("purge", "resource", references()),
        ("purge", "reference", references()),
        ("rollback", "revision", revisions()),
        ("rollback", "only", references()),
        ("revisions", "revision", revisions()),
        ("nodes", "id", nodes()),
        ("explain", "node", nodes()),
        ("simulate", "node", nodes()),
        ("schema", "kind", ArgValueCompleter::new(kinds)),
    ] {
        let has = command.find_subcommand(name).is_some_and(|it| it.get_arguments().any(|arg| arg.get_id() == id));
        if has {
            command = command.mut_subcommand(name, |it| it.mut_arg(id, |arg| arg.add(candidates)));
        }
    }
    command
}

fn kinds(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().to_lowercase();
    let kinds = SCHEMAS.iter().map(|schema| schema.name);
    kinds.filter(|kind| kind.to_lowercase().starts_with(&current)).map(CompletionCandidate::new).collect()
}

/// Kinds, and behind a kind the names of its resources.
fn references(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let Some((kind, name)) = current.split_once('/') else { return kinds(OsStr::new(&*current)) };
    let Some(kind) = SCHEMAS.iter().map(|schema| schema.name).find(|known| known.eq_ignore_ascii_case(kind)) else {
        return Vec::new();
    };
    let found = ask(&format!("/api/v1/resources/{kind}"));
    let names = items(&found).iter().map(|resource| text(at(resource, "/metadata/name")));
    candidates(names.filter(|known| known.starts_with(name)).map(|name| format!("{kind}/{name}")))
}

fn revisions(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let found = ask("/api/v1/revisions");
    let numbers = items(&found).iter().map(|revision| (text(at(revision, "/number")), at(revision, "/message")));
    let numbers = numbers.filter(|(number, _)| number.starts_with(&*current)).take(MOST);
    numbers
        .map(|(number, message)| {
            CompletionCandidate::new(number).help(message.as_str().map(|message| message.to_owned().into()))
        })
        .collect()
}

fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let found = ask("/api/v1/nodes");
    let ids = items(&found).iter().map(|node| text(at(node, "/id")));
    candidates(ids.filter(|id| id.starts_with(&*current)))
}

fn candidates(names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    names.take(MOST).map(CompletionCandidate::new).collect()
}

/// The answer of the control plane, or null.
fn ask(path: &str) -> Value {
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE));
    let agent: ureq::Agent = config.build().into();
    let answer = agent.get(format!("http://{}{path}", server())).call();
    let text = answer.ok().and_then(|mut answer| answer.body_mut().read_to_string().ok());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The control plane that the command line under completion names, or the environment, or the default.
fn server() -> String {
    let words: Vec<_> = std::env::args().skip_while(|word| word != "--").collect();
    let after = words.iter().zip(words.iter().skip(1)).find(|(flag, _)| *flag == "--server");
    let named = words.iter().find_map(|word| word.strip_prefix("--server="));
    let named = after.map(|(_, server)| server.clone()).or_else(|| named.map(str::to_owned));
    let named = named.or_else(|| std::env::var("POSTERN_SERVER").ok());
    let server = named.unwrap_or_else(|| "127.0.0.1:18001".to_owned());
    server.trim_start_matches("http://").trim_end_matches('/').to_owned()
}
