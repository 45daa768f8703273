//! A table: the routes of one gateway and their chains, as the resources that a user would write.

use postern_model::Bundle;
use serde_json::{Value, json};

/// The header that every chain sets to the name of its route, so that the upstream tells which chain ran.
pub const CHAIN: &str = "x-chain";

/// One gateway. Names of routes are unique in the mesh.
#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    /// `http` of the gateway.
    pub http: Value,
    pub routes: Vec<Value>,
    /// The steps of each route's chain that come before the one that sets [`CHAIN`].
    pub chains: Vec<Chain>,
}

/// What is before the marker in a route's chain.
#[derive(Debug, Clone)]
pub struct Chain {
    pub route: String,
    pub request: Vec<Value>,
}

impl Table {
    /// The gateway and its policies; `ready` is the name of a route that only the probe of this revision takes.
    pub fn resources(&self, port: u16, ready: Option<&str>) -> Vec<Value> {
        let probe =
            ready.map(|name| json!({ "name": name, "hosts": [format!("{name}.ready.test")], "service": "ready" }));
        // First, since a route for any host would take it.
        let routes: Vec<_> = probe.into_iter().chain(self.routes.iter().cloned()).collect();
        let mut spec = json!({ "listeners": [{ "name": "http", "port": port }], "routes": routes });
        if !self.http.is_null() {
            spec["http"] = self.http.clone();
        }
        let ready = ready.map(|name| Chain { route: name.to_owned(), request: vec![] });
        let policies = self.chains.iter().chain(&ready).map(policy);
        [resource("Gateway", &self.name, spec)].into_iter().chain(policies).collect()
    }

    /// All that this table needs, as one file: for whoever wants to try it alone.
    pub fn alone(&self) -> String {
        let services = self.services().into_iter().map(|name| service(&name, 1));
        documents(&self.resources(80, None).into_iter().chain(services).collect::<Vec<_>>())
    }

    /// The model of it.
    pub fn bundle(&self) -> Bundle {
        let file = postern_model::File { name: self.name.clone(), bytes: self.alone().into_bytes() };
        postern_model::read(&[file]).unwrap_or_else(|errors| panic!("{errors}\n{}", self.alone()))
    }

    fn services(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.routes.iter().filter_map(|route| route["service"].as_str()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn policy(chain: &Chain) -> Value {
    let marker = json!({ "policy": "headers", "name": "marker", "params": { "set": { CHAIN: chain.route } } });
    let steps: Vec<_> = chain.request.iter().cloned().chain([marker]).collect();
    let target = json!({ "kind": "HTTPRoute", "name": chain.route });
    resource("RoutePolicy", &chain.route, json!({ "targetRef": target, "request": steps }))
}

pub fn service(name: &str, port: u16) -> Value {
    resource("Service", name, json!({ "endpoints": [{ "address": "127.0.0.1", "port": port }] }))
}

fn resource(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "postern/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// Resources as one file: JSON is YAML too.
pub fn documents(resources: &[Value]) -> String {
    let texts: Vec<_> = resources.iter().map(|resource| serde_json::to_string_pretty(resource).unwrap()).collect();
    texts.join("\n---\n")
}
