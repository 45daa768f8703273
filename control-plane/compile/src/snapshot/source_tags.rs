//! The HTTP filter that puts a caller's URI SANs where policies find them. Envoy has an attribute for the first one
//! only; the others contain the tags of a source.

use std::fmt::Write as _;

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::{
    config::core::v3::{SubstitutionFormatString, substitution_format_string::Format},
    extensions::filters::{
        common::set_filter_state::v3::{
            FilterStateValue,
            filter_state_value::{Key, Value},
        },
        http::set_filter_state::v3::Config,
        network::http_connection_manager::v3::{HttpFilter, http_filter::ConfigType},
    },
};
use postern_engine::Property;

use super::any;

pub(super) fn filter() -> HttpFilter {
    let [_, key] = Property::PeerUriSans.path();
    let text = DataSource {
        specifier: Some(Specifier::InlineString("%DOWNSTREAM_PEER_URI_SAN%".to_owned())),
        ..Default::default()
    };
    let format = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(text)),
        // Without a certificate the value is empty, not `-`.
        omit_empty_values: true,
        ..Default::default()
    };
    let value = FilterStateValue {
        key: Some(Key::ObjectKey(key.to_owned())),
        factory_key: "envoy.string".to_owned(),
        value: Some(Value::FormatString(format)),
        skip_if_empty: true,
        ..Default::default()
    };
    let config = Config { on_request_headers: vec![value], ..Default::default() };
    HttpFilter {
        name: "envoy.filters.http.set_filter_state".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&config))),
        ..Default::default()
    }
}

/// The URI by which a certificate has a tag.
pub(super) fn tag_uri(name: &str, value: &str) -> String {
    format!("{TAG}{}/{}", encoded(name), encoded(value))
}

/// The start of a URI that is a tag.
const TAG: &str = "postern://tag/";

/// Percent-encodes all but the unreserved characters (RFC 3986, section 2.3).
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            // Writing to a string cannot fail.
            byte => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}
