//! Projects `Gateway` to Envoy's listeners, each with the filter in front of the router.

use envoy_types::pb::{
    envoy::{
        config::{
            accesslog::v3::AccessLog,
            core::v3::{ExtensionConfigSource, TrafficDirection},
            listener::v3::{
                Filter, FilterChain, FilterChainMatch, Listener, ListenerFilter, filter::ConfigType,
                listener_filter::ConfigType as ListenerConfigType,
            },
        },
        extensions::filters::{
            http::{router::v3::Router, wasm::v3::Wasm},
            listener::tls_inspector::v3::TlsInspector,
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier,
                http_filter::ConfigType as HttpConfigType,
            },
        },
    },
    google::protobuf::{Duration, UInt32Value},
};
use postern_engine::Placement;
use postern_model::{Gateway, TracingConf};
use prost::Name;

use super::{Resource, any, edge, endpoint::socket_address, filter::from_the_control_plane, source_tags, tls, tracing};
use crate::{
    attach::{Attachment, EffectiveStep},
    params::Params,
    port::{Door, Port},
};

const REQUEST_ID: &str = "x-request-id";
const HANDSHAKE_TIMEOUT: Duration = Duration { seconds: 10, nanos: 0 };

/// The properties that all listeners of a gateway share.
pub(super) struct Manager<'a> {
    /// Whether a chain trusts `x-request-id` of callers: then Envoy must not replace it first.
    pub(super) trusts_request_ids: bool,
    /// Whether a step reads the tags in a caller's certificate.
    pub(super) reads_source_tags: bool,
    pub(super) access_logs: &'a [AccessLog],
    pub(super) tracing: &'a TracingConf,
}

/// The listener of a port, with a filter chain for each of its doors.
pub(super) fn listener<'a>(
    port: &Port<'_>,
    manager: impl Fn(&postern_model::Resource<Gateway>) -> Manager<'a>,
) -> Resource {
    let chains = port.doors.iter().map(|door| filter_chain(port, door, &manager(door.gateway)));
    let buffers = port.doors.iter().map(|door| door.gateway.spec.http.buffer_limit);
    let reads_names = port.has_several_doors();
    let outbound = port.doors.iter().any(|door| door.gateway.is_outbound());
    let direction = if outbound { TrafficDirection::Outbound } else { TrafficDirection::Unspecified };
    let message = Listener {
        name: port.name.clone(),
        address: Some(socket_address(&port.address.ip().to_string(), port.address.port())),
        filter_chains: chains.collect(),
        listener_filters: reads_names.then(tls_inspector).into_iter().collect(),
        listener_filters_timeout: reads_names.then_some(HANDSHAKE_TIMEOUT),
        per_connection_buffer_limit_bytes: buffers.max().map(|value| UInt32Value { value }),
        traffic_direction: direction.into(),
        ..Default::default()
    };
    Resource::new(&port.name, &message)
}

fn filter_chain(port: &Port<'_>, door: &Door<'_>, manager: &Manager<'_>) -> FilterChain {
    let several = port.has_several_doors();
    let transport_socket = tls::downstream(door);
    let http = &door.gateway.spec.http;
    let manager = edge::hardened(connection_manager(port, door, manager), http, transport_socket.is_some());
    let manager = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&manager))),
    };
    let server_names: Vec<_> = door.server_names.iter().map(|name| (*name).to_owned()).collect();
    FilterChain {
        name: if several { door.label() } else { String::new() },
        filter_chain_match: (!server_names.is_empty()).then(|| FilterChainMatch { server_names, ..Default::default() }),
        filters: vec![manager],
        // Limits how long a connection may take for the handshake.
        transport_socket_connect_timeout: transport_socket.is_some().then_some(HANDSHAKE_TIMEOUT),
        transport_socket,
        ..Default::default()
    }
}

/// Reads the name that a client asks for, before a filter chain is chosen.
fn tls_inspector() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(ListenerConfigType::TypedConfig(any(&TlsInspector::default()))),
        ..Default::default()
    }
}

/// Whether a chain of the gateway's routes trusts `x-request-id` of callers.
pub(super) fn trusts_request_ids(gateway: &postern_model::Resource<Gateway>, attachment: &Attachment<'_>) -> bool {
    let trusts = |step: &EffectiveStep<'_>| match step.params() {
        Ok(Params::RequestId(params)) => params.trust_incoming && params.header.eq_ignore_ascii_case(REQUEST_ID),
        _ => false,
    };
    let chains = gateway.spec.routes.iter().filter_map(|route| attachment.routes.get(route.name.as_str()));
    let chains = chains.chain(&attachment.default).filter_map(|chain| attachment.chains.get(*chain));
    chains.flat_map(|chain| &chain.request).filter(|step| step.step.policy == "requestId").any(trusts)
}

fn connection_manager(port: &Port<'_>, door: &Door<'_>, manager: &Manager<'_>) -> HttpConnectionManager {
    let gateway = &door.gateway.name;
    let routes = Rds { config_source: Some(from_the_control_plane()), route_config_name: door.routes(port) };
    let mut filters = vec![policy_filter(), router_filter()];
    if manager.reads_source_tags {
        filters.insert(0, source_tags::filter());
    }
    HttpConnectionManager {
        stat_prefix: gateway.clone(),
        route_specifier: Some(RouteSpecifier::Rds(routes)),
        http_filters: filters,
        access_log: manager.access_logs.to_vec(),
        tracing: tracing::tracing(gateway, manager.tracing),
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
