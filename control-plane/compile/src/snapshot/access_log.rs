//! Access logs of generated listeners: a JSON object for each request, with the decision. Written to Envoy's standard
//! output, unless AccessLogs apply.
//!
//! The messages are declared here, because `envoy-types` has a hash map in `google.protobuf.Struct`: the encoding, and
//! so the listener's version, would change from run to run.

use std::{collections::BTreeMap, fmt::Write as _};

use envoy_types::pb::{
    envoy::{
        config::accesslog::v3::{
            AccessLog, AccessLogFilter, AndFilter, ComparisonFilter, ExtensionFilter, OrFilter, RuntimeFilter,
            StatusCodeFilter, access_log::ConfigType, access_log_filter::FilterSpecifier, comparison_filter::Op,
            extension_filter::ConfigType as FilterConfig,
        },
        config::core::v3::{ApiVersion, CelExpressionConfig, RuntimeUInt32},
        extensions::access_loggers::{
            filters::cel::v3::ExpressionFilter,
            grpc::v3::{CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig},
            open_telemetry::v3::OpenTelemetryAccessLogConfig,
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::Any,
    opentelemetry::proto::common::v1::{AnyValue, KeyValue, KeyValueList, any_value},
};
use postern_engine::Property;
use postern_model::{LogBackend, LogCollector, LogFormat, LogSink, Protocol, Settings, unit::Percent};
use prost::Message;

use super::{Resource, any, source_tags, tracing};
use crate::{
    attach::{self, Logged, Scope, Which},
    route_match::MARK,
};

const STDOUT: &str = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
const FILE: &str = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";

/// The fields of a log line, and their format.
const FIELDS: [(&str, &str); 9] = [
    ("time", "%START_TIME%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("status", "%RESPONSE_CODE%"),
    ("details", "%RESPONSE_CODE_DETAILS%"),
    ("route", "%METADATA(ROUTE:postern:route)%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("duration_ms", "%DURATION%"),
    ("decision", "%FILTER_STATE(wasm.postern:PLAIN)%"),
];

/// The filter state that has the decision.
const DECISION: &str = "wasm.postern";

/// Requests with this status or above are always logged, whatever the sample.
const TROUBLE: u32 = 400;

/// The runtime key by which an Envoy's operator can change the sample.
const SAMPLE_KEY: &str = "postern.log_sampling";
const TROUBLE_KEY: &str = "postern.log_always_from_status";

/// The access logs of listeners for a group of nodes. Listeners that only the node itself reaches have no incoming
/// requests.
pub(super) fn access_logs(scope: &Scope<'_>, local: bool) -> Vec<AccessLog> {
    let nothing = Settings::default();
    let settings = scope.settings().map_or(&nothing, |settings| &settings.spec);
    let sample = settings.log_sampling;
    let Some(logged) = attach::access_logs(scope) else { return vec![to_stdout(None, filter(None, sample))] };
    let mut logs = Vec::new();
    for logged in logged.into_iter().filter(|logged| !(local && logged.incoming)) {
        let filter = filter(condition(&logged), sample);
        for name in &logged.backends {
            logs.push(match settings.log_backends.iter().find(|backend| backend.name == *name) {
                Some(backend) => to_backend(backend, scope, filter.clone()),
                None => to_stdout(None, filter.clone()),
            });
        }
    }
    logs
}

/// Whether an entry selects sources by tags.
pub(super) fn reads_source_tags(scope: &Scope<'_>) -> bool {
    let entries = scope.access_logs.iter().flat_map(|log| &log.spec.from);
    entries.filter_map(|entry| entry.target_ref.tags()).any(|tags| !tags.is_empty())
}

/// The clusters of the collectors that are no Services.
pub(super) fn clusters(scope: &Scope<'_>) -> Vec<Resource> {
    let backends = scope.settings().into_iter().flat_map(|settings| &settings.spec.log_backends);
    let clusters = backends.filter_map(|backend| {
        let collector = backend.sink.collector().filter(|collector| collector.service.is_none())?;
        let (address, port) = (collector.address.as_ref()?, collector.port?);
        Some(tracing::collector_cluster(&cluster_name(&backend.name), address, port, Protocol::Http2))
    });
    clusters.collect()
}

/// The cluster of a collector at an address. The name contains a `/`, so it differs from the names of all services.
fn cluster_name(backend: &str) -> String {
    format!("log/{backend}")
}

fn to_backend(backend: &LogBackend, scope: &Scope<'_>, filter: Option<AccessLogFilter>) -> AccessLog {
    let format = backend.format.as_ref();
    match &backend.sink {
        LogSink::Stdout {} => to_stdout(format, filter),
        LogSink::File(file) => to_file(&file.path, format, filter),
        LogSink::Grpc(collector) => to_access_log_service(backend, collector, filter),
        LogSink::Otlp(collector) => to_open_telemetry(backend, collector, scope, filter),
    }
}

/// The filter for requests that meet the condition and are in the sample. `None` means all requests.
fn filter(condition: Option<Condition>, sample: Option<Percent>) -> Option<AccessLogFilter> {
    let filters: Vec<_> = condition.map(meets).into_iter().chain(sample.map(sampled)).collect();
    match filters.as_slice() {
        [] => None,
        [filter] => Some(filter.clone()),
        _ => Some(specified(FilterSpecifier::AndFilter(AndFilter { filters }))),
    }
}

fn specified(filter: FilterSpecifier) -> AccessLogFilter {
    AccessLogFilter { filter_specifier: Some(filter) }
}

fn meets(condition: Condition) -> AccessLogFilter {
    let Condition { expression, converts } = condition;
    let cel_config =
        converts.then(|| CelExpressionConfig { enable_string_conversion: true, ..CelExpressionConfig::default() });
    specified(FilterSpecifier::ExtensionFilter(ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(FilterConfig::TypedConfig(any(&ExpressionFilter { expression, cel_config }))),
    }))
}

/// Samples at random, and not by request id, since a caller could choose the id.
fn sampled(sample: Percent) -> AccessLogFilter {
    let trouble = StatusCodeFilter {
        comparison: Some(ComparisonFilter {
            op: Op::Ge.into(),
            value: Some(RuntimeUInt32 { default_value: TROUBLE, runtime_key: TROUBLE_KEY.to_owned() }),
        }),
    };
    let chance = RuntimeFilter {
        runtime_key: SAMPLE_KEY.to_owned(),
        percent_sampled: Some(FractionalPercent {
            numerator: sample.of_a_million,
            denominator: DenominatorType::Million.into(),
        }),
        use_independent_randomness: true,
    };
    let filters = [FilterSpecifier::StatusCodeFilter(trouble), FilterSpecifier::RuntimeFilter(chance)];
    specified(FilterSpecifier::OrFilter(OrFilter { filters: filters.map(specified).into() }))
}

/// A condition in CEL.
struct Condition {
    expression: String,
    /// Whether it reads the filter state, whose values are bytes.
    converts: bool,
}

/// The condition on logged requests. `None` means all requests.
fn condition(logged: &Logged) -> Option<Condition> {
    let mut terms: Vec<_> = terms(&logged.which);
    for earlier in &logged.unless {
        terms.push(match self::terms(earlier).as_slice() {
            [] => "false".to_owned(),
            earlier => format!("!({})", earlier.join(" && ")),
        });
    }
    let mut all = logged.unless.iter().chain([&logged.which]).filter_map(|which| which.source.as_ref());
    let converts = all.any(|source| !source.tags.is_empty());
    (!terms.is_empty()).then(|| Condition { expression: terms.join(" && "), converts })
}

fn terms(which: &Which) -> Vec<String> {
    // `has` avoids an error for absent attributes, such as the cluster of a refused request.
    let equals = |attribute: &str, value: &str| format!("(has({attribute}) && {attribute} == {})", literal(value));
    let mut terms = Vec::new();
    // The route's name is followed by its mark.
    let is_route = |route: &str| {
        format!("(has(xds.route_name) && xds.route_name.startsWith({}))", literal(&format!("{route}{MARK}")))
    };
    terms.extend(which.route.as_deref().map(is_route));
    terms.extend(which.service.as_deref().map(|service| equals("xds.cluster_name", service)));
    let identity = "connection.uri_san_peer_certificate";
    terms.extend(which.source.as_ref().map(|source| match &source.service {
        Some(service) => equals(identity, &format!("spiffe://{}/{service}", source.mesh)),
        None => {
            let prefix = literal(&format!("spiffe://{}/", source.mesh));
            format!("(has({identity}) && {identity}.startsWith({prefix}))")
        }
    }));
    terms.extend(which.source.iter().flat_map(|source| &source.tags).map(|(name, value)| has_tag(name, value)));
    terms
}

/// Whether the caller's certificate has a tag. All of its names are in the filter state, as [`super::source_tags`] has
/// it; a name cannot contain a comma.
fn has_tag(name: &str, value: &str) -> String {
    let [_, key] = Property::PeerUriSans.path();
    let tag = format!("(^|,) *{} *(,|$)", regex_escaped(&source_tags::tag_uri(name, value)));
    let key = literal(key);
    format!("({key} in filter_state && string(filter_state[{key}]).matches({}))", literal(&tag))
}

/// A text as a regular expression that matches it. All but letters, digits and a few others are written as bytes.
fn regex_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b':' | b'-' | b'_' | b'~' | b'%' => {
                escaped.push(byte.into());
            }
            // Writing to a string cannot fail.
            byte => drop(write!(escaped, "\\x{byte:02x}")),
        }
    }
    escaped
}

/// A string literal in CEL. Names contain neither quotes nor backslashes; if one did, they could not end the literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn to_stdout(format: Option<&LogFormat>, filter: Option<AccessLogFilter>) -> AccessLog {
    let log = StdoutAccessLog { log_format: Some(substitution(format)) };
    access_log("envoy.access_loggers.stdout", STDOUT, log.encode_to_vec(), filter)
}

fn to_file(path: &str, format: Option<&LogFormat>, filter: Option<AccessLogFilter>) -> AccessLog {
    let log = FileAccessLog { path: path.to_owned(), log_format: Some(substitution(format)) };
    access_log("envoy.access_loggers.file", FILE, log.encode_to_vec(), filter)
}

fn to_access_log_service(backend: &LogBackend, collector: &LogCollector, filter: Option<AccessLogFilter>) -> AccessLog {
    let log = HttpGrpcAccessLogConfig {
        common_config: Some(by_grpc(backend, collector)),
        additional_request_headers_to_log: collector.request_headers.clone(),
        ..HttpGrpcAccessLogConfig::default()
    };
    let value = any(&log);
    AccessLog {
        name: "envoy.access_loggers.http_grpc".to_owned(),
        config_type: Some(ConfigType::TypedConfig(value)),
        filter,
    }
}

fn by_grpc(backend: &LogBackend, collector: &LogCollector) -> CommonGrpcAccessLogConfig {
    let LogCollector { service, address, port, .. } = collector;
    let authority = tracing::collector_authority(service.as_ref(), address.as_ref(), *port);
    let cluster = service.clone().unwrap_or_else(|| cluster_name(&backend.name));
    CommonGrpcAccessLogConfig {
        log_name: collector.log_name.clone().unwrap_or_else(|| backend.name.clone()),
        grpc_service: Some(tracing::collector_service(cluster, authority)),
        transport_api_version: ApiVersion::V3.into(),
        filter_state_objects_to_log: vec![DECISION.to_owned()],
        ..CommonGrpcAccessLogConfig::default()
    }
}

fn to_open_telemetry(
    backend: &LogBackend,
    collector: &LogCollector,
    scope: &Scope<'_>,
    filter: Option<AccessLogFilter>,
) -> AccessLog {
    let text = |value: &str| AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    let attribute =
        |(key, value): (&str, &str)| KeyValue { key: key.to_owned(), value: Some(text(value)), ..KeyValue::default() };
    let (body, attributes) = match &backend.format {
        None => (None, FIELDS.into_iter().map(attribute).collect()),
        Some(LogFormat::Text(body)) => (Some(text(body)), Vec::new()),
        Some(LogFormat::Json(members)) => (None, members.iter().map(|(key, value)| attribute((key, value))).collect()),
    };
    let mesh = || scope.settings().map_or_else(String::new, |settings| settings.mesh.clone());
    let service_name = collector.service_name.clone().unwrap_or_else(mesh);
    let log = OpenTelemetryAccessLogConfig {
        grpc_service: by_grpc(backend, collector).grpc_service,
        resource_attributes: Some(KeyValueList { values: vec![attribute(("service.name", &service_name))] }),
        body,
        attributes: (!attributes.is_empty()).then_some(KeyValueList { values: attributes }),
        ..OpenTelemetryAccessLogConfig::default()
    };
    AccessLog {
        name: "envoy.access_loggers.open_telemetry".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&log))),
        filter,
    }
}

fn access_log(name: &str, type_url: &str, value: Vec<u8>, filter: Option<AccessLogFilter>) -> AccessLog {
    let config = Any { type_url: type_url.to_owned(), value };
    AccessLog { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(config)), filter }
}

/// The format of a line. A line of text ends with a line break.
fn substitution(format: Option<&LogFormat>) -> SubstitutionFormatString {
    let text = |text: &str| Value { string_value: text.to_owned() };
    let fields = match format {
        None => FIELDS.iter().map(|(name, format)| ((*name).to_owned(), text(format))).collect(),
        Some(LogFormat::Json(members)) => members.iter().map(|(name, format)| (name.clone(), text(format))).collect(),
        Some(LogFormat::Text(line)) => {
            let line = if line.ends_with('\n') { line.clone() } else { format!("{line}\n") };
            return SubstitutionFormatString {
                json_format: None,
                text_format_source: Some(InlineText { inline_string: line }),
            };
        }
    };
    SubstitutionFormatString { json_format: Some(Struct { fields }), text_format_source: None }
}

#[derive(Clone, PartialEq, Message)]
struct FileAccessLog {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(message, optional, tag = "5")]
    log_format: Option<SubstitutionFormatString>,
}

#[derive(Clone, PartialEq, Message)]
struct StdoutAccessLog {
    #[prost(message, optional, tag = "1")]
    log_format: Option<SubstitutionFormatString>,
}

#[derive(Clone, PartialEq, Message)]
struct SubstitutionFormatString {
    #[prost(message, optional, tag = "2")]
    json_format: Option<Struct>,
    #[prost(message, optional, tag = "5")]
    text_format_source: Option<InlineText>,
}

#[derive(Clone, PartialEq, Message)]
struct InlineText {
    #[prost(string, tag = "3")]
    inline_string: String,
}

#[derive(Clone, PartialEq, Message)]
struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "3")]
    string_value: String,
}
