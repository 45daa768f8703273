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
    google::protobuf::{BoolValue, Duration},
};
use prost::Name;

use super::{FILTER_NAME, Resource, access_log, any, endpoint::socket_address, filter::from_the_control_plane, tls};
use crate::model::{self, Bundle, Gateway, Step};

const REQUEST_ID: &str = "x-request-id";
const HANDSHAKE_TIMEOUT: Duration = Duration { seconds: 10, nanos: 0 };

/// One listener for each that the gateway names.
pub(super) fn listeners(gateway: &model::Resource<Gateway>, bundle: &Bundle) -> Vec<Resource> {
    let trusted = trusts_request_ids(gateway, bundle);
    gateway.spec.listeners.iter().map(|listener| resource(&gateway.name, listener, trusted)).collect()
}

/// Whether a route of the gateway takes `x-request-id` from callers: Envoy must not replace it before.
fn trusts_request_ids(gateway: &model::Resource<Gateway>, bundle: &Bundle) -> bool {
    let routes: Vec<_> = gateway.spec.routes.iter().map(|route| &route.name).collect();
    let trusts = |step: &Step| {
        let header = step.params.get("header").and_then(|header| header.as_str()).unwrap_or(REQUEST_ID);
        step.policy == "requestId"
            && step.params.get("trustIncoming").is_some_and(|trust| trust.as_bool() == Some(true))
            && header.eq_ignore_ascii_case(REQUEST_ID)
    };
    let policies = bundle.route_policies.iter().filter(|policy| routes.contains(&&policy.spec.target_ref.name));
    policies.flat_map(|policy| &policy.spec.request).any(trusts)
}

fn resource(gateway: &str, listener: &model::Listener, trusts_request_ids: bool) -> Resource {
    let name = format!("{gateway}/{}", listener.name);
    let manager = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&connection_manager(gateway, trusts_request_ids)))),
    };
    let transport_socket = listener.tls.as_ref().map(|tls| tls::downstream(gateway, &listener.name, tls));
    let chain = FilterChain {
        filters: vec![manager],
        // Who opens a connection and says nothing holds it no longer than this.
        transport_socket_connect_timeout: transport_socket.is_some().then_some(HANDSHAKE_TIMEOUT),
        transport_socket,
        ..Default::default()
    };
    let message = Listener {
        name: name.clone(),
        address: Some(socket_address(&listener.address.to_string(), listener.port)),
        filter_chains: vec![chain],
        ..Default::default()
    };
    Resource::new(&name, &message)
}

fn connection_manager(gateway: &str, trusts_request_ids: bool) -> HttpConnectionManager {
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
        preserve_external_request_id: trusts_request_ids,
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
