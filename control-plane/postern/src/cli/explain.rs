//! `postern explain` and `postern simulate`: of a directory, or of what a running control plane has in force.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::Context;
use clap::Args;
use postern_base::{
    node::{DEFAULT_MESH, NodeIdentity},
    terminal,
};
use postern_model::{File, directory, read_document};
use postern_tools::{
    explain::{DecisionLine, Explanation, Subject as Asked, explain},
    simulate::Request,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{Output, Server};

/// Where to look: the resources, the node and the route.
#[derive(Debug, Args)]
struct Subject {
    /// The directory with `.yaml` files; default: what a running control plane has in force
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// The node's id; a running control plane knows the rest of a node that it has seen
    #[arg(long, value_name = "ID", default_value = "")]
    node: String,
    /// The service that the node belongs to (`node.cluster`)
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// The node's mesh; default: `default`
    #[arg(long, value_name = "NAME")]
    mesh: Option<String>,
    /// A tag of the node; can be given several times
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// The route, or "" for whatever is no route of its own; default: the route that the request takes
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// The Gateway that the request comes to; default: the only one of the node
    #[arg(long, value_name = "NAME")]
    gateway: Option<String>,
}

/// Show which steps guard a route at a node, where each field comes from, and what they make of a request
#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    subject: Subject,
    /// A YAML or JSON file with a request, such as `{method: GET, path: /users, headers: {x-api-key: k}}`
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// How the explanation is written
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
}

/// Say what becomes of a request, and which step decides: no agent is called, and nothing is remembered
///
/// Exit code 0 if the request goes upstream, 1 if it is answered or denied, 2 if that cannot be told.
#[derive(Debug, Args)]
pub(super) struct Simulate {
    #[command(flatten)]
    subject: Subject,
    /// A YAML or JSON file with the request; what options say counts before it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// The method
    #[arg(long, short = 'X')]
    method: Option<String>,
    /// The path, with the query
    #[arg(long)]
    path: Option<String>,
    /// The host
    #[arg(long)]
    host: Option<String>,
    /// A header; can be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The body
    #[arg(long)]
    body: Option<String>,
    /// The address of who sends it
    #[arg(long, value_name = "ADDRESS")]
    source: Option<String>,
    /// How the outcome is written
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Explain {
    /// Writes the explanation to the standard output.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let request = self.request.as_deref().map(read_request).transpose()?;
        let explanation = self.subject.explain(request.as_ref())?;
        if !self.output.write(&serde_json::to_value(&explanation)?)? {
            terminal::write(&explanation.to_string())?;
            if let Some(hint) = explanation.hint {
                anstream::eprintln!("{hint}");
            }
        }
        Ok(())
    }
}

impl Simulate {
    /// Writes the result of the request. Returns whether it goes upstream.
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let mut request = self.request.as_deref().map(read_request).transpose()?.unwrap_or_default();
        request.method = self.method.unwrap_or(request.method);
        request.path = self.path.unwrap_or(request.path);
        request.host = self.host.unwrap_or(request.host);
        request.body = self.body.or(request.body);
        request.source.address = self.source.or(request.source.address);
        request.headers.extend(self.headers);
        let Explanation { route, reached, decision, hint, .. } = self.subject.explain(Some(&request))?;
        let upstream = decision.as_ref().is_none_or(|decision| decision.verdict == "allow");
        if self.output.write(&json!({ "route": route, "reached": reached, "decision": decision }))? {
            return Ok(upstream);
        }
        if let Some(reached) = reached.filter(|_| self.subject.route.is_none()) {
            let route = reached.route.as_deref().unwrap_or("none");
            terminal::write(&format!("route  {route} of gateway {}\n", reached.gateway))?;
        }
        match decision {
            Some(decision) => terminal::write(DecisionLine::to_string(&decision).trim_start())?,
            None => terminal::write("this route has no policy: the request goes upstream\n")?,
        }
        if let Some(hint) = hint {
            anstream::eprintln!("{hint}");
        }
        Ok(upstream)
    }
}

impl Subject {
    fn explain(&self, request: Option<&Request>) -> anyhow::Result<Explanation> {
        match &self.config {
            Some(directory) => {
                let bundle = postern_model::read(&directory::read(directory)?)?;
                Ok(explain(&bundle, &self.node(), self.of(request))?)
            }
            None => {
                let found = self.server.post("/api/v1/explain", &self.question(request)?, None)?;
                Explanation::deserialize(&found).context("the control plane is of another version")
            }
        }
    }

    fn of<'a>(&'a self, request: Option<&'a Request>) -> Asked<'a> {
        Asked { route: self.route.as_deref(), gateway: self.gateway.as_deref(), request }
    }

    fn node(&self) -> NodeIdentity {
        NodeIdentity {
            id: self.node.clone(),
            service: self.service.clone().unwrap_or_default(),
            mesh: self.mesh.clone().unwrap_or_else(|| DEFAULT_MESH.to_owned()),
            tags: self.tags.iter().cloned().collect::<BTreeMap<_, _>>(),
            ..NodeIdentity::default()
        }
    }

    /// The question to a running control plane, which fills in what is not given here.
    fn question(&self, request: Option<&Request>) -> anyhow::Result<Value> {
        #[derive(Serialize)]
        struct Whom<'a> {
            id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            service: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            mesh: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tags: Option<BTreeMap<String, String>>,
        }
        let tags = (!self.tags.is_empty()).then(|| self.tags.iter().cloned().collect());
        let (service, mesh) = (self.service.as_deref(), self.mesh.as_deref());
        let node = serde_json::to_value(Whom { id: &self.node, service, mesh, tags })?;
        let mut question = json!({ "node": node, "route": self.route, "gateway": self.gateway, "request": request });
        if let Some(question) = question.as_object_mut() {
            question.retain(|_, value| !value.is_null());
        }
        Ok(question)
    }
}

fn read_request(path: &std::path::Path) -> anyhow::Result<Request> {
    let name = path.display().to_string();
    let bytes = fs::read(path).with_context(|| format!("cannot read the request {name}"))?;
    let document = read_document(&File { name: name.clone(), bytes })?;
    Request::deserialize(document).with_context(|| format!("{name} does not describe a request"))
}
