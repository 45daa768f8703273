//! Certificates that are not for the hosts that are served with them, and certificates that no route needs.

use std::collections::BTreeSet;

use postern_base::diagnostic::quote;
use postern_model::{ANY_HOST, Gateway, ListenerTls, Resource, covers};

use super::Finding;

/// The maximum number of hosts in a message.
const MOST: usize = 5;

/// The findings about the certificates of these gateways. Hosts of a route for any host are not known.
pub(super) fn findings(gateways: &[&Resource<Gateway>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for gateway in gateways {
        for (index, listener) in gateway.spec.listeners.iter().enumerate() {
            let Some(tls) = &listener.tls else { continue };
            found.extend(of_listener(gateway, &format!("spec.listeners[{index}].tls"), tls));
        }
    }
    found
}

fn of_listener(gateway: &Resource<Gateway>, path: &str, tls: &ListenerTls) -> Vec<Finding> {
    let routes: BTreeSet<_> = gateway.spec.routes.iter().flat_map(|route| &route.hosts).map(String::as_str).collect();
    let named: BTreeSet<_> = tls.certificates.iter().flat_map(|it| &it.hosts).map(String::as_str).collect();
    let others = routes.iter().copied().filter(|host| *host != ANY_HOST && !named.iter().any(|it| covers(it, host)));
    let mut found = Vec::new();
    let lacks = uncovered(others, |host| tls.certificate.covers(host));
    found.extend(lacks.map(|message| finding(gateway, &format!("{path}.certificate"), message, "certificate-names")));
    for (index, certificate) in tls.certificates.iter().enumerate() {
        let place = format!("{path}.certificates[{index}]");
        let hosts = certificate.hosts.iter().map(String::as_str);
        let lacks = uncovered(hosts, |host| certificate.certificate.covers(host));
        found.extend(
            lacks.map(|message| finding(gateway, &format!("{place}.certificate"), message, "certificate-names")),
        );
        for (rank, host) in certificate.hosts.iter().enumerate() {
            if !routes.iter().any(|route| covers(route, host) || covers(host, route)) {
                let message = format!("no route of this gateway is for host {}", quote(host));
                found.push(finding(gateway, &format!("{place}.hosts[{rank}]"), message, "certificate-unused"));
            }
        }
    }
    found
}

/// A message that names the hosts that a certificate is not for.
fn uncovered<'h>(hosts: impl Iterator<Item = &'h str>, covers: impl Fn(&str) -> bool) -> Option<String> {
    let all: Vec<_> = hosts.filter(|host| !covers(host)).map(quote).collect();
    let more = match all.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown: Vec<_> = all.into_iter().take(MOST).collect();
    (!shown.is_empty())
        .then(|| format!("the certificate is not for {}{more}: clients refuse it there", shown.join(", ")))
}

fn finding(gateway: &Resource<Gateway>, field: &str, message: String, code: &'static str) -> Finding {
    Finding { at: gateway.diagnose(field, message), code }
}
