//! Projects `Gateway` to Envoy's listeners, each with the filter in front of the router.

use envoy_types::pb::{
    envoy::{
        config::{
            accesslog::v3::AccessLog,
            core::v3::{ExtensionConfigSource, TrafficDirection},
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
    google::protobuf::{Duration, UInt32Value},
};
use postern_engine::Placement;
use postern_model::{EdgeHttp, Gateway, TracingConf};
use prost::Name;

use super::{Resource, any, edge, endpoint::socket_address, filter::from_the_control_plane, source_tags, tls, tracing};
use crate::{
    attach::{Attachment, EffectiveStep},
    params::Params,
};

const REQUEST_ID: &str = "x-request-id";
const HANDSHAKE_TIMEOUT: Duration = Duration { seconds: 10, nanos: 0 };

/// The properties that all listeners of a gateway share.
pub(super) struct Manager<'a> {
    pub(super) gateway: &'a str,
    pub(super) http: &'a EdgeHttp,
    /// Whether a chain trusts `x-request-id` of callers: then Envoy must not replace it first.
    pub(super) trusts_request_ids: bool,
    /// Whether a step reads the tags in a caller's certificate.
    pub(super) reads_source_tags: bool,
    pub(super) access_logs: &'a [AccessLog],
    /// Whether it is for requests that the node sends out.
    pub(super) outbound: bool,
    pub(super) tracing: &'a TracingConf,
}

/// One listener for each of the gateway's listeners.
pub(super) fn listeners(gateway: &postern_model::Resource<Gateway>, manager: &Manager<'_>) -> Vec<Resource> {
    gateway.spec.listeners.iter().map(|listener| resource(listener, manager)).collect()
}

/// Whether a chain of the gateway's routes trusts `x-request-id` of callers.
pub(super) fn trusts_request_ids(gateway: &postern_model::Resource<Gateway>, attachment: &Attachment<'_>) -> bool {
    let trusts = |step: &EffectiveStep<'_>| match step.params() {
        Ok(Params::RequestId(params)) => params.trust_incoming && params.header.eq_ignore_ascii_case(REQUEST_ID),
        _ => false,
    };
    let chains = gateway.spec.routes.iter().filter_map(|route| attachment.routes.get(route.name.as_str()));
    let chains = chains.chain(&attachment.default).filter_map(|chain| attachment.chains.get(*chain));
    chains.flat_map(|chain| &chain.request).any(trusts)
}

fn resource(listener: &postern_model::Listener, manager: &Manager<'_>) -> Resource {
    let name = format!("{}/{}", manager.gateway, listener.name);
    let transport_socket = listener.tls.as_ref().map(|tls| tls::downstream(manager.gateway, &listener.name, tls));
    let buffer_limit = manager.http.buffer_limit;
    let direction = if manager.outbound { TrafficDirection::Outbound } else { TrafficDirection::Unspecified };
    let manager = edge::hardened(connection_manager(manager), manager.http, listener.tls.is_some());
    let manager = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&manager))),
    };
    let chain = FilterChain {
        filters: vec![manager],
        // Limits how long a connection may take for the handshake.
        transport_socket_connect_timeout: transport_socket.is_some().then_some(HANDSHAKE_TIMEOUT),
        transport_socket,
        ..Default::default()
    };
    let message = Listener {
        name: name.clone(),
        address: Some(socket_address(&listener.address.to_string(), listener.port)),
        filter_chains: vec![chain],
        per_connection_buffer_limit_bytes: Some(UInt32Value { value: buffer_limit }),
        traffic_direction: direction.into(),
        ..Default::default()
    };
    Resource::new(&name, &message)
}

fn connection_manager(manager: &Manager<'_>) -> HttpConnectionManager {
    let gateway = manager.gateway.to_owned();
    let routes = Rds { config_source: Some(from_the_control_plane()), route_config_name: gateway.clone() };
    let mut filters = vec![policy_filter(), router_filter()];
    if manager.reads_source_tags {
        filters.insert(0, source_tags::filter());
    }
    HttpConnectionManager {
        stat_prefix: gateway,
        route_specifier: Some(RouteSpecifier::Rds(routes)),
        http_filters: filters,
        access_log: manager.access_logs.to_vec(),
        tracing: tracing::tracing(manager.gateway, manager.tracing),
        preserve_external_request_id: manager.trusts_request_ids,
        ..Default::default()
    }
}

/// The filter, configured by ECDS without a default: until the first plan, the listener waits and then answers 500.
fn policy_filter() -> HttpFilter {
    let discovery = ExtensionConfigSource {
        config_source: Some(from_the_control_plane()),
        type_urls: vec![Wasm::type_url()],
        ..Default::default()
    };
    HttpFilter {
        name: Placement::Gateway.name().to_owned(),
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
