//! `postern explain`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::{Explanation, explain};
use crate::{
    model::{self, Bundle, File, read_document, suggestion},
    node::{DEFAULT_MESH, NodeIdentity},
    simulate::Request,
    source, terminal,
};

/// Show which steps guard a route at a node, where each field comes from, and what they make of a request
#[derive(Debug, Args)]
pub struct Explain {
    /// The directory with `.yaml` files
    #[arg(long, value_name = "DIR")]
    config: PathBuf,
    /// The node's id
    #[arg(long, value_name = "ID", default_value = "")]
    node: String,
    /// The service that the node belongs to (`node.cluster`)
    #[arg(long, value_name = "NAME", default_value = "")]
    service: String,
    /// The node's mesh
    #[arg(long, value_name = "NAME", default_value = DEFAULT_MESH)]
    mesh: String,
    /// A tag of the node; can be given several times
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// The route; without it, whatever is no route of its own
    #[arg(long, value_name = "NAME", default_value = "")]
    route: String,
    /// A YAML or JSON file with a request, such as `{method: GET, path: /users, headers: {x-api-key: k}}`
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// How the explanation is written
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Explain {
    /// Writes the explanation to the standard output.
    pub fn run(self) -> anyhow::Result<()> {
        let bundle = model::read(&source::read(&self.config)?)?;
        let request = self.request.as_deref().map(read_request).transpose()?;
        let node = NodeIdentity {
            id: self.node.clone(),
            service: self.service.clone(),
            mesh: self.mesh.clone(),
            tags: self.tags.iter().cloned().collect::<BTreeMap<_, _>>(),
        };
        let explanation = explain(&bundle, &node, &self.route, request.as_ref())?;
        match self.output {
            Output::Json => terminal::write(&format!("{}\n", serde_json::to_string_pretty(&explanation)?))?,
            Output::Text => {
                terminal::write(&explanation.to_string())?;
                if let Some(hint) = hint(&bundle, &explanation) {
                    anstream::eprintln!("{hint}");
                }
            }
        }
        Ok(())
    }
}

/// What a user may have meant by a route that nobody knows.
fn hint(bundle: &Bundle, explanation: &Explanation) -> Option<String> {
    let declared = bundle.gateways.iter().flat_map(|gateway| &gateway.spec.routes).map(|route| route.name.as_str());
    let targeted = bundle.route_policies.iter().filter_map(|policy| policy.spec.target_ref.route());
    let known: Vec<_> = declared.chain(targeted).collect();
    let route = explanation.route.as_str();
    if route.is_empty() || known.contains(&route) {
        return None;
    }
    Some(format!("no resource names route `{route}`{}", suggestion(route, known.iter().copied())))
}

fn read_request(path: &std::path::Path) -> anyhow::Result<Request> {
    let name = path.display().to_string();
    let bytes = fs::read(path).with_context(|| format!("cannot read the request {name}"))?;
    let document = read_document(&File { name: name.clone(), bytes })?;
    Request::deserialize(document).with_context(|| format!("{name} does not describe a request"))
}
