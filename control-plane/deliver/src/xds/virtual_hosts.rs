//! Virtual hosts on demand (VHDS): which resource a name `<route configuration>/<host>` matches.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::route::v3::VirtualHost;
use postern_compile::snapshot::{NOBODY, ResourceSet};
use prost::Message;

/// The virtual hosts of a snapshot, by route configuration and domain.
#[derive(Debug, Default)]
pub(super) struct VirtualHosts {
    /// For each route configuration, the name of the resource by domain, which may have a wildcard.
    by_domain: BTreeMap<String, BTreeMap<String, String>>,
    /// For each resource, its names by domains without a wildcard.
    aliases: BTreeMap<String, Vec<String>>,
    /// The base set: the resources that every client gets without asking.
    base: BTreeSet<String>,
    /// For each resource with a wildcard, the resources that take precedence for hosts under it.
    companions: BTreeMap<String, BTreeSet<String>>,
}

impl VirtualHosts {
    /// Reads the domains of all virtual hosts. The name of each begins with that of its route configuration.
    pub(super) fn of(set: &ResourceSet) -> Self {
        let mut hosts = Self::default();
        for resource in &set.resources {
            let Some((routes, _)) = resource.name.rsplit_once('/') else { continue };
            let Ok(host) = VirtualHost::decode(resource.body.value.as_slice()) else { continue };
            if host.domains.iter().any(|domain| domain == "*" || domain == NOBODY) {
                hosts.base.insert(resource.name.clone());
            }
            let explicit = host.domains.iter().filter(|domain| !domain.contains('*'));
            let aliases = explicit.map(|domain| format!("{routes}/{domain}")).collect();
            hosts.aliases.insert(resource.name.clone(), aliases);
            let by_domain = hosts.by_domain.entry(routes.to_owned()).or_default();
            by_domain.extend(host.domains.into_iter().map(|domain| (domain, resource.name.clone())));
        }
        hosts.companions = hosts.by_domain.values().flat_map(companions).collect();
        hosts
    }

    /// The resources that every client gets without asking: of each route configuration those that match every host or,
    /// if there are none, one that answers 404.
    pub(super) fn base(&self) -> &BTreeSet<String> {
        &self.base
    }

    /// The resources that must be sent with another one: an Envoy asks for a host only while none of its virtual hosts
    /// matches it, so that a wildcard would keep it from asking for those that should take precedence.
    pub(super) fn companions(&self, resource: &str) -> Option<&BTreeSet<String>> {
        self.companions.get(resource)
    }

    /// Whether a route configuration has virtual hosts.
    pub(super) fn has(&self, routes: &str) -> bool {
        self.by_domain.contains_key(routes)
    }

    /// The resource that serves a host, by Envoy's precedence: exact, then the longest suffix, then the longest prefix,
    /// then any. A host has no slash; the name of a route configuration may have.
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

    /// All names of a resource but its own: its domains, and the names by which it was asked for. The name of another
    /// resource always stands for that one, even if it is a host that this one serves.
    pub(super) fn aliases<'a>(&self, resource: &str, asked: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let asked = asked.into_iter().filter(|name| *name != resource && self.find(name) == Some(resource));
        let mut aliases: BTreeSet<_> = self.aliases.get(resource).into_iter().flatten().cloned().collect();
        aliases.extend(asked.cloned());
        aliases.retain(|name| name == resource || !self.aliases.contains_key(name));
        aliases.into_iter().collect()
    }
}

/// For each virtual host of a route configuration with a wildcard, those that must be sent with it.
fn companions(domains: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut companions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |resource: &String, takes_precedence: &dyn Fn(&str) -> bool| {
        let others = domains.iter().filter(|(domain, other)| *other != resource && takes_precedence(domain));
        companions.entry(resource.clone()).or_default().extend(others.map(|(_, other)| other.clone()));
    };
    for (wildcard, resource) in domains.iter().filter(|(domain, _)| domain.contains('*')) {
        match (wildcard.strip_prefix('*'), wildcard.strip_suffix('*')) {
            (Some(""), _) => add(resource, &|_| true),
            // Hosts under a longer suffix are under this one too.
            (Some(end), _) => add(resource, &|domain| domain.len() >= wildcard.len() && domain.ends_with(end)),
            // Every suffix takes precedence over a prefix, since a host may match both.
            (_, Some(start)) => add(resource, &|domain| {
                domain.len() > 1 && domain.starts_with('*')
                    || domain.len() >= wildcard.len() && domain.starts_with(start)
            }),
            // A wildcard elsewhere matches nothing.
            (None, None) => {}
        }
    }
    companions
}

/// Whether a suffix matches a host. The wildcard stands for at least one character.
fn covers(host: &str, end: &str) -> bool {
    host.len() > end.len() && host.ends_with(end)
}
