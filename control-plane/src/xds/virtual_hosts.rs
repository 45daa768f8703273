//! Virtual hosts on demand (VHDS): which one a name of the form `<route configuration>/<host>` stands for.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::route::v3::VirtualHost;
use prost::Message;

use crate::snapshot::ResourceSet;

/// The virtual hosts of a snapshot by route configuration and domain.
#[derive(Debug, Default)]
pub(super) struct VirtualHosts {
    /// Route configuration → domain, possibly with a wildcard → the name of the resource.
    by_domain: BTreeMap<String, BTreeMap<String, String>>,
    /// Resource → its names by each domain without a wildcard.
    aliases: BTreeMap<String, Vec<String>>,
}

impl VirtualHosts {
    /// Reads the domains of all virtual hosts. The name of one begins with its route configuration's.
    pub(super) fn of(set: &ResourceSet) -> Self {
        let mut hosts = Self::default();
        for resource in &set.resources {
            let Some((routes, _)) = resource.name.rsplit_once('/') else { continue };
            let Ok(host) = VirtualHost::decode(resource.body.value.as_slice()) else { continue };
            let explicit = host.domains.iter().filter(|domain| !domain.contains('*'));
            let aliases = explicit.map(|domain| format!("{routes}/{domain}")).collect();
            hosts.aliases.insert(resource.name.clone(), aliases);
            let by_domain = hosts.by_domain.entry(routes.to_owned()).or_default();
            by_domain.extend(host.domains.into_iter().map(|domain| (domain, resource.name.clone())));
        }
        hosts
    }

    /// The resource that serves a host, chosen as Envoy does: exact, then the longest suffix, then the longest prefix,
    /// then any. A host has no slash; the name of a route configuration may.
    pub(super) fn find(&self, name: &str) -> Option<&str> {
        let (routes, host) = name.rsplit_once('/')?;
        let domains = self.by_domain.get(routes)?;
        let wildcard = |matches: &dyn Fn(&str) -> bool| {
            domains.iter().filter(|(domain, _)| matches(domain)).max_by_key(|(domain, _)| domain.len())
        };
        let suffix = |domain: &str| domain.len() > 1 && domain.strip_prefix('*').is_some_and(|end| covers(host, end));
        let prefix = |domain: &str| {
            domain.len() > 1
                && domain.strip_suffix('*').is_some_and(|start| host.len() > start.len() && host.starts_with(start))
        };
        let exact = domains.get_key_value(host);
        let found =
            exact.or_else(|| wildcard(&suffix)).or_else(|| wildcard(&prefix)).or_else(|| wildcard(&|any| any == "*"));
        found.map(|(_, resource)| resource.as_str())
    }

    /// All names but its own that a resource is known by: its domains, and those that it was asked for by.
    pub(super) fn aliases<'a>(&self, resource: &str, asked: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let asked = asked.into_iter().filter(|name| *name != resource && self.find(name) == Some(resource));
        let mut aliases: BTreeSet<_> = self.aliases.get(resource).into_iter().flatten().cloned().collect();
        aliases.extend(asked.cloned());
        aliases.into_iter().collect()
    }
}

/// A wildcard stands for at least one character.
fn covers(host: &str, end: &str) -> bool {
    host.len() > end.len() && host.ends_with(end)
}
