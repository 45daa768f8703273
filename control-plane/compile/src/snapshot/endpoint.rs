//! Projects `Service` to the endpoints of its cluster.
//!
//! The messages are declared here, because metadata is a hash map in `envoy-types`: the encoding of several tags, and
//! so the version, would change from run to run.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::config::{
        core::v3::{
            Address, Pipe, SocketAddress, address,
            socket_address::{PortSpecifier, Protocol},
        },
        endpoint::v3::ClusterLoadAssignment as Assignment,
    },
    google::protobuf::Any,
};
use postern_base::digest::Digest;
use postern_model::Service;
use prost::{Message, Name};

use super::{Author, Resource};

/// The metadata namespace of Envoy's load balancers.
const TAGS: &str = "envoy.lb";

/// The EDS resource of a service. `None` if Envoy resolves its endpoints itself.
pub(super) fn endpoints(service: &postern_model::Resource<Service>) -> Option<Resource> {
    if !is_static(&service.spec) {
        return None;
    }
    let value = load_assignment(&service.name, &service.spec).encode_to_vec();
    let version = Digest::of(&value);
    let body = Any { type_url: Assignment::type_url(), value };
    Some(Resource { name: service.name.clone(), version, body, author: Author::Postern })
}

/// Whether all endpoints are IP addresses, so that nothing has to be resolved.
pub(super) fn is_static(service: &Service) -> bool {
    service.endpoints.iter().all(|endpoint| matches!(endpoint.address, postern_model::Address::Ip(_)))
}

/// The endpoints of a service, under the name of its cluster.
pub(super) fn load_assignment(cluster: &str, service: &Service) -> ClusterLoadAssignment {
    assignment(cluster, service.endpoints.iter().map(lb_endpoint).collect())
}

/// One endpoint without tags, under the name of its cluster.
pub(super) fn single(cluster: &str, address: Address) -> ClusterLoadAssignment {
    assignment(cluster, vec![LbEndpoint { endpoint: Some(Endpoint { address: Some(address) }), metadata: None }])
}

/// A socket address in Envoy's form.
pub(super) fn socket_address(address: &str, port: u16) -> Address {
    let socket = SocketAddress {
        protocol: Protocol::Tcp.into(),
        address: address.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

/// A unix socket in Envoy's form.
pub(super) fn pipe(path: &str) -> Address {
    Address { address: Some(address::Address::Pipe(Pipe { path: path.to_owned(), ..Default::default() })) }
}

fn assignment(cluster: &str, lb_endpoints: Vec<LbEndpoint>) -> ClusterLoadAssignment {
    // gRPC clients with native xDS ignore localities without a weight, and reject an absent locality, though an empty
    // one is accepted.
    let place = LocalityLbEndpoints { locality: Some(Locality {}), lb_endpoints, load_balancing_weight: Some(1) };
    ClusterLoadAssignment { cluster_name: cluster.to_owned(), endpoints: vec![place] }
}

fn lb_endpoint(endpoint: &postern_model::Endpoint) -> LbEndpoint {
    let address = match &endpoint.address {
        postern_model::Address::Ip(address) => address.to_string(),
        postern_model::Address::Name(name) => name.clone(),
    };
    let address = Some(socket_address(&address, endpoint.port));
    let metadata = (!endpoint.tags.is_empty()).then(|| metadata(&endpoint.tags));
    LbEndpoint { endpoint: Some(Endpoint { address }), metadata }
}

fn metadata(tags: &BTreeMap<String, String>) -> Metadata {
    let value = |value: &String| Value { string_value: value.clone() };
    let fields = tags.iter().map(|(name, tag)| (name.clone(), value(tag))).collect();
    Metadata { filter_metadata: [(TAGS.to_owned(), Struct { fields })].into() }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LocalityLbEndpoints>,
}

#[derive(Clone, PartialEq, Message)]
struct LocalityLbEndpoints {
    #[prost(message, optional, tag = "1")]
    locality: Option<Locality>,
    #[prost(message, repeated, tag = "2")]
    lb_endpoints: Vec<LbEndpoint>,
    /// A `UInt32Value`.
    #[prost(message, optional, tag = "3")]
    load_balancing_weight: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Locality {}

#[derive(Clone, PartialEq, Message)]
struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    endpoint: Option<Endpoint>,
    #[prost(message, optional, tag = "3")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Endpoint {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, Struct>,
}

#[derive(Clone, PartialEq, Message)]
struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "3")]
    string_value: String,
}
