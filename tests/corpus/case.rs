//! The files of cases, and how they become resources.

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postern_compile::{pipeline, snapshot::FilterCode};
use postern_engine::{Placement, Plan};
use postern_tests::site::repository;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    Engine,
    Wasm,
    Envoy,
}

/// Stands in a case for the name of its route: its host is that and `.test`.
const ROUTE: &str = "{route}";

/// One file: its cases, and the resources that they share. Each case has a route of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    #[serde(skip)]
    pub name: String,
    #[serde(rename = "about")]
    _about: String,
    /// Whether the requests come to an Envoy with routes of its own that have no names: `resources` has the policies.
    #[serde(default)]
    pub overlay: bool,
    #[serde(default)]
    resources: Vec<Value>,
    pub cases: Vec<Case>,
    #[serde(default)]
    pub refusals: Vec<RefusedChain>,
}

/// A chain, what is sent to its route, and the expected outcome.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The route's name, unique in the corpus.
    #[serde(skip)]
    pub route: String,
    pub note: String,
    /// A `RoutePolicy`'s spec without its `targetRef`; without it, the route has no policy.
    chain: Option<Value>,
    /// The request, if there is one exchange.
    #[serde(default)]
    request: RequestSpec,
    #[serde(default)]
    upstream: UpstreamSpec,
    want: Option<Want>,
    /// The exchanges, if there are several, one after the other.
    #[serde(default)]
    sequence: Vec<Exchange>,
    /// The runners on which the case cannot run, and why.
    #[serde(default)]
    pub except: BTreeMap<Runner, String>,
}

/// A chain that must be refused at admission, with a part of the reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedChain {
    pub note: String,
    chain: Value,
    pub says: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    #[serde(default)]
    pub request: RequestSpec,
    #[serde(default)]
    pub upstream: UpstreamSpec,
    pub want: Want,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RequestSpec {
    pub method: String,
    pub path: String,
    /// The host; by default that of the case's route.
    pub host: Option<String>,
    pub headers: Vec<(String, Bytes)>,
    pub body: Option<Bytes>,
    /// Whether the body is sent without its length.
    pub chunked: bool,
    /// The identity in the caller's certificate.
    pub source: Option<String>,
    /// The further URI SANs in it.
    pub further_names: Vec<String>,
    /// The time of the request, in seconds since 1970; now by default. Not on Envoy, whose clock cannot be set.
    pub at: Option<u64>,
}

impl RequestSpec {
    /// All URI SANs of the caller's certificate, as Envoy joins them.
    pub fn names(&self) -> Option<String> {
        let source = self.source.as_ref()?;
        Some([source].into_iter().chain(&self.further_names).cloned().collect::<Vec<_>>().join(","))
    }

    /// The time of the request, since 1970.
    pub fn time(&self) -> Duration {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        self.at.map_or_else(now, Duration::from_secs)
    }
}

impl Default for RequestSpec {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            path: "/".into(),
            host: None,
            headers: vec![],
            body: None,
            chunked: false,
            source: None,
            further_names: vec![],
            at: None,
        }
    }
}

/// A body: text, or `hex:` for bytes that are not text, or `repeat:` for many bytes.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Special {
    Hex(String),
    Repeat(String, usize),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Bytes {
    Text(String),
    #[allow(private_interfaces, reason = "read by `get` only")]
    Special(Special),
}

impl Bytes {
    pub fn get(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Special(Special::Hex(digits)) => hex::decode(digits).unwrap(),
            Self::Special(Special::Repeat(text, times)) => text.repeat(*times).into_bytes(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamSpec {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
}

impl Default for UpstreamSpec {
    fn default() -> Self {
        Self { status: 200, headers: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Want {
    /// `allow`, `deny`, `respond`, or nothing for a route without a chain.
    verdict: Option<String>,
    pub status: Option<u16>,
    step: Option<String>,
    reason: Option<String>,
    consumer: Option<String>,
    /// Further pairs of the account, such as `shadow=apiKeyAuth:key_missing`.
    notes: Vec<String>,
    /// Headers of the answer; null for a header that must be absent.
    pub headers: BTreeMap<String, Option<String>>,
    /// Headers of the request as the upstream got it.
    pub upstream: BTreeMap<String, Option<String>>,
    pub body: Option<String>,
    /// What auditLog writes to Envoy's log, without values that differ from run to run; see `Observation::recorded`.
    pub records: Option<Vec<Value>>,
    /// What auditLog posts, each record with its destination in `to`.
    pub posted: Option<Vec<Value>>,
}

impl CaseFile {
    /// Reads every file, in the order of names.
    pub fn read_all() -> Vec<Self> {
        let mut paths: Vec<_> = fs::read_dir(repository().join("tests/cases"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
            .collect();
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn read(path: &std::path::Path) -> Self {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let file = postern_model::File { name: path.display().to_string(), bytes: fs::read(path).unwrap() };
        let mut value = postern_model::read_document(&file).unwrap_or_else(|errors| panic!("{errors}"));
        // What a case says of its own host.
        for (index, case) in value["cases"].as_array_mut().into_iter().flatten().enumerate() {
            let text = case.to_string().replace(ROUTE, &format!("{name}-{index}"));
            *case = serde_json::from_str(&text).unwrap();
        }
        let mut file: Self =
            serde_json::from_value(value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (index, case) in file.cases.iter_mut().enumerate() {
            case.route = format!("{name}-{index}");
        }
        file.name = name;
        assert!(!file.overlay || file.policies().is_empty(), "{}: no case of an overlay has a chain", file.name);
        file
    }

    /// The resources that the cases share. Other files may have the same.
    pub fn shared(&self) -> &[Value] {
        &self.resources
    }

    /// A policy for each case that has a chain.
    pub fn policies(&self) -> Vec<Value> {
        self.cases.iter().filter_map(|case| Some(policy(&case.route, case.chain.as_ref()?))).collect()
    }

    pub fn chains(&self) -> impl Iterator<Item = &Value> {
        self.cases.iter().filter_map(|case| case.chain.as_ref())
    }

    pub fn plan_bytes(&self) -> Vec<u8> {
        let resources: Vec<_> = self.shared().iter().cloned().chain(self.policies()).collect();
        let snapshot = compile(&resources).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        snapshot.plan().bytes().to_vec()
    }

    pub fn plan(&self) -> Arc<Plan> {
        let plan = Plan::load(&self.plan_bytes()).unwrap();
        Arc::new(if self.overlay { plan.placed(Placement::Overlay) } else { plan })
    }

    /// Compiles a chain that must be refused, and returns the error.
    pub fn compile_refusal(&self, refusal: &RefusedChain) -> String {
        let resources: Vec<_> = self.resources.iter().cloned().chain([policy("refused", &refusal.chain)]).collect();
        compile(&resources).map_or_else(|error| error.to_string(), |_| "it was admitted".to_owned())
    }
}

fn policy(route: &str, chain: &Value) -> Value {
    let mut spec = chain.clone();
    spec["targetRef"] = json!({ "kind": "HTTPRoute", "name": route });
    json!({ "apiVersion": "postern/v1", "kind": "RoutePolicy", "metadata": { "name": route }, "spec": spec })
}

fn compile(resources: &[Value]) -> Result<postern_compile::snapshot::Snapshot, pipeline::CompileError> {
    let file = postern_model::File { name: "case".into(), bytes: documents(resources).into_bytes() };
    pipeline::compile(&[file], &FilterCode::new(Vec::new(), None))
}

/// Resources as one file: JSON is YAML too.
pub fn documents(resources: &[Value]) -> String {
    let texts: Vec<_> = resources.iter().map(|resource| serde_json::to_string_pretty(resource).unwrap()).collect();
    texts.join("\n---\n")
}

impl Case {
    /// The host of a request.
    pub fn host(&self, request: &RequestSpec) -> String {
        request.host.clone().unwrap_or_else(|| format!("{}.test", self.route))
    }

    pub fn exchanges(&self) -> Vec<Exchange> {
        let single = self.want.clone().map(|want| Exchange {
            request: self.request.clone(),
            upstream: self.upstream.clone(),
            want,
        });
        assert!(single.is_some() == self.sequence.is_empty(), "`{}` needs `want` or `sequence`", self.note);
        single.into_iter().chain(self.sequence.clone()).collect()
    }
}

impl Want {
    /// The expected account, without route and plan.
    pub fn account(&self) -> String {
        let pair = |key: &str, value: &Option<String>| value.as_ref().map(|value| format!("{key}={value}"));
        let pairs = [
            pair("verdict", &self.verdict),
            pair("step", &self.step),
            pair("reason", &self.reason),
            pair("consumer", &self.consumer),
        ];
        pairs.into_iter().flatten().chain(self.notes.clone()).collect::<Vec<_>>().join(" ")
    }

    /// Whether the case expects records.
    pub fn is_recorded(&self) -> bool {
        self.records.is_some() || self.posted.is_some()
    }
}
