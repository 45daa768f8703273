//! Projects `Agent` to the cluster for calls to it.

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster::DiscoveryType};
use postern_model::{Address, Agent, AgentAddress, Protocol};

use super::{
    Resource,
    cluster::{protocol_options, with_endpoints},
    duration::duration,
    endpoint::{pipe, single, socket_address},
};

/// The cluster of an agent. Its name contains a `/`, so it differs from the names of all services.
pub(super) fn cluster(agent: &postern_model::Resource<Agent>) -> Resource {
    let name = format!("agent/{}", agent.name);
    let (discovery, address) = match &agent.spec.address {
        AgentAddress::Tcp { host: Address::Ip(address), port } => {
            (DiscoveryType::Static, socket_address(&address.to_string(), *port))
        }
        AgentAddress::Tcp { host: Address::Name(name), port } => {
            (DiscoveryType::StrictDns, socket_address(name, *port))
        }
        AgentAddress::Unix(path) => (DiscoveryType::Static, pipe(path)),
    };
    let endpoints = single(&name, address);
    let cluster = Cluster {
        name,
        // There is no point in waiting longer for the connection than for the answer.
        connect_timeout: Some(duration(agent.spec.timeout)),
        typed_extension_protocol_options: protocol_options(Protocol::Http2, None),
        ..Default::default()
    };
    with_endpoints(cluster, discovery, endpoints)
}
