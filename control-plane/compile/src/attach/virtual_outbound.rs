//! Attachment of VirtualOutbounds: the host name of each service at a group of nodes, and the gateways for outbound
//! requests that they come to, one for each address and port.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use postern_base::diagnostic::quote;
use postern_model::{
    Backend, Bundle, Diagnostic, EdgeHttp, Gateway, Listener, Match, NoTag, OutboundName, OutboundPort, Placeholder,
    Public, Resource, Route, Service, Template, VirtualOutbound, is_one_host, outbound_route, port,
};

use super::effective::{Effective, effective};

const DEFAULT_PORT: u16 = 15001;
const LISTENER: &str = "http";

/// What VirtualOutbounds come to at a group of nodes.
#[derive(Debug, Default)]
pub(super) struct Outbounds<'a> {
    /// A gateway for each address, in the order of addresses.
    pub(super) gateways: Vec<&'a Resource<Gateway>>,
    /// Why services do not get their host names. Such services have no route.
    pub(super) faults: Vec<Diagnostic>,
}

/// A service by its host name.
struct Named<'a> {
    service: &'a Resource<Service>,
    said: Effective<'a, VirtualOutbound>,
}

/// The services of one address by their host names. Several of one name are a fault.
type Hosts<'a> = BTreeMap<String, Vec<Named<'a>>>;

/// What a service's VirtualOutbounds come to, given by priority.
pub fn outbound_name<'a>(
    attached: &[&'a Resource<VirtualOutbound>],
    service: &Resource<Service>,
) -> Effective<'a, VirtualOutbound> {
    effective(attached, |_, target| service.is_selected_by(target))
}

/// The gateways that VirtualOutbounds of a mesh come to, given by priority.
pub(super) fn outbounds<'a>(
    bundle: &'a Bundle,
    mesh: &str,
    attached: &[&'a Resource<VirtualOutbound>],
) -> Outbounds<'a> {
    let (mut found, mut places) = (Outbounds::default(), BTreeMap::<SocketAddr, Hosts<'a>>::new());
    for service in bundle.services.iter().filter(|service| service.mesh() == mesh) {
        let said = outbound_name(attached, service);
        match place(service, &said) {
            Ok(Some((address, host))) => {
                places.entry(address).or_default().entry(host).or_default().push(Named { service, said });
            }
            Ok(None) => {}
            Err((field, message)) => found.faults.extend(said.diagnose(field, message)),
        }
    }
    for (address, mut hosts) in places {
        hosts.retain(|host, named| {
            found.faults.extend(ambiguity(address, host, named));
            named.len() == 1
        });
        found.gateways.extend(gateway(bundle, address, &hosts));
    }
    found
}

/// The listener and the host name of a service. `None` if it has none, otherwise the field to blame and the message.
fn place(
    service: &Resource<Service>,
    said: &Effective<'_, VirtualOutbound>,
) -> Result<Option<(SocketAddr, String)>, (&'static str, String)> {
    let OutboundName { host, port: number, address } = &said.conf;
    // A service without endpoints takes the place of an invalid one. Its tags are unknown.
    let Some(template) = host.as_ref().filter(|_| !service.spec.endpoints.is_empty()) else { return Ok(None) };
    let becomes =
        |text: &str, what: &str| format!("for {} it becomes {}, which is no {what}", service.label(), quote(text));
    let host = fill(template, service).map_err(|message| ("host", message))?.to_ascii_lowercase();
    if !is_one_host(&host) {
        return Err(("host", becomes(&host, "host name")));
    }
    let number = match number {
        None => DEFAULT_PORT,
        Some(OutboundPort::Number(number)) => *number,
        Some(OutboundPort::Template(template)) => {
            let text = fill(template, service).map_err(|message| ("port", message))?;
            port(&text).ok_or_else(|| ("port", becomes(&text, "port from 1 to 65535")))?
        }
    };
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    Ok(Some((SocketAddr::new(address, number), host)))
}

/// The text of a template for a service. Fails with the message if the service lacks a tag.
fn fill(template: &Template, service: &Resource<Service>) -> Result<String, String> {
    let lacks = |tag: &str, why: NoTag<'_>| {
        let (label, tag) = (service.label(), quote(tag));
        match why {
            NoTag::Absent => format!("{label} has no tag {tag}"),
            NoTag::Partial(endpoint) => {
                format!("an endpoint of {label}, at port {}, has no tag {tag}, which others have", endpoint.port)
            }
            NoTag::Differs(one, other) => {
                format!("endpoints of {label} differ in tag {tag}: {} and {}", quote(one), quote(other))
            }
        }
    };
    template.fill(|placeholder| match placeholder {
        Placeholder::Service => Ok(service.name.clone()),
        Placeholder::Mesh => Ok(service.mesh.clone()),
        Placeholder::Tag(tag) => service.spec.tag(tag).map(str::to_owned).map_err(|why| lacks(tag, why)),
    })
}

/// An error for each service that has the host name of another one.
fn ambiguity(address: SocketAddr, host: &str, named: &[Named<'_>]) -> Vec<Diagnostic> {
    let Some((first, others)) = named.split_first() else { return Vec::new() };
    let by = first.said.diagnose("host", String::new());
    let place = by.map(|by| format!("{}, {}:{}", by.resource.unwrap_or_default(), by.file, by.line));
    let message = |other: &Named<'_>| {
        let (host, service) = (quote(host), other.service.label());
        let first = format!("{} ({})", first.service.label(), place.as_deref().unwrap_or_default());
        format!("{service} would have host {host} at `{address}`, which is that of {first}")
    };
    others.iter().filter_map(|other| other.said.diagnose("host", message(other))).collect()
}

/// The gateway of an address. `None` if no service is left there.
fn gateway<'a>(bundle: &'a Bundle, address: SocketAddr, hosts: &Hosts<'a>) -> Option<&'a Resource<Gateway>> {
    let named = || hosts.iter().filter_map(|(host, named)| Some((host, named.first()?)));
    let (_, Named { said, .. }) = named().next()?;
    let (owner, _) = said.parts.get(said.fields.provider("host")?.by)?;
    let route = |(host, Named { service, .. }): (&String, &Named<'_>)| Route {
        name: outbound_route(&service.name),
        hosts: vec![host.clone()],
        matching: Match::default(),
        backends: vec![Backend { service: service.name.clone(), weight: 1 }],
        retries: None,
        public: address.ip().is_loopback().then(|| Public { reason: "only its own node reaches it".to_owned() }),
    };
    let listener = Listener { name: LISTENER.to_owned(), address: address.ip(), port: address.port(), tls: None };
    let spec = Gateway {
        target_ref: None,
        listeners: vec![listener],
        http: EdgeHttp::default(),
        routes: named().map(route).collect(),
    };
    Some(bundle.generated_gateway(owner, outbound_route(&address.to_string()), spec))
}

/// Removes the gateways whose listeners would take a port of another gateway, and reports them.
pub(super) fn separate<'a>(outbounds: &mut Outbounds<'a>, declared: &[&'a Resource<Gateway>]) {
    let Outbounds { gateways, faults } = outbounds;
    let mut taken: Vec<(&Resource<Gateway>, SocketAddr)> = Vec::new();
    taken.extend(declared.iter().flat_map(|gateway| addresses(gateway).map(|address| (*gateway, address))));
    gateways.retain(|gateway| {
        let clash = addresses(gateway).find_map(|address| {
            let (owner, other) = taken.iter().find(|(_, other)| overlap(address, *other))?;
            Some((address, *owner, *other))
        });
        let Some((address, owner, other)) = clash else {
            taken.extend(addresses(gateway).map(|address| (*gateway, address)));
            return true;
        };
        let at = owner.diagnose("metadata.name", "");
        let place = format!("{} ({}:{})", owner.label(), at.file, at.line);
        let at = if address == other { String::new() } else { format!(" at `{other}`") };
        faults.push(gateway.diagnose("spec.to", format!("`{address}` is already used by {place}{at}")));
        false
    });
}

fn addresses(gateway: &Resource<Gateway>) -> impl Iterator<Item = SocketAddr> {
    gateway.spec.listeners.iter().map(|listener| SocketAddr::new(listener.address, listener.port))
}

/// Whether connections to one address could come to the other's listener.
pub(crate) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_family = one.is_ipv4() == other.is_ipv4();
    let every = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (one.ip() == other.ip() || same_family && every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_which_addresses_overlap() {
        let check = |one: &str, other: &str, expect| {
            assert_eq!(overlap(one.parse().unwrap(), other.parse().unwrap()), expect, "{one} {other}");
        };
        check("127.0.0.1:80", "127.0.0.1:80", true);
        check("127.0.0.1:80", "127.0.0.1:81", false);
        check("127.0.0.1:80", "127.0.0.2:80", false);
        check("0.0.0.0:80", "127.0.0.1:80", true);
        check("127.0.0.1:80", "0.0.0.0:80", true);
        check("[::]:80", "[::1]:80", true);
        check("[::]:80", "127.0.0.1:80", false);
    }
}
