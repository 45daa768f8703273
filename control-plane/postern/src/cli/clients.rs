//! The table of policy discovery's clients, for `postern nodes`.

use postern_base::terminal;
use serde_json::Value;

use super::{
    client::{Remote, at, items, text},
    table::{Table, age_of_seconds, short},
};

const PATH: &str = "/api/v1/clients";

/// Writes the table of clients.
pub(super) fn list(remote: &Remote) -> anyhow::Result<()> {
    let clients = remote.server.get(PATH)?;
    if remote.output.write(&clients)? { Ok(()) } else { table(&clients).print() }
}

/// Writes the table below that of nodes; nothing if there are no clients.
pub(super) fn list_below(remote: &Remote) -> anyhow::Result<()> {
    let clients = remote.server.get(PATH)?;
    if items(at(&clients, "/groups")).is_empty() {
        return Ok(());
    }
    terminal::write("\n")?;
    table(&clients).print()
}

fn table(clients: &Value) -> Table<7> {
    let mut table = Table::new(["CLIENT", "SERVICE", "STATE", "VERSION", "ALL ACKED", "SINCE", "TAGS"]);
    for group in items(at(clients, "/groups")) {
        for client in items(at(group, "/clients")) {
            let tags = at(client, "/identity/tags").as_object().into_iter().flatten();
            let tags: Vec<_> = tags.map(|(name, value)| format!("{name}={}", text(value))).collect();
            let version = match (at(client, "/running"), at(group, "/version")) {
                (running, due) if running == due => short(running),
                (running, due) => format!("{} → {}", short(running), short(due)),
            };
            let acked = if at(group, "/allAcked") == true { "yes" } else { "no" };
            table.row([
                text(at(client, "/address")),
                text(at(client, "/identity/service")),
                text(at(client, "/state")),
                version,
                acked.to_owned(),
                age_of_seconds(at(client, "/since")),
                tags.join(","),
            ]);
            if let Some(reason) = at(client, "/reason").as_str() {
                table.note(format!("policies: {reason}"));
            }
        }
    }
    table
}
