//! `Tracing`: where Envoys send the spans of requests, and of how many.

use postern_base::{
    diagnostic::{Path, quote},
    yaml::Node,
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    gateway::PORT,
    kind::{self, Absence, KindSchema, Spec},
    report::Report,
    secret::CREDENTIAL_HEADERS,
    service::Address,
    target_ref::{self, Reach, TargetRef, Targeted},
    unit::Percent,
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Tracing",
    about: "Where listeners of Gateways send a span of each request, by OpenTelemetry's protocol (OTLP). Nothing is traced \
            where none names a collector.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Tracing"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "What is traced, and where the spans go."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Tracing
metadata: { name: traces }
spec:
  targetRef: { kind: Mesh }
  collector: { grpc: { address: otel.internal, port: 4317 } }
  sampling: { random: 10 }
  tags:
    - { name: team, literal: payments }
    - { name: tenant, header: { name: x-tenant, default: none } }
";

const SPEC: Object = Object {
    fields: &[
        Field::required(
            "targetRef",
            target_ref::NODES,
            "Who sends spans. Of several, the first that sets a field counts.",
        ),
        kind::OVERRIDE,
        COLLECTOR,
        SERVICE_NAME,
        SAMPLING,
        TAGS,
    ],
    exactly_one_of: &[],
};

/// The schema of the fields that are merged.
pub const TRACING_CONF: Object = Object { fields: &[COLLECTOR, SERVICE_NAME, SAMPLING, TAGS], exactly_one_of: &[] };

const COLLECTOR: Field = Field::optional("collector", Kind::Object(&COLLECTOR_FIELDS), "Who gets the spans.");
const SERVICE_NAME: Field =
    Field::optional("serviceName", Kind::Text, "The `service.name` of the spans; the Gateway's name if left out.");
const SAMPLING: Field = Field::optional("sampling", Kind::Object(&SAMPLING_FIELDS), "Which requests are traced.");
const TAGS: Field = Field::optional(
    "tags",
    Kind::List { item: &Kind::Object(&TAG), at_least: 0 },
    "Further attributes of each span. The list is taken whole.",
);

const COLLECTOR_FIELDS: Object = Object {
    fields: &[
        Field::optional("grpc", Kind::Object(&ENDPOINT), "OTLP by gRPC, in the clear to an address."),
        Field::optional("http", Kind::Object(&HTTP_ENDPOINT), "OTLP by HTTP, in the clear to an address."),
    ],
    exactly_one_of: &["grpc", "http"],
};

const SERVICE: Field =
    Field::optional("service", Kind::Name, "A Service, with its own TLS; for `grpc` it speaks HTTP/2.");
const ADDRESS: Field = Field::optional("address", Kind::Address, "An IP address or a DNS name.");
const ENDPOINT_PORT: Field = Field::optional("port", PORT, "The port, which goes with `address`.");

const ENDPOINT: Object = Object { fields: &[SERVICE, ADDRESS, ENDPOINT_PORT], exactly_one_of: &["service", "address"] };

const HTTP_ENDPOINT: Object = Object {
    fields: &[
        SERVICE,
        ADDRESS,
        ENDPOINT_PORT,
        Field::optional("path", Kind::Path, "The path that spans are posted to.").or(TRACES_PATH),
    ],
    exactly_one_of: &["service", "address"],
};

/// The default path for OTLP by HTTP.
const TRACES_PATH: &str = "/v1/traces";

const SAMPLING_FIELDS: Object = Object {
    fields: &[
        Field::optional(
            "client",
            Kind::Percent,
            "The share of requests with `x-client-trace-id` that are traced because of it.",
        )
        .or("100"),
        Field::optional("random", Kind::Percent, "The share of all requests that are traced by chance.").or("100"),
        Field::optional("overall", Kind::Percent, "The most of both together.").or("100"),
    ],
    exactly_one_of: &[],
};

const TAG: Object = Object {
    fields: &[
        Field::required("name", Kind::Text, "The attribute."),
        Field::optional("literal", Kind::Text, "Its value."),
        Field::optional("header", Kind::Object(&TAG_HEADER), "A header of the request that has the value."),
    ],
    exactly_one_of: &["literal", "header"],
};

const TAG_HEADER: Object = Object {
    fields: &[
        Field::required("name", Kind::HeaderName, "The header; none that carries credentials."),
        Field::optional("default", Kind::Text, "The value where it is missing; no attribute if left out."),
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `Tracing`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracing {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// The fields that are merged.
    #[serde(flatten)]
    pub conf: TracingConf,
}

/// What is traced. An absent field changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracingConf {
    /// Who gets the spans. Without one, nothing is traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<TraceCollector>,
    /// The `service.name` of the spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Which requests are traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Further attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<TraceTag>>,
}

/// Who gets spans, and by which transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TraceCollector {
    /// OTLP by gRPC.
    Grpc(TraceEndpoint),
    /// OTLP by HTTP.
    Http(TraceEndpoint),
}

impl TraceCollector {
    /// Where spans are sent.
    pub fn endpoint(&self) -> &TraceEndpoint {
        match self {
            Self::Grpc(endpoint) | Self::Http(endpoint) => endpoint,
        }
    }
}

/// Where spans are sent: a Service, or an address and a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceEndpoint {
    /// The name of a Service. It precedes an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// An address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The port at the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The path for HTTP. `None` means the default of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl TraceEndpoint {
    /// The path for HTTP.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(TRACES_PATH)
    }
}

/// Which requests are traced. An absent share is 100.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sampling {
    /// Of the requests that ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Percent>,
    /// Of all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<Percent>,
    /// The most of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overall: Option<Percent>,
}

/// An attribute of spans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTag {
    /// The name.
    pub name: String,
    /// Where the value comes from.
    #[serde(flatten)]
    pub value: TagValue,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TagValue {
    /// The same for all requests.
    Literal(String),
    /// The value of a request header.
    Header {
        /// The header.
        name: String,
        /// The value where it is missing. `None` means no attribute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<String>,
    },
}

impl Targeted for Tracing {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Spec for Tracing {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &[], path, report);
        for transport in ["grpc", "http"] {
            let Some(endpoint) = spec.get("collector").and_then(|collector| collector.get(transport)) else { continue };
            let path = path.field("collector");
            endpoint_rules(endpoint, &path.field(transport), report);
        }
        for (index, tag) in spec.get("tags").map_or(&[][..], Node::items).iter().enumerate() {
            let path = path.field("tags");
            tag_rules(tag, &path.item(index), report);
        }
    }
}

/// Reports a port without an address, and an address without a port.
fn endpoint_rules(endpoint: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    match (endpoint.get("address"), endpoint.get("port")) {
        (Some(address), None) => report.error(address.at, &path.field("port"), "`address` needs `port`"),
        (None, Some(port)) => report.error(port.at, &path.field("port"), "it goes with `address`"),
        _ => {}
    }
}

/// Reports empty names, which Envoy refuses, and headers whose values nobody else may see.
fn tag_rules(tag: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    if let Some(name) = tag.get("name").filter(|name| name.text() == Some("")) {
        report.error(name.at, &path.field("name"), "expected a name");
    }
    if let Some(literal) = tag.get("literal").filter(|literal| literal.text() == Some("")) {
        report.error(literal.at, &path.field("literal"), "expected a value");
    }
    let Some(header) = tag.get("header").and_then(|header| header.get("name")) else { return };
    let name = header.text().unwrap_or_default();
    if CREDENTIAL_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(name)) {
        let message = format!("{} carries credentials, which no span may show", quote(name));
        report.error(header.at, &path.field("header").field("name"), message);
    }
}

#[cfg(test)]
mod tests {
    use crate::{File, read};

    fn check(conf: &str, expect: &[&str]) {
        let text = format!(
            "apiVersion: postern/v1\nkind: Tracing\nmetadata: {{name: t}}\nspec:\n  targetRef: {{kind: Mesh}}\n  {conf}\n"
        );
        let found = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        let found = found.err().map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(found.lines().collect::<Vec<_>>(), expect, "{conf}");
    }

    #[test]
    fn wants_one_collector_at_a_service_or_an_address() {
        check("collector: {http: {service: a, path: /spans}}", &[]);
        check("collector: {grpc: {address: 10.0.0.1, port: 4317}}", &[]);
        let place = "f:6:14: Tracing `t`: spec.collector";
        check("collector: {}", &[&format!("{place}: expected exactly one of `grpc`, `http`")]);
        let both = "collector: {grpc: {service: a}, http: {service: a}}";
        check(both, &[&format!("{place}: expected exactly one of `grpc`, `http`")]);
        let place = "Tracing `t`: spec.collector.grpc";
        check("collector: {grpc: {address: a}}", &[&format!("f:6:31: {place}.port: `address` needs `port`")]);
        check("collector: {grpc: {service: a, port: 1}}", &[&format!("f:6:40: {place}.port: it goes with `address`")]);
        check("collector: {grpc: {service: a, path: /x}}", &[&format!("f:6:34: {place}.path: unknown field `path`")]);
    }

    #[test]
    fn refuses_tags_that_envoy_refuses_or_that_show_credentials() {
        check("tags: [{name: a, literal: b}, {name: c, header: {name: x-c}}]", &[]);
        let place = "Tracing `t`: spec.tags[0]";
        check("tags: [{name: '', literal: a}]", &[&format!("f:6:17: {place}.name: expected a name")]);
        check("tags: [{name: a, literal: ''}]", &[&format!("f:6:29: {place}.literal: expected a value")]);
        check(
            "tags: [{name: a, header: {name: Authorization}}]",
            &[&format!("f:6:35: {place}.header.name: `Authorization` carries credentials, which no span may show")],
        );
    }
}
