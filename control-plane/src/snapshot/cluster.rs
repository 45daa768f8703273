//! `Service` → Envoy's cluster and its endpoints.

use envoy_types::pb::{
    envoy::config::{
        cluster::v3::{
            Cluster,
            cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
        },
        core::v3::{
            Address, SocketAddress, address,
            socket_address::{PortSpecifier, Protocol},
        },
        endpoint::v3::{ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier},
    },
    google::protobuf::Duration,
};

use super::{Resource, filter::from_the_control_plane, timeout};
use crate::model::{self, Service, Timeouts};

const CONNECT_TIMEOUT: Duration = Duration { seconds: 5, nanos: 0 };

/// The cluster of a service. Addresses come by EDS; names are resolved by Envoy itself.
pub(super) fn cluster(name: &str, service: &Service, timeouts: &Timeouts) -> Resource {
    let discovery = if is_static(service) { DiscoveryType::Eds } else { DiscoveryType::StrictDns };
    let by_eds = EdsClusterConfig { eds_config: Some(from_the_control_plane()), service_name: String::new() };
    let mut cluster = Cluster {
        name: name.to_owned(),
        connect_timeout: Some(CONNECT_TIMEOUT),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(discovery.into())),
        eds_cluster_config: is_static(service).then_some(by_eds),
        load_assignment: (!is_static(service)).then(|| load_assignment(name, service)),
        ..Default::default()
    };
    timeout::set_on_cluster(&mut cluster, timeouts);
    Resource::new(name, &cluster)
}

/// The endpoints of a service, where EDS is how they come.
pub(super) fn endpoints(name: &str, service: &Service) -> Option<Resource> {
    is_static(service).then(|| Resource::new(name, &load_assignment(name, service)))
}

/// A socket address, as Envoy writes it.
pub(super) fn socket_address(address: &str, port: u16) -> Address {
    let socket = SocketAddress {
        protocol: Protocol::Tcp.into(),
        address: address.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

fn is_static(service: &Service) -> bool {
    service.endpoints.iter().all(|endpoint| matches!(endpoint.address, model::Address::Ip(_)))
}

fn load_assignment(name: &str, service: &Service) -> ClusterLoadAssignment {
    let locality =
        LocalityLbEndpoints { lb_endpoints: service.endpoints.iter().map(lb_endpoint).collect(), ..Default::default() };
    ClusterLoadAssignment { cluster_name: name.to_owned(), endpoints: vec![locality], ..Default::default() }
}

fn lb_endpoint(endpoint: &model::Endpoint) -> LbEndpoint {
    let address = match &endpoint.address {
        model::Address::Ip(address) => address.to_string(),
        model::Address::Name(name) => name.clone(),
    };
    let address = Some(socket_address(&address, endpoint.port));
    let host = HostIdentifier::Endpoint(Endpoint { address, ..Default::default() });
    LbEndpoint { host_identifier: Some(host), ..Default::default() }
}
