//! What a file of `tests/cases/routes` says: one gateway, and requests to it.

use std::{collections::BTreeMap, fs};

use postern_tests::{
    raw::{Protocol, RawRequest},
    site::repository,
};
use serde::Deserialize;
use serde_json::Value;

use crate::table::{Chain, Table};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    #[serde(skip)]
    pub name: String,
    #[serde(rename = "about")]
    _about: String,
    /// Resources beside the gateway, such as consumers. Files may share them.
    #[serde(default)]
    pub resources: Vec<Value>,
    /// `http` of the gateway.
    #[serde(default)]
    http: Value,
    routes: Vec<Value>,
    /// The steps of a route's chain, by the route's name.
    #[serde(default)]
    chains: BTreeMap<String, Vec<Value>>,
    pub cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub note: String,
    /// A request in parts …
    #[serde(default)]
    request: Option<RequestSpec>,
    /// … or in bytes, of which the matcher knows nothing.
    #[serde(default)]
    pub bytes: Option<Bytes>,
    /// Whether the codec refuses it, so that no matcher sees it.
    #[serde(default)]
    pub codec: bool,
    pub want: Want,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RequestSpec {
    http2: bool,
    method: String,
    target: Bytes,
    host: Option<Bytes>,
    /// Instead of `host`: any number of them.
    hosts: Option<Vec<Bytes>>,
    scheme: String,
    headers: Vec<(Bytes, Bytes)>,
    body: Option<String>,
}

impl Default for RequestSpec {
    fn default() -> Self {
        Self {
            http2: false,
            method: "GET".into(),
            target: Bytes::Text("/".into()),
            host: None,
            hosts: None,
            scheme: "http".into(),
            headers: vec![],
            body: None,
        }
    }
}

/// Text, or `hex:` for bytes that are none, or `repeat:` for much of it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Bytes {
    Text(String),
    Hex { hex: String },
    Repeat { repeat: (String, usize) },
}

impl Bytes {
    pub fn get(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Hex { hex } => hex::decode(hex).unwrap(),
            Self::Repeat { repeat: (text, times) } => text.repeat(*times).into_bytes(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Want {
    /// The route that is taken, and whose chain runs.
    pub route: Option<String>,
    pub status: u16,
    /// The path that the service gets.
    pub path: Option<String>,
    /// Headers that the service gets; null for one that it must not get.
    pub upstream: BTreeMap<String, Option<String>>,
    /// The `location` of the answer.
    pub location: Option<String>,
}

impl Default for Want {
    fn default() -> Self {
        Self { route: None, status: 200, path: None, upstream: BTreeMap::new(), location: None }
    }
}

impl Case {
    /// The request in parts, if it is one.
    pub fn request(&self) -> Option<RawRequest> {
        let spec = self.request.as_ref()?;
        let hosts = spec.hosts.as_ref().map(|hosts| hosts.iter().map(Bytes::get).collect());
        let host = || vec![spec.host.as_ref().map_or_else(|| b"localhost".to_vec(), Bytes::get)];
        Some(RawRequest {
            protocol: if spec.http2 { Protocol::Http2 } else { Protocol::Http1 },
            method: spec.method.clone().into_bytes(),
            target: spec.target.get(),
            hosts: hosts.unwrap_or_else(host),
            scheme: spec.scheme.clone().into_bytes(),
            headers: spec.headers.iter().map(|(name, value)| (name.get(), value.get())).collect(),
            body: spec.body.clone().map(String::into_bytes),
        })
    }
}

impl CaseFile {
    pub fn read_all() -> Vec<Self> {
        let directory = repository().join("tests/cases/routes");
        let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn read(path: &std::path::Path) -> Self {
        let file = postern_model::File { name: path.display().to_string(), bytes: fs::read(path).unwrap() };
        let value = postern_model::read_document(&file).unwrap_or_else(|errors| panic!("{errors}"));
        let mut file: Self =
            serde_json::from_value(value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        file.name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        file
    }

    /// The name of a route in the mesh.
    pub fn route(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    pub fn services(&self) -> impl Iterator<Item = String> {
        self.routes.iter().filter_map(|route| Some(route["service"].as_str()?.to_owned()))
    }

    pub fn table(&self) -> Table {
        let mut table = Table { name: self.name.clone(), http: self.http.clone(), routes: vec![], chains: vec![] };
        for route in &self.routes {
            let short = route["name"].as_str().unwrap();
            let (mut route, name) = (route.clone(), self.route(short));
            route["name"] = name.clone().into();
            table.routes.push(route);
            table.chains.push(Chain { route: name, request: self.chains.get(short).cloned().unwrap_or_default() });
        }
        for chain in self.chains.keys() {
            assert!(self.routes.iter().any(|route| route["name"] == **chain), "{}: no route `{chain}`", self.name);
        }
        table
    }
}
