//! The access log of generated listeners: one JSON object a request on Envoy's standard output, with the decision in it.
//!
//! The messages are declared again, because the map in `google.protobuf.Struct` is a hash map in `envoy-types`: its
//! encoding, and with it the listener's version, would change from run to run.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::config::accesslog::v3::{AccessLog, access_log::ConfigType},
    google::protobuf::Any,
};
use prost::Message;

const TYPE_URL: &str = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";

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

pub(super) fn to_stdout() -> AccessLog {
    let text = |text: &str| Value { string_value: text.to_owned() };
    let fields = FIELDS.iter().map(|(name, format)| ((*name).to_owned(), text(format))).collect();
    let format = SubstitutionFormatString { json_format: Some(Struct { fields }) };
    let log = StdoutAccessLog { log_format: Some(format) };
    let config = Any { type_url: TYPE_URL.to_owned(), value: log.encode_to_vec() };
    AccessLog {
        name: "envoy.access_loggers.stdout".to_owned(),
        config_type: Some(ConfigType::TypedConfig(config)),
        ..Default::default()
    }
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
