//! Projects Tracings to the tracer of connection managers, and to the cluster of a collector that is no Service.

use std::net::SocketAddr;

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{Cluster, cluster::DiscoveryType},
            core::v3::{
                GrpcService, HttpService, HttpUri,
                grpc_service::{EnvoyGrpc, TargetSpecifier},
                http_uri::HttpUpstreamType,
            },
            trace::v3::{
                OpenTelemetryConfig,
                tracing::{Http as Provider, http::ConfigType},
            },
        },
        extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing,
        r#type::{
            tracing::v3::{
                CustomTag,
                custom_tag::{Header, Literal, Type},
            },
            v3::Percent as WirePercent,
        },
    },
    google::protobuf::Duration,
};
use postern_model::{Address, Protocol, TagValue, TraceCollector, TraceEndpoint, TraceTag, TracingConf, unit::Percent};

use super::{
    Resource, any,
    cluster::{protocol_options, with_endpoints},
    endpoint::{single, socket_address},
};

/// The cluster of a collector at an address. The name contains a `/`, so it differs from the names of all services.
const CLUSTER: &str = "tracing/collector";
/// How long an export may take, and the connection that it needs.
const EXPORT_TIMEOUT: Duration = Duration { seconds: 5, nanos: 0 };

/// The tracing of a gateway's connection managers. `None` if nobody collects spans.
pub(super) fn tracing(gateway: &str, conf: &TracingConf) -> Option<Tracing> {
    let collector = conf.collector.as_ref()?;
    let service_name = conf.service_name.clone().unwrap_or_else(|| gateway.to_owned());
    let tracer = match collector {
        TraceCollector::Grpc(endpoint) => {
            OpenTelemetryConfig { grpc_service: Some(grpc(endpoint)), service_name, ..Default::default() }
        }
        TraceCollector::Http(endpoint) => {
            OpenTelemetryConfig { http_service: Some(http(endpoint)), service_name, ..Default::default() }
        }
    };
    let provider = Provider {
        name: "envoy.tracers.opentelemetry".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&tracer))),
    };
    let sampling = conf.sampling.clone().unwrap_or_default();
    Some(Tracing {
        client_sampling: sampling.client.map(percent),
        random_sampling: sampling.random.map(percent),
        overall_sampling: sampling.overall.map(percent),
        custom_tags: conf.tags.iter().flatten().map(custom_tag).collect(),
        provider: Some(provider),
        ..Default::default()
    })
}

/// The cluster of the collector. `None` if it is a Service, or if there is none.
pub(super) fn cluster(conf: &TracingConf) -> Option<Resource> {
    let collector = conf.collector.as_ref()?;
    let endpoint = collector.endpoint();
    if endpoint.service.is_some() {
        return None;
    }
    let protocol = match collector {
        TraceCollector::Grpc(_) => Protocol::Http2,
        TraceCollector::Http(_) => Protocol::Http1,
    };
    Some(collector_cluster(CLUSTER, endpoint.address.as_ref()?, endpoint.port?, protocol))
}

/// The cluster of a collector at an address.
pub(super) fn collector_cluster(name: &str, address: &Address, port: u16, protocol: Protocol) -> Resource {
    let (discovery, address) = match address {
        Address::Ip(address) => (DiscoveryType::Static, socket_address(&address.to_string(), port)),
        Address::Name(name) => (DiscoveryType::StrictDns, socket_address(name, port)),
    };
    let cluster = Cluster {
        name: name.to_owned(),
        connect_timeout: Some(EXPORT_TIMEOUT),
        typed_extension_protocol_options: protocol_options(protocol, None),
        ..Default::default()
    };
    with_endpoints(cluster, discovery, single(name, address))
}

fn grpc(endpoint: &TraceEndpoint) -> GrpcService {
    collector_service(cluster_name(endpoint), authority(endpoint))
}

/// A collector that is called by gRPC. The authority is by default the cluster's name, which is no host if it has a `/`.
pub(super) fn collector_service(cluster_name: String, authority: String) -> GrpcService {
    let target = EnvoyGrpc { cluster_name, authority, ..Default::default() };
    GrpcService {
        timeout: Some(EXPORT_TIMEOUT),
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)),
        ..Default::default()
    }
}

fn http(endpoint: &TraceEndpoint) -> HttpService {
    let uri = HttpUri {
        uri: format!("http://{}{}", authority(endpoint), endpoint.path()),
        timeout: Some(EXPORT_TIMEOUT),
        http_upstream_type: Some(HttpUpstreamType::Cluster(cluster_name(endpoint))),
    };
    HttpService { http_uri: Some(uri), ..Default::default() }
}

/// The host that a collector is asked for.
fn authority(endpoint: &TraceEndpoint) -> String {
    collector_authority(endpoint.service.as_ref(), endpoint.address.as_ref(), endpoint.port)
}

/// The host that a collector is asked for: its address, unless it is a Service.
pub(super) fn collector_authority(service: Option<&String>, address: Option<&Address>, port: Option<u16>) -> String {
    match (service, address, port) {
        (None, Some(Address::Ip(address)), Some(port)) => SocketAddr::new(*address, port).to_string(),
        (None, Some(Address::Name(name)), Some(port)) => format!("{name}:{port}"),
        (service, ..) => service.cloned().unwrap_or_default(),
    }
}

fn cluster_name(endpoint: &TraceEndpoint) -> String {
    endpoint.service.clone().unwrap_or_else(|| CLUSTER.to_owned())
}

fn custom_tag(TraceTag { name, value }: &TraceTag) -> CustomTag {
    let value = match value {
        TagValue::Literal(value) => Type::Literal(Literal { value: value.clone() }),
        TagValue::Header { name, default } => {
            Type::RequestHeader(Header { name: name.clone(), default_value: default.clone().unwrap_or_default() })
        }
    };
    CustomTag { tag: name.clone(), r#type: Some(value) }
}

fn percent(share: Percent) -> WirePercent {
    WirePercent { value: f64::from(share.of_a_million) / 10_000.0 }
}
