//! Which listeners may have the same port: those of several Gateways that all have TLS, and no host in common. A client
//! says in the handshake which host it wants (SNI).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use postern_base::diagnostic::{Diagnostic, quote};

use super::{
    Bundle, Gateway, Listener, Resource,
    claims::owner,
    host_pattern::{ANY_HOST, covers},
};

/// A listener of a gateway, by its index.
struct Claim<'a> {
    gateway: &'a Resource<Gateway>,
    listener: &'a Listener,
    index: usize,
}

impl Claim<'_> {
    fn diagnose(&self, message: String) -> Diagnostic {
        self.gateway.diagnose(&format!("spec.listeners[{}].port", self.index), message)
    }
}

/// An error for each listener that cannot have the port of an earlier one, in the order of files and lines.
pub(super) fn check(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut ports: BTreeMap<(&str, SocketAddr), Vec<Claim<'_>>> = BTreeMap::new();
    for gateway in &bundle.gateways {
        for (index, listener) in gateway.spec.listeners.iter().enumerate() {
            let address = SocketAddr::new(listener.address, listener.port);
            ports.entry((gateway.mesh.as_str(), address)).or_default().push(Claim { gateway, listener, index });
        }
    }
    let mut found = Vec::new();
    for ((_, address), claims) in ports.into_iter().filter(|(_, claims)| claims.len() > 1) {
        let mut claims: Vec<_> = claims.into_iter().map(|claim| (claim.diagnose(String::new()), claim)).collect();
        claims.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut earlier: Vec<(Diagnostic, Claim<'_>)> = Vec::new();
        for (place, claim) in claims {
            let clash = earlier.iter().find_map(|(first, other)| Some((first, clash(&claim, other)?)));
            if let Some((first, reason)) = clash {
                let message = format!("`{address}` is already used by {}{reason}", owner(first));
                found.push(Diagnostic { message, ..place });
            } else {
                earlier.push((place, claim));
            }
        }
    }
    found
}

/// Why two listeners cannot have the same port. `None` if they can.
fn clash(claim: &Claim<'_>, other: &Claim<'_>) -> Option<String> {
    if claim.gateway.name == other.gateway.name {
        return Some(String::new());
    }
    if claim.listener.tls.is_none() || other.listener.tls.is_none() {
        return Some(": only listeners that all have `tls` can share a port".to_owned());
    }
    let (own, others) = (hosts(claim), hosts(other));
    if own.contains(ANY_HOST) || others.contains(ANY_HOST) {
        let gateway = if own.contains(ANY_HOST) { claim.gateway } else { other.gateway };
        return Some(format!(
            ": Gateways share a port only if all of their routes have `hosts`, and {} has a route for any host",
            gateway.label()
        ));
    }
    let overlapping = |host: &&str| others.iter().find(|taken| covers(taken, host) || covers(host, taken)).copied();
    let (host, taken) = own.iter().find_map(|host| Some((*host, overlapping(host)?)))?;
    Some(match taken == host {
        true => format!(", which has host {} too", quote(host)),
        false => format!(", whose host {} overlaps with {}", quote(taken), quote(host)),
    })
}

/// The hosts of a gateway's routes, and of a listener's certificates.
fn hosts<'a>(claim: &Claim<'a>) -> BTreeSet<&'a str> {
    let routes = claim.gateway.spec.routes.iter().flat_map(|route| &route.hosts);
    let certificates = claim.listener.tls.iter().flat_map(|tls| &tls.certificates).flat_map(|it| &it.hosts);
    routes.chain(certificates).map(String::as_str).collect()
}
