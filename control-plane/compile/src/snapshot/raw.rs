//! Adds `EnvoyResource`s unchanged to the generated resources.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use envoy_types::pb::envoy::config::{
    cluster::v3::Cluster,
    core::v3::{
        Address, SocketAddress,
        address::Address as AnyAddress,
        socket_address::{PortSpecifier, Protocol},
    },
    listener::v3::Listener,
};
use postern_base::{diagnostic::quote, digest::Digest};
use postern_model::{Diagnostic, Diagnostics, EnvoyResource};
use prost::Message;

use super::{Author, Resource, ResourceType, Resources, Selection, Snapshot};
use crate::attach::{Scope, overlap};

/// Adds users' resources. If a generated one has the name, it is kept, and [`check`] reports it.
pub(super) fn add(resources: &mut Resources, scope: &Scope<'_>) {
    // Endpoints are last, since their versions include those of their clusters.
    let (endpoints, others): (Vec<_>, Vec<_>) =
        scope.envoy_resources.iter().copied().partition(|raw| raw.spec.resource.kind() == ResourceType::Endpoints);
    for raw in others {
        insert(resources, &raw.spec, resource(&raw.spec));
    }
    let clusters = clusters_by_endpoints(resources.get(&ResourceType::Cluster));
    for raw in endpoints {
        let resource = resource(&raw.spec);
        let cluster = clusters.get(resource.name.as_str());
        let resource = match cluster {
            Some(cluster) => resource.versioned_with(cluster),
            None => resource,
        };
        insert(resources, &raw.spec, resource);
    }
}

/// An error for each user's resource that has, or omits, the name of a generated one.
pub(crate) fn check(scope: &Scope<'_>, snapshot: &Snapshot) -> Result<(), Diagnostics> {
    let generated = |kind, name: &str| {
        let named = Selection::Named([name.to_owned()].into());
        snapshot.select(kind, &named).resources.iter().any(|resource| resource.author == Author::Postern)
    };
    let clashes = scope.envoy_resources.iter().chain(scope.omitting()).filter_map(|raw| {
        let resource = &raw.spec.resource;
        generated(resource.kind(), resource.name()).then(|| {
            let maker = maker(scope, resource.kind(), resource.name()).map(|maker| format!(" for {maker}"));
            let (kind, name) = (resource.type_name(), quote(resource.name()));
            let message = format!("{kind} {name} is already generated{}", maker.unwrap_or_default());
            raw.diagnose(&resource.name_field(), message)
        })
    });
    Diagnostics::reject(clashes.chain(taken_addresses(scope)).collect())
}

/// An error for each outbound listener that would take the address of a user's own listener.
fn taken_addresses<'a>(scope: &'a Scope<'_>) -> impl Iterator<Item = Diagnostic> + 'a {
    let outbound = scope.gateways.iter().filter(|gateway| gateway.is_outbound());
    outbound.flat_map(|gateway| gateway.spec.listeners.iter().map(move |listener| (gateway, listener))).filter_map(
        |(gateway, listener)| {
            let address = SocketAddr::new(listener.address, listener.port);
            let (raw, other) = scope.envoy_resources.iter().find_map(|raw| {
                let other = listener_addresses(&raw.spec).into_iter().find(|other| overlap(address, *other))?;
                Some((raw, other))
            })?;
            let at = raw.diagnose("metadata.name", "");
            let place = format!("{} ({}:{})", raw.label(), at.file, at.line);
            let other = if address == other { String::new() } else { format!(" at `{other}`") };
            Some(gateway.diagnose("spec.to", format!("`{address}` is already used by {place}{other}")))
        },
    )
}

/// The TCP addresses of a user's own listener. None if it is no listener.
fn listener_addresses(raw: &EnvoyResource) -> Vec<SocketAddr> {
    if raw.resource.kind() != ResourceType::Listener {
        return Vec::new();
    }
    let Ok(listener) = Listener::decode(raw.resource.body().value.as_slice()) else { return Vec::new() };
    let additional = listener.additional_addresses.into_iter().filter_map(|additional| additional.address);
    let socket = |address: Address| match address.address {
        Some(AnyAddress::SocketAddress(SocketAddress { address, port_specifier, protocol, .. })) => {
            let tcp = protocol == i32::from(Protocol::Tcp);
            let Some(PortSpecifier::PortValue(port)) = port_specifier.filter(|_| tcp) else { return None };
            Some(SocketAddr::new(address.parse().ok()?, port.try_into().ok()?))
        }
        _ => None,
    };
    listener.address.into_iter().chain(additional).filter_map(socket).collect()
}

/// The label and position of the resource from which a generated one was made.
fn maker(scope: &Scope<'_>, kind: ResourceType, name: &str) -> Option<String> {
    fn named<T>(resources: &[&postern_model::Resource<T>], name: &str) -> Option<Diagnostic> {
        Some(resources.iter().find(|resource| resource.name == name)?.diagnose("metadata.name", ""))
    }
    let gateway = name.split_once('/').map_or(name, |(gateway, _)| gateway);
    let place = match kind {
        ResourceType::Cluster | ResourceType::Endpoints => named(&scope.services, name),
        _ => named(&scope.gateways, gateway),
    }?;
    Some(format!("{} ({}:{})", place.resource.unwrap_or_default(), place.file, place.line))
}

fn resource(raw: &EnvoyResource) -> Resource {
    let body = raw.resource.body().clone();
    let name = raw.resource.name().to_owned();
    Resource { name, version: Digest::of(&body.value), body, author: Author::User }
}

fn insert(resources: &mut Resources, raw: &EnvoyResource, resource: Resource) {
    let named = resources.entry(raw.resource.kind()).or_default();
    named.entry(resource.name.clone()).or_insert_with(|| Arc::new(resource));
}

/// The clusters by the names of their EDS resources: by default their own names.
fn clusters_by_endpoints(clusters: Option<&BTreeMap<String, Arc<Resource>>>) -> BTreeMap<String, Arc<Resource>> {
    let mut by_endpoints = BTreeMap::new();
    for (name, resource) in clusters.into_iter().flatten() {
        let service_name = Cluster::decode(resource.body.value.as_slice())
            .ok()
            .and_then(|cluster| Some(cluster.eds_cluster_config?.service_name))
            .filter(|service_name| !service_name.is_empty());
        by_endpoints.insert(service_name.unwrap_or_else(|| name.clone()), Arc::clone(resource));
    }
    by_endpoints
}
