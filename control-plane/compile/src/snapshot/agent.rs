//! `Agent` → the cluster that it is called through.

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster::DiscoveryType};
use postern_model::{Address, Agent, AgentAddress, Protocol};

use super::{
    Resource,
    cluster::{protocol_options, with_endpoints},
    duration::duration,
    endpoint::{pipe, single, socket_address},
};

/// The cluster of an agent. No service has a name with a `/`, so no two clusters are called the same.
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
        // Who waits for an answer no longer than this waits no longer for a connection either.
        connect_timeout: Some(duration(agent.spec.timeout)),
        typed_extension_protocol_options: protocol_options(Protocol::Http2, None),
        ..Default::default()
    };
    with_endpoints(cluster, discovery, endpoints)
}
