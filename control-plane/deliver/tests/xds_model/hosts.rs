//! Virtual hosts in the model: which one a name matches, and which ones a client gets together with those that it asked
//! for. Written from Envoy's documentation of virtual hosts and VHDS, and from cases 36 and 45 (docs/rules.md).

use std::collections::BTreeSet;

use crate::wire::Contents;

/// The host of a virtual host that answers 404, in place of one that matches every host.
const NOBODY: &str = "nobody.invalid";

/// The content of a virtual host with these domains.
pub(crate) fn content(label: &str, domains: &[&str]) -> String {
    format!("{label}@{}", domains.join(","))
}

/// The label and the domains of a content.
pub(crate) fn parts(content: &str) -> (&str, Vec<&str>) {
    let (label, domains) = content.split_once('@').unwrap_or((content, ""));
    (label, domains.split(',').filter(|domain| !domain.is_empty()).collect())
}

/// The route configuration that a name belongs to.
pub(crate) fn routes_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(routes, _)| routes)
}

/// Adds to every route configuration without a virtual host for every host one that answers 404: an Envoy that is sent
/// no virtual host at first waits for 15 s.
pub(crate) fn with_base(mut hosts: Contents) -> Contents {
    let all: BTreeSet<_> = hosts.keys().map(|name| routes_of(name).to_owned()).collect();
    let caught =
        |routes: &String| hosts.iter().any(|(name, it)| routes_of(name) == routes && parts(it).1.contains(&"*"));
    let bare: Vec<_> = all.into_iter().filter(|routes| !caught(routes)).collect();
    for name in bare.into_iter().map(|routes| format!("{routes}/{NOBODY}")) {
        let made = content(&name, &[NOBODY]);
        hosts.insert(name, made);
    }
    hosts
}

/// The precedence of a domain that matches a host: exact, by the longest suffix, by the longest prefix, or any host.
fn rank(domain: &str, host: &str) -> Option<(u8, usize)> {
    let longer = |part: &str| host.len() > part.len();
    let is_suffix = |end: &str| longer(end) && host.ends_with(end);
    let is_prefix = |start: &str| longer(start) && host.starts_with(start);
    match (domain.strip_prefix('*'), domain.strip_suffix('*')) {
        _ if domain == host => Some((3, 0)),
        (Some(""), _) => Some((0, 0)),
        (Some(end), _) => is_suffix(end).then_some((2, domain.len())),
        (_, Some(start)) => is_prefix(start).then_some((1, domain.len())),
        (None, None) => None,
    }
}

/// The virtual host that a name matches: the one of that name, or the one that serves that host.
pub(crate) fn resolve<'a>(hosts: &'a Contents, name: &str) -> Option<&'a String> {
    if let Some((own, _)) = hosts.get_key_value(name) {
        return Some(own);
    }
    let (routes, host) = name.rsplit_once('/')?;
    let within = hosts.iter().filter(|(name, _)| routes_of(name) == routes);
    let ranked =
        within.filter_map(|(name, it)| Some((parts(it).1.iter().filter_map(|it| rank(it, host)).max()?, name)));
    ranked.max().map(|(_, name)| name)
}

/// Whether some host under a wildcard is served by a domain of another virtual host instead.
fn precedes(domain: &str, wildcard: &str) -> bool {
    let is_suffix = |domain: &str| domain.len() > 1 && domain.starts_with('*');
    match (wildcard.strip_prefix('*'), wildcard.strip_suffix('*')) {
        (Some(""), _) => domain != "*",
        (Some(end), _) => domain.len() >= wildcard.len() && domain.ends_with(end),
        (_, Some(start)) => is_suffix(domain) || (domain.len() >= wildcard.len() && domain.starts_with(start)),
        (None, None) => false,
    }
}

/// The virtual hosts that a client should have that subscribed to `names` and unsubscribed from `left`. One with a
/// wildcard comes with all that take precedence over it, and these with theirs: an Envoy asks for no host that matches
/// one that it has.
pub(crate) fn target(hosts: &Contents, names: &BTreeSet<String>, gets_base: bool, left: &BTreeSet<String>) -> Contents {
    let is_base = |it: &String| parts(it).1.iter().any(|domain| matches!(*domain, "*" | NOBODY));
    let base =
        hosts.iter().filter(|(name, it)| gets_base && is_base(it) && !left.contains(*name)).map(|(name, _)| name);
    let mut wanted: Vec<_> = names.iter().filter_map(|name| resolve(hosts, name)).chain(base).collect();
    let mut found = Contents::new();
    while let Some(name) = wanted.pop() {
        if found.insert(name.clone(), hosts[name].clone()).is_some() {
            continue;
        }
        let wildcards = parts(&hosts[name]).1;
        let goes_before = |(other, it): &(&String, &String)| {
            let is_near = routes_of(other) == routes_of(name) && !left.contains(*other);
            is_near && parts(it).1.iter().any(|domain| wildcards.iter().any(|wildcard| precedes(domain, wildcard)))
        };
        wanted.extend(hosts.iter().filter(goes_before).map(|(other, _)| other));
    }
    found
}
