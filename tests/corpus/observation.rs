//! The outcome of an exchange, in the same form for all runners.

use std::collections::{BTreeMap, BTreeSet};

use postern_proto::audit::v1::RecordRequest;
use postern_tests::grpc_collector::as_json;
use prost::Message as _;
use serde_json::{Map, Value};

use crate::case::Exchange;

/// Headers of answers that are compared even if a case does not name them.
const TELLING: [&str; 7] = [
    "content-type",
    "www-authenticate",
    "retry-after",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-policy-error",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The decision's account without route and plan; empty for a route without a chain.
    pub account: String,
    pub status: u16,
    /// The answer's headers that the case or [`TELLING`] names.
    pub headers: BTreeMap<String, Vec<String>>,
    /// The headers that the case names, as the upstream got them; `None` if it got nothing.
    pub upstream: Option<BTreeMap<String, Vec<String>>>,
    /// The answer's body, if the answer is the filter's own.
    pub body: String,
    /// What auditLog wrote to the log, if the case expects records; `posted` has what it posted.
    pub records: Vec<String>,
    pub posted: Vec<String>,
}

pub type Pairs = Vec<(String, Vec<u8>)>;

impl Observation {
    pub fn new(
        exchange: &Exchange,
        account: &str,
        status: u16,
        headers: &Pairs,
        upstream: Option<&Pairs>,
        body: &[u8],
    ) -> Self {
        // What the upstream itself answers is not ours to compare, except where the case says.
        let telling = TELLING.iter().filter(|_| upstream.is_none()).map(|name| (*name).to_owned());
        let answer_names = exchange.want.headers.keys().cloned().chain(telling).collect();
        let upstream_names = exchange.want.upstream.keys().cloned().collect();
        let text = String::from_utf8_lossy(body).into_owned();
        Self {
            account: without_place(account),
            status,
            headers: select(headers, &answer_names),
            upstream: upstream.map(|headers| select(headers, &upstream_names)),
            body: if upstream.is_none() { text } else { String::new() },
            records: Vec::new(),
            posted: Vec::new(),
        }
    }

    /// Adds the lines that were logged, and those that were posted with their destinations.
    pub fn recorded(mut self, logged: &[String], posted: &[(String, String)]) -> Self {
        self.records = logged.iter().map(|line| without_chance(line, None)).collect();
        self.posted = posted.iter().map(|(to, line)| without_chance(line, Some(to))).collect();
        self
    }
}

/// A record that a gRPC service was called with: its destination, and its contents as a line.
pub fn called(service: &str, method: &str, message: &[u8]) -> (String, String) {
    let request = RecordRequest::decode(message).unwrap_or_else(|error| panic!("{error}: {message:?}"));
    let record = request.record.as_ref().map(as_json).unwrap_or_default();
    (format!("{service} {method}"), record.to_string())
}

/// A record without its time, route and plan. It panics if one of them is absent.
fn without_chance(line: &str, to: Option<&str>) -> String {
    let mut record: Map<String, Value> = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let time = record.remove("time").unwrap_or_default();
    assert!(time.as_str().is_some_and(|time| time.ends_with('Z')), "no time: {line}");
    for chance in ["route", "plan"] {
        record.remove(chance);
    }
    if let Some(to) = to {
        record.insert("to".into(), to.into());
    }
    Value::Object(record).to_string()
}

fn without_place(account: &str) -> String {
    let pairs = account.split(' ').filter(|pair| !pair.starts_with("route=") && !pair.starts_with("plan="));
    pairs.collect::<Vec<_>>().join(" ")
}

fn select(headers: &Pairs, names: &BTreeSet<String>) -> BTreeMap<String, Vec<String>> {
    let mut selected = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in headers.iter().filter(|(name, _)| names.contains(name)) {
        selected.entry(name.clone()).or_default().push(shown(&String::from_utf8_lossy(value)));
    }
    // Some headers Envoy keeps as one line with commas.
    selected.into_iter().map(|(name, values)| (name, vec![values.join(",")])).collect()
}

/// Replaces a random id, which differs from run to run, by its kind.
fn shown(value: &str) -> String {
    let parts: Vec<&str> = value.split('-').collect();
    let hex = value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    match parts.as_slice() {
        [a, b, version, variant, e] if hex && [a.len(), b.len(), variant.len(), e.len()] == [8, 4, 4, 12] => {
            match (version.len(), version.as_bytes().first(), variant.as_bytes().first()) {
                (4, Some(b'4'), Some(b'8'..=b'b')) => "(uuidv4)".to_owned(),
                (4, Some(b'7'), Some(b'8'..=b'b')) => "(uuidv7)".to_owned(),
                _ => value.to_owned(),
            }
        }
        _ => value.to_owned(),
    }
}
