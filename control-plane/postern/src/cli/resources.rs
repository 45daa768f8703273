//! `postern get`, `postern delete` and `postern status KIND/NAME`: single resources.

use anyhow::ensure;
use clap::Args;
use postern_base::{node::DEFAULT_MESH, terminal, uri::escaped, yaml::to_yaml};
use serde_json::{Value, json};

use super::{
    client::{Remote, at, items, text},
    conditions::{self, ready},
    remote::{Change, author},
    resource_name::Reference,
    table::Table,
};

/// Show the resources in force and where they are: all, those of a kind, or one with its conditions
#[derive(Debug, Args)]
pub(super) struct Get {
    /// A kind such as `RoutePolicy`, or one resource such as `RoutePolicy/users-api`
    #[arg(value_name = "KIND[/NAME]")]
    resource: Option<Reference>,
    /// The mesh; default: all of them for a list, `default` for one resource
    #[arg(long, value_name = "NAME")]
    mesh: Option<String>,
    /// Show what an earlier revision said instead
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
    #[command(flatten)]
    remote: Remote,
}

impl Get {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if let Some(number) = self.revision {
            return self.of_revision(number);
        }
        let mesh = self.mesh.as_ref().map(|mesh| format!("?mesh={}", escaped(mesh))).unwrap_or_default();
        let path = self.resource.as_ref().map_or_else(|| "/api/v1/resources".to_owned(), Reference::path);
        let found = self.remote.server.get(&format!("{path}{mesh}"))?;
        if self.remote.output.write(&found)? {
            return Ok(());
        }
        if found.is_array() { list(items(&found)) } else { one(found) }
    }

    fn of_revision(&self, number: u64) -> anyhow::Result<()> {
        let all = self.remote.server.get(&format!("/api/v1/revisions/{number}/resources"))?;
        let wanted = |found: &&Value| {
            let name = at(found, "/metadata/name").as_str();
            let mesh = at(found, "/metadata/mesh").as_str().unwrap_or(DEFAULT_MESH);
            let kind = at(found, "/kind").as_str().unwrap_or_default();
            self.mesh.as_deref().is_none_or(|wanted| wanted == mesh)
                && self.resource.as_ref().is_none_or(|reference| {
                    reference.kind.eq_ignore_ascii_case(kind)
                        && reference.name.as_deref().is_none_or(|wanted| name == Some(wanted))
                })
        };
        let found: Vec<Value> = items(&all).iter().filter(wanted).cloned().collect();
        ensure!(!found.is_empty() || self.resource.is_none(), "revision {number} has no such resource");
        if self.remote.output.write(&json!(found))? {
            return Ok(());
        }
        Ok(terminal::write(&found.iter().map(to_yaml).collect::<Vec<_>>().join("---\n"))?)
    }
}

fn list(resources: &[Value]) -> anyhow::Result<()> {
    let mut table = Table::new(["KIND", "NAME", "MESH", "REVISION", "GENERATION", "READY", "NODES", "FILE"]);
    for resource in resources {
        let mesh = at(resource, "/metadata/mesh").as_str().filter(|mesh| *mesh != DEFAULT_MESH).unwrap_or_default();
        let revisions = items(at(resource, "/status/revisions"));
        let in_force = revisions.iter().find(|found| at(found, "/inForce") == true).unwrap_or(&Value::Null);
        let conditions = at(in_force, "/conditions");
        let place = format!("{}:{}", text(at(resource, "/status/file")), text(at(resource, "/status/line")));
        table.row([
            text(at(resource, "/kind")),
            text(at(resource, "/metadata/name")),
            mesh.to_owned(),
            text(at(in_force, "/revision")),
            text(at(in_force, "/generation")),
            text(at(ready(conditions), "/status")),
            format!("{}/{}", text(at(in_force, "/ready")), text(at(in_force, "/nodes"))),
            place,
        ]);
        for revision in revisions {
            let ready = ready(at(revision, "/conditions"));
            if at(ready, "/status") == "False" {
                table.note(format!("revision {}: {}", at(revision, "/revision"), text(at(ready, "/message"))));
            }
        }
        for refused in items(at(resource, "/status/refusedChanges")) {
            let message = text(at(refused, "/conditions/0/message"));
            table.note(format!("refused change of {}: {message}", text(at(refused, "/author"))));
        }
    }
    table.print()
}

fn one(mut resource: Value) -> anyhow::Result<()> {
    let status = resource.as_object_mut().and_then(|fields| fields.remove("status")).unwrap_or_default();
    terminal::write(&to_yaml(&resource))?;
    show_status(&status)
}

/// Writes the conditions of a resource in every live revision that has it.
fn show_status(status: &Value) -> anyhow::Result<()> {
    let place = format!("{}:{}", text(at(status, "/file")), text(at(status, "/line")));
    for refused in items(at(status, "/refusedChanges")) {
        terminal::write(&format!("\nrefused change of {}, not in force\n", text(at(refused, "/author"))))?;
        conditions::table(at(refused, "/conditions")).print()?;
    }
    for revision in items(at(status, "/revisions")) {
        let role = if at(revision, "/inForce") == true { "in force" } else { "not in force" };
        let generation = at(revision, "/generation").as_u64().map(|generation| format!(", generation {generation}"));
        let generation = generation.unwrap_or_default();
        terminal::write(&format!("\nrevision {}{generation}, {role}  {place}\n", at(revision, "/revision")))?;
        conditions::table(at(revision, "/conditions")).print()?;
    }
    Ok(())
}

/// Runs `postern status KIND/NAME`.
pub(super) fn status(remote: &Remote, reference: &Reference, mesh: Option<&str>) -> anyhow::Result<()> {
    ensure!(reference.name.is_some(), "which {}? Name one, such as `{}/NAME`", reference.kind, reference.kind);
    let mesh = mesh.map(|mesh| format!("?mesh={}", escaped(mesh))).unwrap_or_default();
    let resource = remote.server.get(&format!("{}{mesh}", reference.path()))?;
    if remote.output.write(at(&resource, "/status"))? {
        return Ok(());
    }
    terminal::write(&format!("{} `{}`\n", text(at(&resource, "/kind")), text(at(&resource, "/metadata/name"))))?;
    show_status(at(&resource, "/status"))
}

/// Take a resource out of what is in force, as a new revision; refused if another needs it
#[derive(Debug, Args)]
pub(super) struct Delete {
    /// The resource, such as `RoutePolicy/users-api`
    #[arg(value_name = "KIND/NAME")]
    resource: Reference,
    /// Its mesh; default: `default`
    #[arg(long, value_name = "NAME")]
    mesh: Option<String>,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    remote: Remote,
}

impl Delete {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let kind = &self.resource.kind;
        ensure!(self.resource.name.is_some(), "which {kind}? Name one, such as `{kind}/NAME`");
        let Change { dry_run, waiting, unguarded, message, parent } = &self.change;
        let mut query = vec![("author", author()), ("message", message.clone()), ("dryRun", dry_run.to_string())];
        query.push(("allowUnguarded", unguarded.allow_unguarded.to_string()));
        query.extend(self.mesh.iter().map(|mesh| ("mesh", mesh.clone())));
        let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let path = format!("{}?{}", self.resource.path(), pairs.join("&"));
        let outcome = self.remote.server.delete(&path, *parent)?;
        waiting.finish(&self.remote, &outcome)
    }
}
