//! Rules across resources for names of outbound routes: in a mesh with VirtualOutbounds, nothing else has such names.

use postern_base::diagnostic::{Diagnostic, quote};

use super::{Bundle, OUTBOUND_ROUTE, claims::owner};

/// Reports routes whose names could be those of routes that VirtualOutbounds come to.
pub(super) fn check(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let reserved = |mesh: &str, route: &str| {
        let outbound = bundle.virtual_outbounds.iter().find(|outbound| outbound.mesh() == mesh)?;
        let start = quote(OUTBOUND_ROUTE);
        let owner = owner(&outbound.diagnose("metadata.name", ""));
        route.starts_with(OUTBOUND_ROUTE).then(|| format!("names that start with {start} are for routes of {owner}"))
    };
    for gateway in &bundle.gateways {
        for (index, route) in gateway.spec.routes.iter().enumerate() {
            let message = reserved(gateway.mesh(), &route.name);
            found.extend(message.map(|message| gateway.diagnose(&format!("spec.routes[{index}].name"), message)));
        }
    }
    for raw in bundle.envoy_resources.iter().filter(|_| !bundle.virtual_outbounds.is_empty()) {
        for route in raw.spec.resource.routes() {
            found.extend(reserved(raw.mesh(), &route.name).map(|message| raw.diagnose(&route.field, message)));
        }
    }
    for policy in bundle.route_policies.iter().filter(|policy| policy.spec.matching.is_some()) {
        let message = policy.spec.target_ref.route().and_then(|route| reserved(policy.mesh(), route));
        found.extend(message.map(|message| policy.diagnose("spec.match", message)));
    }
    found
}
