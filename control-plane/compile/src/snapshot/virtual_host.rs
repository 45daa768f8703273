//! The base set of virtual hosts that every client of a route configuration gets (docs/rules.md, "xDS").

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use envoy_types::pb::{envoy::config::route::v3::VirtualHost, google::protobuf::Any};
use postern_base::digest::Digest;
use prost::{
    Message,
    encoding::{self, DecodeContext, WireType},
};

use super::{Author, Resource, ResourceSet, ResourceType};

/// A host that no request can have (RFC 6761). Its virtual host has no routes, so it answers 404.
pub const NOBODY: &str = "nobody.invalid";

/// The field number of `vhds` in a route configuration.
const VHDS: u32 = 9;

/// Adds a virtual host that answers 404 for each route configuration without one for every host. Envoy ignores a
/// response without virtual hosts, and keeps its listener waiting.
pub(super) fn with_base(hosts: ResourceSet, routes: &ResourceSet) -> ResourceSet {
    let mut need: BTreeSet<_> =
        routes.resources.iter().filter(|it| is_on_demand(it)).map(|it| it.name.as_str()).collect();
    need.extend(hosts.resources.iter().filter_map(|host| host.name.rsplit_once('/')).map(|(routes, _)| routes));
    for host in &hosts.resources {
        if let Some((routes, _)) = host.name.rsplit_once('/').filter(|_| matches_every_host(host)) {
            need.remove(routes);
        }
    }
    let made: Vec<_> = need.into_iter().map(nobody).filter(|made| hosts.get(&made.name).is_none()).collect();
    if made.is_empty() {
        return hosts;
    }
    let all = hosts.resources.into_iter().chain(made.into_iter().map(Arc::new));
    let all: BTreeMap<_, _> = all.map(|resource| (resource.name.clone(), resource)).collect();
    all.into_values().collect()
}

/// Whether a route configuration uses VHDS. Decodes only its field keys.
fn is_on_demand(routes: &Resource) -> bool {
    let mut bytes = routes.body.value.as_slice();
    while let Ok((field, wire_type)) = encoding::decode_key(&mut bytes) {
        if field == VHDS && wire_type == WireType::LengthDelimited {
            return true;
        }
        if encoding::skip_field(wire_type, field, &mut bytes, DecodeContext::default()).is_err() {
            return false;
        }
    }
    false
}

fn matches_every_host(host: &Resource) -> bool {
    VirtualHost::decode(host.body.value.as_slice()).is_ok_and(|host| host.domains.iter().any(|domain| domain == "*"))
}

/// The virtual host of a route configuration for [`NOBODY`].
fn nobody(routes: &str) -> Resource {
    let name = format!("{routes}/{NOBODY}");
    let host = VirtualHost { name: name.clone(), domains: vec![NOBODY.to_owned()], ..Default::default() };
    let body = Any { type_url: ResourceType::VirtualHost.type_url().to_owned(), value: host.encode_to_vec() };
    Resource { name, version: Digest::of(&body.value), body, author: Author::Postern }
}
