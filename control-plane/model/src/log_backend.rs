//! `logBackends` of `Settings`: where access logs go, and what they say.

use std::collections::BTreeMap;

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{gateway::PORT, log_format, report::Report, service::Address};

/// The schema of a backend.
pub(super) const SCHEMA: Object = Object {
    fields: &[
        Field::required("name", Kind::Name, "What AccessLogs call it."),
        Field::optional("file", Kind::Object(&FILE), "A file on the proxy's machine."),
        Field::optional(
            "stdout",
            Kind::Object(&Object { fields: &[], exactly_one_of: &[] }),
            "The proxy's standard output (`{}`), for a `format` other than that of the built-in backend `stdout`.",
        ),
        Field::optional("grpc", Kind::Object(&GRPC), "Envoy's gRPC access log service (ALS)."),
        Field::optional("otlp", Kind::Object(&OTLP), "An OpenTelemetry collector, by OTLP over gRPC."),
        Field::optional(
            "format",
            Kind::Object(&FORMAT),
            "What is logged; by default the fields `time`, `method`, `path`, `status`, `details`, `route`, `request_id`, \
             `duration_ms` and `decision`. Not for `grpc`, whose messages have fields of their own. Headers that carry \
             credentials are refused: `authorization`, cookies, and those from which a step of the mesh takes a key or \
             token.",
        ),
    ],
    exactly_one_of: &["file", "stdout", "grpc", "otlp"],
};

const FILE: Object = Object { fields: &[Field::required("path", Kind::Path, "Its path.")], exactly_one_of: &[] };

const SERVICE: Field = Field::optional("service", Kind::Name, "A Service, with its own TLS, that speaks HTTP/2.");
const ADDRESS: Field = Field::optional("address", Kind::Address, "An IP address or a DNS name, called in the clear.");
const ENDPOINT_PORT: Field = Field::optional("port", PORT, "The port, which goes with `address`.");

const GRPC: Object = Object {
    fields: &[
        SERVICE,
        ADDRESS,
        ENDPOINT_PORT,
        Field::optional("logName", Kind::Text, "The name of the log in its messages; the backend's name by default."),
        Field::optional(
            "requestHeaders",
            Kind::List { item: &Kind::HeaderName, at_least: 1 },
            "Further request headers to log; none that carries credentials.",
        ),
    ],
    exactly_one_of: &["service", "address"],
};

const OTLP: Object = Object {
    fields: &[
        SERVICE,
        ADDRESS,
        ENDPOINT_PORT,
        Field::optional("serviceName", Kind::Text, "The `service.name` of the records; the Gateway's mesh by default."),
    ],
    exactly_one_of: &["service", "address"],
};

const FORMAT: Object = Object {
    fields: &[
        Field::optional(
            "text",
            Kind::Text,
            "A line, with Envoy's operators such as `%RESPONSE_CODE%`; `%%` is a percent sign. For `otlp`, the body.",
        ),
        Field::optional(
            "json",
            Kind::Map { key: &Kind::Text, value: &Kind::Text },
            "The members of a JSON object, with Envoy's operators in their values. For `otlp`, the attributes.",
        ),
    ],
    exactly_one_of: &["text", "json"],
};

/// A backend of access logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBackend {
    /// The name in `AccessLog` resources.
    pub name: String,
    /// Where entries go.
    #[serde(flatten)]
    pub sink: LogSink,
    /// What entries say. `None` means the default fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<LogFormat>,
}

/// Where entries of an access log go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogSink {
    /// A file on the proxy's machine.
    File(LogFile),
    /// The proxy's standard output.
    Stdout {},
    /// Envoy's gRPC access log service.
    Grpc(LogCollector),
    /// An OpenTelemetry collector.
    Otlp(LogCollector),
}

impl LogSink {
    /// The collector that entries are sent to, if they are.
    pub fn collector(&self) -> Option<&LogCollector> {
        match self {
            Self::Grpc(collector) | Self::Otlp(collector) => Some(collector),
            Self::File(_) | Self::Stdout {} => None,
        }
    }
}

/// A file on the proxy's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogFile {
    /// The path.
    pub path: String,
}

/// A server that takes entries by gRPC: a Service, or an address and a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogCollector {
    /// The name of a Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// An address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The port at the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The name of the log, for the access log service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_name: Option<String>,
    /// Further request headers, for the access log service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub request_headers: Vec<String>,
    /// The `service.name`, for OpenTelemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}

/// What an entry says, with Envoy's operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// A line of text.
    Text(String),
    /// A JSON object.
    Json(BTreeMap<String, String>),
}

/// Reports what the schema cannot express.
pub(super) fn rules(backend: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    for sink in ["grpc", "otlp"] {
        let Some(collector) = backend.get(sink) else { continue };
        let path = path.field(sink);
        match (collector.get("address"), collector.get("port")) {
            (Some(address), None) => report.error(address.at, &path.field("port"), "`address` needs `port`"),
            (None, Some(port)) => report.error(port.at, &path.field("port"), "it goes with `address`"),
            _ => {}
        }
        let headers = path.field("requestHeaders");
        for (index, header) in collector.get("requestHeaders").map_or(&[][..], Node::items).iter().enumerate() {
            if let Some(message) = header.text().and_then(log_format::credential) {
                report.error(header.at, &headers.item(index), message);
            }
        }
    }
    let Some(format) = backend.get("format") else { return };
    let path = path.field("format");
    if backend.get("grpc").is_some() {
        report.error(
            format.at,
            &path,
            "messages of the access log service have fields of their own: `format` is not for `grpc`",
        );
    }
    if let Some(text) = format.get("text") {
        check(text, &path.field("text"), report);
    }
    let json = path.field("json");
    for (key, value) in format.get("json").map_or(&[][..], Node::entries) {
        check(value, &json.field(&key.name), report);
    }
}

fn check(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    for fault in node.text().map(log_format::faults).unwrap_or_default() {
        report.error(node.at, path, fault);
    }
}
