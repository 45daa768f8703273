//! Ports: what listens on one address, and which of its certificates a connection is for (SNI).
//!
//! A connection serves the hosts of its certificate only, all others get 421: a client that was asked for no certificate
//! must not reach a host where one is required, and HTTP/2 lets a client use a connection for other hosts (RFC 9113,
//! section 9.1.1).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use postern_model::{ANY_HOST, Gateway, HostCertificate, Listener, Resource, covers, most_specific};

/// An address with all listeners that share it.
#[derive(Debug)]
pub(crate) struct Port<'a> {
    /// The name of Envoy's listener: that of the first of our own.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// The kinds of connections: at least one.
    pub(crate) doors: Vec<Door<'a>>,
}

/// Connections with one certificate, or in the clear.
#[derive(Debug)]
pub(crate) struct Door<'a> {
    pub(crate) gateway: &'a Resource<Gateway>,
    pub(crate) listener: &'a Listener,
    /// The certificate, unless it is the listener's own.
    pub(crate) certificate: Option<&'a HostCertificate>,
    /// The names that clients ask for. Empty if it is for all connections that no other door is for.
    pub(crate) server_names: Vec<&'a str>,
}

/// The hosts that have virtual hosts behind a door.
#[derive(Debug, Default)]
pub(crate) struct Behind<'a> {
    /// Those that are served.
    pub(crate) served: BTreeSet<&'a str>,
    /// Those that another door serves, or none.
    pub(crate) misdirected: BTreeSet<&'a str>,
}

/// All ports of these gateways, by the names of their listeners.
pub(crate) fn ports<'a>(gateways: &[&'a Resource<Gateway>]) -> Vec<Port<'a>> {
    let mut found: BTreeMap<SocketAddr, Vec<(&'a Resource<Gateway>, &'a Listener)>> = BTreeMap::new();
    for gateway in gateways.iter().copied() {
        for listener in &gateway.spec.listeners {
            let address = SocketAddr::new(listener.address, listener.port);
            found.entry(address).or_default().push((gateway, listener));
        }
    }
    let mut ports: Vec<_> = found.into_iter().filter_map(|(address, listeners)| port(address, listeners)).collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    ports
}

/// Whether some connections of these gateways do not serve all hosts.
pub(crate) fn has_misdirected(gateways: &[&Resource<Gateway>]) -> bool {
    ports(gateways).iter().any(Port::has_several_doors)
}

fn port<'a>(address: SocketAddr, mut listeners: Vec<(&'a Resource<Gateway>, &'a Listener)>) -> Option<Port<'a>> {
    listeners.sort_by_key(|(gateway, listener)| (&gateway.name, &listener.name));
    let (gateway, listener) = listeners.first()?;
    let name = format!("{}/{}", gateway.name, listener.name);
    let is_shared = listeners.len() > 1;
    let doors = listeners.into_iter().flat_map(|(gateway, listener)| doors(gateway, listener, is_shared)).collect();
    Some(Port { name, address, doors })
}

fn doors<'a>(gateway: &'a Resource<Gateway>, listener: &'a Listener, is_shared: bool) -> Vec<Door<'a>> {
    let certificates = listener.tls.as_ref().map_or(&[][..], |tls| &tls.certificates);
    let own = if is_shared { names_without_certificate(gateway, certificates) } else { Vec::new() };
    let default = Door { gateway, listener, certificate: None, server_names: own };
    let has_default = !is_shared || !default.server_names.is_empty();
    let others = certificates.iter().map(|certificate| Door {
        gateway,
        listener,
        certificate: Some(certificate),
        server_names: certificate.hosts.iter().map(String::as_str).collect(),
    });
    has_default.then_some(default).into_iter().chain(others).collect()
}

/// The hosts of a gateway's routes for which its listener has no certificate but the default one.
fn names_without_certificate<'a>(gateway: &'a Resource<Gateway>, certificates: &[HostCertificate]) -> Vec<&'a str> {
    let has_one = |host: &str| certificates.iter().flat_map(|it| &it.hosts).any(|pattern| covers(pattern, host));
    let hosts: BTreeSet<_> = gateway.spec.routes.iter().flat_map(|route| &route.hosts).map(String::as_str).collect();
    hosts.into_iter().filter(|host| !has_one(host)).collect()
}

impl<'a> Port<'a> {
    /// Whether a connection is for some hosts only.
    pub(crate) fn has_several_doors(&self) -> bool {
        self.doors.len() > 1 || self.doors.iter().any(|door| !door.server_names.is_empty())
    }

    /// The hosts behind a door: those of its gateway's routes, and all names that a client can ask for on this port.
    pub(crate) fn behind(&self, door: &Door<'a>) -> Behind<'a> {
        let names = || self.doors.iter().flat_map(|door| &door.server_names).copied();
        let routes = door.gateway.spec.routes.iter().flat_map(|route| &route.hosts).map(String::as_str);
        let mut behind = Behind::default();
        for host in routes.chain(names()).chain([ANY_HOST]) {
            let is_ours = match most_specific(names(), host) {
                Some(name) => door.server_names.contains(&name),
                None => door.server_names.is_empty(),
            };
            if is_ours {
                behind.served.insert(host)
            } else {
                behind.misdirected.insert(host)
            };
        }
        behind
    }
}

impl Door<'_> {
    /// The name of the route configuration: the gateway's own where all of its routes are served.
    pub(crate) fn routes(&self, port: &Port<'_>) -> String {
        if port.has_several_doors() { self.label() } else { self.gateway.name.clone() }
    }

    /// A name that no other door of any gateway has.
    pub(crate) fn label(&self) -> String {
        let (gateway, listener) = (&self.gateway.name, &self.listener.name);
        match self.certificate.and_then(|certificate| certificate.hosts.first()) {
            Some(host) => format!("{gateway}/{listener}/{host}"),
            None => format!("{gateway}/{listener}"),
        }
    }
}
