//! Access logs of generated listeners: a JSON object for each request, with the decision. Written to Envoy's standard
//! output, unless AccessLogs apply.
//!
//! The messages are declared here, because `envoy-types` has a hash map in `google.protobuf.Struct`: the encoding, and
//! so the listener's version, would change from run to run.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::{
        config::accesslog::v3::{
            AccessLog, AccessLogFilter, AndFilter, ComparisonFilter, ExtensionFilter, OrFilter, RuntimeFilter,
            StatusCodeFilter, access_log::ConfigType, access_log_filter::FilterSpecifier, comparison_filter::Op,
            extension_filter::ConfigType as FilterConfig,
        },
        config::core::v3::RuntimeUInt32,
        extensions::access_loggers::filters::cel::v3::ExpressionFilter,
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::Any,
};
use postern_model::{LogBackend, Settings, unit::Percent};
use prost::Message;

use super::any;
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
    let Some(logged) = attach::access_logs(scope) else { return vec![to_stdout(filter(None, sample))] };
    let mut logs = Vec::new();
    for logged in logged.into_iter().filter(|logged| !(local && logged.incoming)) {
        let filter = filter(condition(&logged), sample);
        for name in &logged.backends {
            logs.push(match settings.log_backends.iter().find(|backend| backend.name == *name) {
                Some(LogBackend { file, .. }) => to_file(&file.path, filter.clone()),
                None => to_stdout(filter.clone()),
            });
        }
    }
    logs
}

/// The filter for requests that meet the condition and are in the sample. `None` means all requests.
fn filter(condition: Option<String>, sample: Option<Percent>) -> Option<AccessLogFilter> {
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

fn meets(expression: String) -> AccessLogFilter {
    let expression = ExpressionFilter { expression, ..Default::default() };
    specified(FilterSpecifier::ExtensionFilter(ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(FilterConfig::TypedConfig(any(&expression))),
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

/// The condition on logged requests in CEL. `None` means all requests.
fn condition(logged: &Logged) -> Option<String> {
    let mut terms: Vec<_> = terms(&logged.which);
    for earlier in &logged.unless {
        terms.push(match self::terms(earlier).as_slice() {
            [] => "false".to_owned(),
            earlier => format!("!({})", earlier.join(" && ")),
        });
    }
    (!terms.is_empty()).then(|| terms.join(" && "))
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
    terms
}

/// A string literal in CEL. Names contain neither quotes nor backslashes; if one did, they could not end the literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn to_stdout(filter: Option<AccessLogFilter>) -> AccessLog {
    let log = StdoutAccessLog { log_format: Some(format()) };
    access_log("envoy.access_loggers.stdout", STDOUT, log.encode_to_vec(), filter)
}

fn to_file(path: &str, filter: Option<AccessLogFilter>) -> AccessLog {
    let log = FileAccessLog { path: path.to_owned(), log_format: Some(format()) };
    access_log("envoy.access_loggers.file", FILE, log.encode_to_vec(), filter)
}

fn access_log(name: &str, type_url: &str, value: Vec<u8>, filter: Option<AccessLogFilter>) -> AccessLog {
    let config = Any { type_url: type_url.to_owned(), value };
    AccessLog { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(config)), filter }
}

fn format() -> SubstitutionFormatString {
    let text = |text: &str| Value { string_value: text.to_owned() };
    let fields = FIELDS.iter().map(|(name, format)| ((*name).to_owned(), text(format))).collect();
    SubstitutionFormatString { json_format: Some(Struct { fields }) }
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
