//! `Gateway` → Envoy's listeners, each with the filter in front of the router.

use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::ExtensionConfigSource,
            listener::v3::{Filter, FilterChain, Listener, filter::ConfigType},
        },
        extensions::filters::{
            http::{router::v3::Router, wasm::v3::Wasm},
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier,
                http_filter::ConfigType as HttpConfigType,
            },
        },
    },
    google::protobuf::BoolValue,
};
use prost::Name;

use super::{FILTER_NAME, Resource, access_log, any, cluster::socket_address, filter::from_the_control_plane};
use crate::model::{self, Gateway};

/// One listener for each that the gateway names.
pub(super) fn listeners(gateway: &model::Resource<Gateway>) -> Vec<Resource> {
    gateway.spec.listeners.iter().map(|listener| resource(&gateway.name, listener)).collect()
}

fn resource(gateway: &str, listener: &model::Listener) -> Resource {
    let name = format!("{gateway}/{}", listener.name);
    let manager = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&connection_manager(gateway)))),
    };
    let chain = FilterChain { filters: vec![manager], ..Default::default() };
    let message = Listener {
        name: name.clone(),
        address: Some(socket_address(&listener.address.to_string(), listener.port)),
        filter_chains: vec![chain],
        ..Default::default()
    };
    Resource::new(&name, &message)
}

fn connection_manager(gateway: &str) -> HttpConnectionManager {
    let routes = Rds { config_source: Some(from_the_control_plane()), route_config_name: gateway.to_owned() };
    HttpConnectionManager {
        stat_prefix: gateway.to_owned(),
        route_specifier: Some(RouteSpecifier::Rds(routes)),
        http_filters: vec![policy_filter(), router_filter()],
        access_log: vec![access_log::to_stdout()],
        // At an edge, headers that claim to come from inside are not to be believed …
        use_remote_address: Some(BoolValue { value: true }),
        // … and a path must not look different to the router than to the upstream.
        normalize_path: Some(BoolValue { value: true }),
        merge_slashes: true,
        ..Default::default()
    }
}

/// The policies, by ECDS and without a default: until a plan has come, the listener waits, and then answers 500.
fn policy_filter() -> HttpFilter {
    let discovery = ExtensionConfigSource {
        config_source: Some(from_the_control_plane()),
        type_urls: vec![Wasm::type_url()],
        ..Default::default()
    };
    HttpFilter {
        name: FILTER_NAME.to_owned(),
        config_type: Some(HttpConfigType::ConfigDiscovery(discovery)),
        ..Default::default()
    }
}

fn router_filter() -> HttpFilter {
    HttpFilter {
        name: "envoy.filters.http.router".to_owned(),
        config_type: Some(HttpConfigType::TypedConfig(any(&Router::default()))),
        ..Default::default()
    }
}
