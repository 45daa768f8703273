//! Projects `Service` to a cluster.

use std::collections::HashMap;

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster,
                cluster::{ClusterDiscoveryType, DiscoveryType, DnsLookupFamily, EdsClusterConfig},
            },
            core::v3::{
                HealthCheck, Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions as CommonOptions,
                health_check::{GrpcHealthCheck, HealthChecker, HttpHealthCheck, TcpHealthCheck},
            },
        },
        extensions::upstreams::http::v3::{
            HttpProtocolOptions,
            http_protocol_options::{
                ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
            },
        },
        r#type::v3::CodecClientType,
    },
    google::protobuf::{Any, Duration, UInt32Value},
};
use postern_base::digest::Digest;
use postern_model::{Probe, Protocol, Service};
use prost::{Message, Name};

use super::{
    Author, Resource, any, circuit_breaker,
    duration::duration,
    endpoint::{ClusterLoadAssignment, is_static, load_assignment},
    filter::from_the_control_plane,
    timeout, tls,
};
use crate::attach::{self, Scope};

const CONNECT_TIMEOUT: Duration = Duration { seconds: 5, nanos: 0 };
const PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The cluster of a service. Addresses are delivered by EDS; names are resolved by Envoy.
pub(super) fn cluster(service: &postern_model::Resource<Service>, scope: &Scope<'_>) -> Resource {
    let (name, spec) = (&service.name, &service.spec);
    let timeouts = &attach::for_service(&scope.timeouts, name).conf;
    let breaking = attach::for_service(&scope.circuit_breakers, name).conf;
    let check = attach::health_check(spec, &attach::for_service(&scope.health_checks, name));
    // Envoy refuses such a cluster. So does admission.
    let check = check.filter(|check| spec.protocol == Protocol::Http2 || !matches!(check.probe, Probe::Grpc { .. }));
    let cluster = Cluster {
        name: name.clone(),
        connect_timeout: Some(timeout::connect(timeouts).unwrap_or(CONNECT_TIMEOUT)),
        typed_extension_protocol_options: protocol_options(spec.protocol, timeout::idle(timeouts)),
        transport_socket: spec.tls.as_ref().map(|tls| tls::upstream(name, tls, spec.protocol)),
        health_checks: check.iter().map(|check| health_check(check, spec.protocol)).collect(),
        // An endpoint that is no longer listed is removed, even if its health checks pass.
        ignore_health_on_host_removal: check.is_some(),
        circuit_breakers: circuit_breaker::thresholds(&breaking),
        outlier_detection: circuit_breaker::outlier_detection(&breaking),
        ..Default::default()
    };
    if is_static(spec) {
        by_eds(cluster)
    } else {
        with_endpoints(cluster, DiscoveryType::StrictDns, load_assignment(name, spec))
    }
}

fn by_eds(cluster: Cluster) -> Resource {
    let source = EdsClusterConfig { eds_config: Some(from_the_control_plane()), service_name: String::new() };
    let cluster = Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(source),
        ..cluster
    };
    Resource::new(&cluster.name.clone(), &cluster)
}

/// A cluster with its endpoints inline. They are encoded separately, in a stable order, and appended: concatenated
/// parts of a message are the message.
pub(super) fn with_endpoints(cluster: Cluster, discovery: DiscoveryType, endpoints: ClusterLoadAssignment) -> Resource {
    #[derive(Clone, PartialEq, Message)]
    struct Endpoints {
        #[prost(message, optional, tag = "33")]
        load_assignment: Option<ClusterLoadAssignment>,
    }

    let cluster = Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(discovery.into())),
        // Envoy prefers IPv6 by default, and few servers listen on the IPv6 address of `localhost`.
        dns_lookup_family: DnsLookupFamily::V4Preferred.into(),
        ..cluster
    };
    let mut value = cluster.encode_to_vec();
    value.extend(Endpoints { load_assignment: Some(endpoints) }.encode_to_vec());
    let version = Digest::of(&value);
    let body = Any { type_url: Cluster::type_url(), value };
    Resource { version, body, name: cluster.name, author: Author::Postern }
}

/// The HTTP options of a cluster. At most one entry, because a map with several has no stable encoding.
pub(super) fn protocol_options(protocol: Protocol, idle: Option<Duration>) -> HashMap<String, Any> {
    let config = match (protocol, idle) {
        (Protocol::Http1, None) => return HashMap::new(),
        (Protocol::Http1, Some(_)) => ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default()),
        (Protocol::Http2, _) => ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default()),
    };
    let explicit = ExplicitHttpConfig { protocol_config: Some(config) };
    let common = idle.map(|idle| CommonOptions { idle_timeout: Some(idle), ..Default::default() });
    let options = HttpProtocolOptions {
        common_http_protocol_options: common,
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit)),
        ..Default::default()
    };
    [(PROTOCOL_OPTIONS.to_owned(), any(&options))].into()
}

fn health_check(check: &postern_model::HealthCheck, protocol: Protocol) -> HealthCheck {
    let checker = match &check.probe {
        Probe::Http { path, host } => HealthChecker::HttpHealthCheck(HttpHealthCheck {
            path: path.clone(),
            host: host.clone().unwrap_or_default(),
            codec_client_type: match protocol {
                Protocol::Http1 => CodecClientType::Http1,
                Protocol::Http2 => CodecClientType::Http2,
            }
            .into(),
            ..Default::default()
        }),
        Probe::Tcp {} => HealthChecker::TcpHealthCheck(TcpHealthCheck::default()),
        Probe::Grpc { service } => {
            HealthChecker::GrpcHealthCheck(GrpcHealthCheck { service_name: service.clone(), ..Default::default() })
        }
    };
    HealthCheck {
        timeout: Some(duration(check.timeout)),
        interval: Some(duration(check.interval)),
        // By default, a minute passes between two checks of a service that nobody has called yet.
        no_traffic_interval: Some(duration(check.interval)),
        unhealthy_threshold: Some(UInt32Value { value: check.unhealthy_threshold }),
        healthy_threshold: Some(UInt32Value { value: check.healthy_threshold }),
        health_checker: Some(checker),
        ..Default::default()
    }
}
