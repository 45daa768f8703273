//! The model layer: reads users' YAML into checked, typed resources. Later layers do not check them again. Only
//! `directory` reads files. Of Envoy it knows the descriptors of messages, of plans how keys and networks are encoded,
//! and of xDS nothing but the types of resources.
//!
//! A file becomes trees ([`yaml`]). A tree is checked against its kind's schema (`check`, `format`) and by its kind's
//! own rules, and becomes a typed [`Resource`] (`resource`, `reading`). All resources together become a [`Bundle`] if
//! their names and references fit (`links`). Errors are [`Diagnostic`]s, and all of them are reported at once.
//!
//! Dependencies point one way: `report` ← `check` ← `kind` (what describes every kind) ← each kind, in a file of its
//! own ← `kinds` (the list of kinds, and what is derived from it) ← `links` ← `reading` ← `reader`. A new kind is such
//! a file and an entry of the list.

mod access_log;
mod agent;
pub mod attachment;
mod check;
pub mod cidr;
mod circuit_breaker;
mod claims;
mod consumer;
mod cookie_pattern;
pub mod directory;
mod edge;
mod envoy_resource;
mod format;
mod gateway;
mod generated;
mod header_match;
mod health_check;
mod health_checking;
mod host_pattern;
mod issuer;
pub mod jwk;
mod key_uri;
mod kind;
mod kinds;
mod links;
mod listener_tls;
mod log_backend;
mod log_credentials;
mod log_format;
mod match_links;
mod name_template;
mod outbound;
mod outbound_links;
mod overlay_match;
mod password;
mod path_text;
mod pem;
pub mod protobuf_json;
mod public;
mod raw_routes;
mod reader;
mod reading;
mod refusal;
mod report;
mod request_match;
mod resource;
mod retry;
mod route;
mod route_policy;
pub mod schema;
mod secret;
mod service;
mod settings;
mod shared_ports;
mod step;
mod target_ref;
mod timeout;
mod tracing;
mod traffic_permission;
pub mod unit;
mod upstream_tls;
mod validity;
mod virtual_outbound;

use std::fmt;

use postern_base::yaml;

pub use self::{
    access_log::{AccessLog, LogBackendRef, LogEntry, STDOUT},
    agent::{Agent, AgentAddress, AgentRetry},
    circuit_breaker::{
        CircuitBreaker, CircuitBreaking, ConnectionLimits, Consecutive, Detectors, FailurePercentage, OutlierDetection,
        SuccessRate,
    },
    consumer::{ApiKey, BasicAuth, Consumer, HmacKey},
    cookie_pattern::CookiePattern,
    edge::{
        EdgeHttp, EscapedSlashes, MISDIRECTED_ROUTE, NO_HOST_ROUTE, PATH_PARAMETERS_ROUTE, PathParameters, Underscores,
    },
    envoy_resource::{EnvoyResource, RawResource},
    format::{is_one_host, port},
    gateway::{Gateway, Listener},
    header_match::{HeaderCondition, HeaderMatch},
    health_check::{HealthCheck, Probe},
    health_checking::{CheckFields, HealthChecking},
    host_pattern::{ANY_HOST, covers, most_specific},
    issuer::{Issuer, KeySource},
    key_uri::KeyUri,
    kind::{Absence, KindSchema},
    kinds::{Bundle, SCHEMAS, Selected},
    listener_tls::{ClientCertificate, Clients, HostCertificate, ListenerTls},
    log_backend::{LogBackend, LogCollector, LogFile, LogFormat, LogSink},
    name_template::{Placeholder, Template},
    outbound::{Outbound, To},
    overlay_match::OverlayMatch,
    password::PasswordHash,
    path_text::{PathText, Spelling},
    pem::{Certificates, PrivateKey},
    public::Public,
    raw_routes::RawRoute,
    reader::Reader,
    refusal::Refusal,
    request_match::{CookieCondition, CookieMatch, QueryMatch},
    resource::{Declaration, Declared, Resource},
    retry::{BackOff, HostSelection, Retry, Retrying},
    route::{Backend, Cause, Match, PathMatch, Retries, Route},
    route_policy::{Chains, Directed, RoutePolicy},
    secret::{CREDENTIAL_HEADERS, Secret},
    service::{Address, Endpoint, NoTag, Protocol, Service},
    settings::{ErrorAnswer, MaxRefused, Retention, RolloutSettings, RolloutStep, Settings, Unguarded},
    step::{DenyWith, Inheritable, Mode, OnFailure, Step},
    target_ref::{Level, Reach, TargetRef, Targeted},
    timeout::{HttpTimeouts, Timeout, Timeouts},
    tracing::{Sampling, TRACING_CONF, TagValue, TraceCollector, TraceEndpoint, TraceTag, Tracing, TracingConf},
    traffic_permission::{Action, Permission, TrafficPermission},
    upstream_tls::{KeyPair, SubjectAltName, UpstreamTls},
    validity::Validity,
    virtual_outbound::{OUTBOUND_ROUTE, OutboundName, OutboundPort, VirtualOutbound, outbound_route},
};
use self::{
    attachment::{Attachments, is_attachment},
    reading::Reading,
    report::Report,
};
pub use postern_base::diagnostic::{Diagnostic, Diagnostics};

/// A file of resources or, by its extension, an attachment with certificates or a key.
#[derive(Clone)]
pub struct File {
    /// The path, as errors show it.
    pub name: String,
    /// The content.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for File {
    /// Omits the content, which can hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({:?}, {} bytes)", self.name, self.bytes.len())
    }
}

/// Reads a file with exactly one document that is not a resource, such as the input of an expression.
pub fn read_document(file: &File) -> Result<serde_json::Value, Diagnostics> {
    let parsed = yaml::parse(&file.bytes);
    let (mut report, mut faults) = (Report::new(&file.name, None), parsed.broken);
    let mut documents = parsed.documents.into_iter();
    let document = documents.next().map_or(serde_json::Value::Null, |document| {
        faults.extend(document.faults);
        document.root.to_json()
    });
    if let Some(second) = documents.next() {
        report.error_in(second.root.at, None, "expected one document, found more");
    }
    for fault in faults {
        report.error_in(fault.at, fault.field, fault.message);
    }
    Diagnostics::reject(report.into_found()).map(|()| document)
}

/// Reads files as one bundle, or returns all errors. A [`Reader`] does the same repeatedly and reuses unchanged
/// documents.
pub fn read(files: &[File]) -> Result<Bundle, Diagnostics> {
    let mut reading = Reading::new(Attachments::of(files));
    for file in files.iter().filter(|file| !is_attachment(file.name.as_ref())) {
        reading.file(file);
    }
    reading.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn file(name: &str, text: &str) -> File {
        File { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    fn files() -> Vec<File> {
        let head = "apiVersion: postern/v1\nkind:";
        let endpoints = "spec: {endpoints: [{address: 127.0.0.1, port: 9000}]}";
        vec![
            file(
                "gateway.yaml",
                &format!(
                    "{head} Gateway\nmetadata: {{name: edge, labels: {{team: a}}}}\nspec:\n  listeners: [{{name: http, \
                     port: 80}}]\n  routes:\n    - {{name: users, service: users}}\n    - {{name: orders, service: orders}}\n"
                ),
            ),
            file("users.yaml", &format!("{head} Service\nmetadata: {{name: users}}\n{endpoints}\n")),
            file("orders.yaml", &format!("{head} Service\nmetadata: {{name: orders}}\n{endpoints}\n")),
            file(
                "people.yaml",
                &format!(
                    "{head} Consumer\nmetadata: {{name: bob}}\nspec: {{apiKeys: [{{key: b}}]}}\n---\n\
                     {head} Consumer\nmetadata: {{name: alice}}\nspec: {{apiKeys: [{{key: a}}]}}\n"
                ),
            ),
            file(
                "policy.yaml",
                &format!(
                    "{head} RoutePolicy\nmetadata: {{name: p}}\nspec:\n  targetRef: {{kind: HTTPRoute, name: users}}\n  \
                     request: [{{policy: headers, params: {{set: {{x-b: c, x-a: d}}}}}}]\n"
                ),
            ),
        ]
    }

    /// All permutations of the items.
    fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
        let mut found = vec![vec![]];
        for item in items {
            let longer =
                |order: &Vec<T>, index| [&order[..index], std::slice::from_ref(item), &order[index..]].concat();
            found = found.iter().flat_map(|order| (0..=order.len()).map(move |index| longer(order, index))).collect();
        }
        found
    }

    #[test]
    fn reads_the_same_bundle_in_any_order_of_files() {
        let expect = format!("{:?}", read(&files()).unwrap());
        let orders = orders(&files());
        assert_eq!(orders.len(), 120);
        for order in orders {
            assert_eq!(format!("{:?}", read(&order).unwrap()), expect);
        }
    }

    #[test]
    fn reports_the_same_errors_in_any_order_of_files() {
        let mut files = files();
        files[1] = file("users.yaml", "kind: Service\nmetadata: {name: users}\n");
        files[2].name = "another-gateway.yaml".to_owned();
        files[2].bytes = files[0].bytes.clone();
        files.push(file("broken.yaml", "["));
        let expect = read(&files).unwrap_err();
        assert_eq!(
            expect.to_string().lines().collect::<Vec<_>>(),
            [
                "broken.yaml:2:1: not valid YAML: while parsing a node, did not find expected node content",
                "gateway.yaml:3:18: Gateway `edge`: metadata.name: Gateway `edge` is already declared (another-gateway.yaml:3)",
                "users.yaml:1:1: Service `users`: apiVersion: missing required field `apiVersion`",
                "users.yaml:1:1: Service `users`: spec: missing required field `spec`",
            ]
        );
        for order in orders(&files) {
            assert_eq!(read(&order).unwrap_err(), expect);
        }
    }

    #[test]
    fn sorts_resources_by_name() {
        let bundle = read(&files()).unwrap();
        let names: Vec<_> = bundle.consumers.iter().map(|consumer| consumer.name.as_str()).collect();
        assert_eq!(names, ["alice", "bob"]);
        assert_eq!(bundle.gateways[0].labels, BTreeMap::from([("team".to_owned(), "a".to_owned())]));
    }

    #[test]
    fn reads_no_files_as_an_empty_bundle() {
        assert!(read(&[]).unwrap().gateways.is_empty());
        assert!(read(&[file("empty.yaml", "")]).unwrap().services.is_empty());
    }

    #[test]
    fn diagnoses_a_field_of_a_resource() {
        let bundle = read(&files()).unwrap();
        let shown = bundle.gateways[0].diagnose("spec.routes[1].service", "no such service").to_string();
        assert_eq!(shown, "gateway.yaml:8:31: Gateway `edge`: spec.routes[1].service: no such service");
        let shown = bundle.gateways[0].diagnose("spec.listeners[0].address", "not free").to_string();
        assert_eq!(shown, "gateway.yaml:5:15: Gateway `edge`: spec.listeners[0].address: not free");
    }

    #[test]
    fn shows_no_content_of_a_file() {
        assert_eq!(format!("{:?}", file("a.yaml", "secret")), r#"File("a.yaml", 6 bytes)"#);
    }
}
