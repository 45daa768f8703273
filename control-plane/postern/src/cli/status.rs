//! `postern status`, `postern nodes` and `postern revisions`: summaries of the state.

use clap::Args;
use postern_base::{terminal, uri::escaped};
use serde_json::{Value, json};

use super::{
    client::{Remote, at, items, text},
    clients, conditions,
    resource_name::Reference,
    resources,
    table::{Table, age, age_of_seconds, short, utc},
    warnings,
};

/// The most resources that a line names.
const MOST_REMOVED: usize = 10;

/// Show what is in force, how it spreads, and which node runs what; or where one resource is
#[derive(Debug, Args)]
pub(super) struct Status {
    /// One resource, such as `RoutePolicy/users-api`: its conditions, with nodes and reasons
    #[arg(value_name = "KIND/NAME")]
    resource: Option<Reference>,
    /// The mesh of that resource; default: `default`
    #[arg(long, value_name = "NAME", requires = "resource")]
    mesh: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if let Some(reference) = &self.resource {
            return resources::status(&self.remote, reference, self.mesh.as_deref());
        }
        let status = self.remote.server.get("/status")?;
        if self.remote.output.write(&status)? {
            return Ok(());
        }
        terminal::write(&head(&status))?;
        let absent = self.remote.server.get("/api/v1/nodes/absent")?;
        node_table(items(&self.remote.server.get("/api/v1/nodes")?), &absent).print()
    }
}

fn head(status: &Value) -> String {
    let rollout = at(status, "/rollout");
    let or_none = |value: &Value| if value.is_null() { "none".to_owned() } else { text(value) };
    let mut lines = Vec::new();
    if rollout.is_null() {
        lines.push("revision  none".to_owned());
    } else {
        let (state, step, steps) = (text(at(rollout, "/state")), at(rollout, "/step"), at(rollout, "/steps"));
        lines.push(format!("revision  {} ({})", at(status, "/inForce"), short(at(status, "/revision"))));
        let last_good = or_none(at(rollout, "/lastGood"));
        let candidate = at(rollout, "/candidate");
        let of = if candidate == at(status, "/inForce") { String::new() } else { format!("revision {candidate} ") };
        lines.push(format!("rollout   {of}{state}, step {step} of {steps}; last good: {last_good}"));
        if let Some(reason) = at(rollout, "/reason").as_str() {
            lines.push(format!("          node `{}`: {reason}", text(at(rollout, "/node"))));
        }
        for node in items(at(rollout, "/without")) {
            lines.push(format!("          without node `{}`, which refused it and left", text(node)));
        }
    }
    lines.extend(filters(status));
    lines.extend(items(at(status, "/invalid")).iter().map(|line| format!("invalid   {}", text(line))));
    lines.extend(held_back(at(status, "/directory")));
    lines.extend(held(at(status, "/held")));
    lines.extend(items(at(status, "/refusedChange")).iter().map(|line| format!("refused   {}", text(line))));
    lines.extend(warnings::lines(status).map(|(line, _)| format!("warning   {line}")));
    lines.extend(warnings::more(status).map(|more| format!("          {more}")));
    for set in items(at(status, "/keySets")) {
        let error = at(set, "/lastError/message").as_str().map(|error| format!(": {error}")).unwrap_or_default();
        let (uri, keys, state) = (text(at(set, "/uri")), text(at(set, "/keys")), text(at(set, "/state")));
        let fetched = at(set, "/lastSuccess");
        let fetched =
            if fetched.is_null() { String::new() } else { format!(", fetched {} ago", age_of_seconds(fetched)) };
        lines.push(format!("keys      {uri} ({keys}), {state}{fetched}{error}"));
    }
    format!("{}\n\n", lines.join("\n"))
}

/// The filter in force, where it is not the one that the control plane was started with, or not alone.
fn filters(status: &Value) -> Vec<String> {
    let (own, in_force) = (at(status, "/filter"), items(at(status, "/filters")));
    let shown = |builds: &[Value]| builds.iter().map(short).collect::<Vec<_>>().join(" and ");
    let mut lines = Vec::new();
    if in_force.first().is_some_and(|first| first != own || in_force.len() > 1) {
        lines.push(format!("filter    {}; this control plane was started with {}", shown(in_force), short(own)));
    }
    let taken_back = items(at(status, "/filtersTakenBack"));
    if !taken_back.is_empty() {
        let back =
            "was taken back: changes are for the filter in force, until `postern rollback` to a revision that had it";
        lines.push(format!("          {} {back}", shown(taken_back)));
    }
    lines
}

/// What the followed directory says that is not in force.
fn held_back(directory: &Value) -> Vec<String> {
    let Some(revision) = directory.get("revision") else { return Vec::new() };
    let resources: Vec<_> = items(at(directory, "/resources")).iter().map(text).collect();
    let (to, reason) = (at(directory, "/to"), text(at(directory, "/reason")));
    vec![
        format!("directory still says revision {revision}, which was taken back to revision {to}: {reason}"),
        format!("          not applied until it changes there: {}", resources.join(", ")),
    ]
}

/// The change of the followed directory that waits for a word.
fn held(change: &Value) -> Vec<String> {
    let Some(digest) = change.get("digest").map(text) else { return Vec::new() };
    let mut lines = Vec::new();
    let removed = items(at(change, "/removals/resources"));
    if !removed.is_empty() {
        let names = removed.iter().take(MOST_REMOVED);
        let mut names: Vec<_> =
            names.map(|key| format!("{}/{}", text(at(key, "/kind")), text(at(key, "/name")))).collect();
        if removed.len() > MOST_REMOVED {
            names.push(format!("{} more", removed.len() - MOST_REMOVED));
        }
        let (count, of) = (removed.len(), at(change, "/removals/of"));
        lines.push(format!("held      the directory would remove {count} of {of} resources: {}", names.join(", ")));
    }
    let routes: Vec<_> =
        items(at(change, "/routes")).iter().map(|route| format!("`{}`", text(route).trim_matches('`'))).collect();
    if !routes.is_empty() {
        lines.push(format!("held      the directory would leave routes without authentication: {}", routes.join(", ")));
    }
    lines.push(format!("          nothing of it is applied; to put it in force: postern sync confirm {digest}"));
    lines
}

/// The table of nodes, and of remembered ones that are not connected.
fn node_table(nodes: &[Value], absent: &Value) -> Table<6> {
    let mut table = Table::new(["NODE", "SERVICE", "STATE", "REVISION", "SINCE", "TAGS"]);
    for node in nodes {
        let tags = at(node, "/tags").as_object().into_iter().flatten();
        let tags: Vec<_> = tags.map(|(name, value)| format!("{name}={}", text(value))).collect();
        let revision = match (at(node, "/revision"), at(node, "/target")) {
            (running, target) if running == target || target.is_null() => text(running),
            (running, target) => format!("{} → {target}", text(running)),
        };
        let since = age_of_seconds(at(node, "/since"));
        let state = text(at(node, "/state"));
        table.row([text(at(node, "/id")), text(at(node, "/service")), state.clone(), revision, since, tags.join(",")]);
        if state == "unsupported" {
            table.note(format!("unsupported: {}", text(at(node, "/reason"))));
        }
        node.get("warning").into_iter().for_each(|warning| table.note(text(warning)));
        node.get("cache").into_iter().for_each(|cache| table.note(via(cache)));
        for (kind, refused) in refusals(node) {
            table.note(format!("{kind}: {refused}"));
        }
        for status in at(node, "/types").as_object().into_iter().flat_map(serde_json::Map::values) {
            status.get("warning").into_iter().for_each(|warning| table.note(text(warning)));
        }
    }
    let listed = |id: &str| nodes.iter().any(|node| at(node, "/id") == id);
    for (id, node) in absent.as_object().into_iter().flatten().filter(|(id, _)| !listed(id)) {
        let revision = text(at(node, "/revision"));
        table.row([
            id.clone(),
            text(at(node, "/service")),
            "gone".to_owned(),
            revision,
            age(at(node, "/seen")),
            String::new(),
        ]);
    }
    table
}

/// The node cache that a node is connected through, and when the node was last served from it.
fn via(cache: &Value) -> String {
    let version = text(at(cache, "/version"));
    let Some(served) = cache.get("served") else { return format!("via node cache {version}") };
    let time = |field| utc(&at(served, field).as_u64().map(|seconds| seconds.saturating_mul(1000)).into());
    format!("via node cache {version}; served from it from {} to {}", time("/from"), time("/until"))
}

/// What a node refuses, by type of resource, and its reasons.
fn refusals(node: &Value) -> impl Iterator<Item = (&String, String)> {
    at(node, "/types").as_object().into_iter().flatten().filter_map(|(kind, status)| {
        let refused = status.get("refused")?;
        Some((kind, text(refused.get("reason").unwrap_or(at(refused, "/message")))))
    })
}

/// List the nodes and the clients of policy discovery: who they are, what each runs, and what it refuses and why; or show one
/// node
#[derive(Debug, Args)]
pub(super) struct Nodes {
    /// One node by its identity: what it runs of each type of resource
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// The clients of policy discovery alone
    #[arg(long, conflicts_with = "id")]
    clients: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Nodes {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if self.clients {
            return clients::list(&self.remote);
        }
        let Some(id) = &self.id else {
            let nodes = self.remote.server.get("/api/v1/nodes")?;
            if self.remote.output.write(&nodes)? {
                return Ok(());
            }
            let absent = self.remote.server.get("/api/v1/nodes/absent")?;
            node_table(items(&nodes), &absent).print()?;
            return clients::list_below(&self.remote);
        };
        let node = self.remote.server.get(&format!("/api/v1/nodes/{}", escaped(id)))?;
        if self.remote.output.write(&node)? {
            return Ok(());
        }
        node_table(std::slice::from_ref(&node), &json!({})).print()?;
        let mut table = Table::new(["TYPE", "RUNNING", "ACCEPTED", "REFUSED"]);
        for (kind, status) in at(&node, "/types").as_object().into_iter().flatten() {
            let accepted = at(status, "/accepted");
            let accepted =
                if accepted.is_null() { "-".to_owned() } else { format!("{} ago", age_of_seconds(accepted)) };
            let refused = at(status, "/refused/version");
            let refused = if refused.is_null() { String::new() } else { short(refused) };
            table.row([kind.clone(), short(at(status, "/running")), accepted, refused]);
        }
        terminal::write("\n")?;
        table.print()
    }
}

/// List the revisions that are kept, the latest first; or show one with its conditions, or those that had a plan
#[derive(Debug, Args)]
pub(super) struct Revisions {
    /// One revision
    #[arg(value_name = "N")]
    revision: Option<u64>,
    /// The revisions that had the plan of this label (`plan=` in a log), when, and on which nodes
    #[arg(long, value_name = "LABEL", conflicts_with = "revision")]
    plan: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Revisions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if let Some(label) = &self.plan {
            return plan(&self.remote, label);
        }
        let path = self.revision.map(|number| format!("/{number}")).unwrap_or_default();
        let found = self.remote.server.get(&format!("/api/v1/revisions{path}"))?;
        if self.remote.output.write(&found)? {
            return Ok(());
        }
        let mut table = Table::new(["REVISION", "STATE", "DIGEST", "AGE", "DOCUMENTS", "AUTHOR", "MESSAGE"]);
        let all = if found.is_array() { items(&found) } else { std::slice::from_ref(&found) };
        for revision in all {
            let word = |name: &str| revision.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (number, documents) = (text(at(revision, "/number")), text(at(revision, "/documents")));
            let (digest, since) = (short(at(revision, "/digest")), age(at(revision, "/at")));
            let state = state(revision);
            table.row([number, state, digest, since, documents, word("author"), word("message")]);
            if let Some(reason) = revision.get("reason") {
                table.note(format!("node `{}`: {}", word("node"), text(reason)));
            }
            for refused in items(at(revision, "/refusedBy")) {
                let (node, reason) = (text(at(refused, "/node")), text(at(refused, "/reason")));
                if node != word("node") {
                    table.note(format!("refused by node `{node}`: {reason}"));
                }
            }
            for purged in items(at(revision, "/purged")) {
                table.note(format!("purged: {}", text(purged)));
            }
        }
        table.print()?;
        if self.revision.is_some() {
            terminal::write("\n")?;
            conditions::table(at(&found, "/conditions")).print()?;
        }
        Ok(())
    }
}

/// What became of a revision, in words.
fn state(revision: &Value) -> String {
    let step = || format!("step {} of {}", at(revision, "/step"), at(revision, "/steps"));
    let state = match at(revision, "/state").as_str().unwrap_or_default() {
        "progressing" => format!("progressing, {}", step()),
        "paused" => format!("paused, {}", step()),
        "inForce" => "in force".to_owned(),
        "lastGood" => "last good".to_owned(),
        "rolledBack" => "rolled back".to_owned(),
        other => other.to_owned(),
    };
    if at(revision, "/invalid") == true { format!("{state}, invalid") } else { state }
}

fn plan(remote: &Remote, label: &str) -> anyhow::Result<()> {
    let uses = remote.server.get(&format!("/api/v1/plans/{}", escaped(label)))?;
    if remote.output.write(&uses)? {
        return Ok(());
    }
    let mut table = Table::new(["REVISION", "DIGEST", "FROM", "UNTIL", "NODES", "GROUP"]);
    for used in items(&uses) {
        let groups: Vec<_> = items(at(used, "/groups")).iter().map(text).collect();
        let until = at(used, "/until");
        let until = if until.is_null() { "now".to_owned() } else { utc(until) };
        let (number, nodes) = (text(at(used, "/revision")), text(at(used, "/acknowledged")));
        table.row([number, short(at(used, "/digest")), utc(at(used, "/since")), until, nodes, groups.join("; ")]);
        for (node, since) in at(used, "/nodes").as_object().into_iter().flatten() {
            table.note(format!("{node} since {}", utc(since)));
        }
    }
    table.print()
}
