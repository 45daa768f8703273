//! The access logs of generated listeners: one JSON object a request, with the decision in it; on Envoy's standard output
//! unless AccessLogs say otherwise.
//!
//! The messages are declared again, because the map in `google.protobuf.Struct` is a hash map in `envoy-types`: its
//! encoding, and with it the listener's version, would change from run to run.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::{
        config::accesslog::v3::{
            AccessLog, AccessLogFilter, ExtensionFilter, access_log::ConfigType, access_log_filter::FilterSpecifier,
            extension_filter::ConfigType as FilterConfig,
        },
        extensions::access_loggers::filters::cel::v3::ExpressionFilter,
    },
    google::protobuf::Any,
};
use prost::Message;

use super::any;
use crate::{
    attach::{self, Logged, Scope, Which},
    model::LogBackend,
};

const STDOUT: &str = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
const FILE: &str = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";

/// What is logged, by field.
const FIELDS: [(&str, &str); 9] = [
    ("time", "%START_TIME%"),
    ("method", "%REQUEST_HEADER(:METHOD)%"),
    ("path", "%REQUEST_HEADER(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("status", "%RESPONSE_CODE%"),
    ("details", "%RESPONSE_CODE_DETAILS%"),
    ("route", "%ROUTE_NAME%"),
    ("request_id", "%REQUEST_HEADER(X-REQUEST-ID)%"),
    ("duration_ms", "%DURATION%"),
    ("decision", "%FILTER_STATE(wasm.postern:PLAIN)%"),
];

/// The access logs of a group of nodes.
pub(super) fn access_logs(scope: &Scope<'_>) -> Vec<AccessLog> {
    let Some(logged) = attach::access_logs(scope) else { return vec![to_stdout(None)] };
    let declared = scope.settings.map_or(&[][..], |settings| &settings.spec.log_backends);
    let mut logs = Vec::new();
    for logged in logged {
        let condition = condition(&logged);
        for name in &logged.backends {
            logs.push(match declared.iter().find(|backend| backend.name == *name) {
                Some(LogBackend { file, .. }) => to_file(&file.path, condition.as_deref()),
                None => to_stdout(condition.as_deref()),
            });
        }
    }
    logs
}

/// Which requests are logged, in CEL; all of them if there is nothing to say.
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
    // What is absent, such as the cluster of a request that was refused, is an error in CEL, which is not what is meant.
    let equals = |attribute: &str, value: &str| format!("(has({attribute}) && {attribute} == {})", literal(value));
    let mut terms = Vec::new();
    terms.extend(which.route.as_deref().map(|route| equals("xds.route_name", route)));
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

/// A string in CEL. Names have no quotes and backslashes; if one had, it would not end the string.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn to_stdout(condition: Option<&str>) -> AccessLog {
    let log = StdoutAccessLog { log_format: Some(format()) };
    access_log("envoy.access_loggers.stdout", STDOUT, log.encode_to_vec(), condition)
}

fn to_file(path: &str, condition: Option<&str>) -> AccessLog {
    let log = FileAccessLog { path: path.to_owned(), log_format: Some(format()) };
    access_log("envoy.access_loggers.file", FILE, log.encode_to_vec(), condition)
}

fn access_log(name: &str, type_url: &str, value: Vec<u8>, condition: Option<&str>) -> AccessLog {
    let filter = condition.map(|condition| {
        let expression = ExpressionFilter { expression: condition.to_owned(), ..Default::default() };
        let extension = ExtensionFilter {
            name: "envoy.access_loggers.extension_filters.cel".to_owned(),
            config_type: Some(FilterConfig::TypedConfig(any(&expression))),
        };
        AccessLogFilter { filter_specifier: Some(FilterSpecifier::ExtensionFilter(extension)) }
    });
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
