//! Revisions: what a set of resources is called, by its content alone.

use serde::Serialize;

use crate::{
    digest::Digest,
    keys::KeySets,
    model::{Bundle, KeySource, Resource},
};

/// The digest over all resources, sorted by kind, mesh and name, the published keys that they use, and the filter that runs
/// them.
pub fn revision(bundle: &Bundle, key_sets: &KeySets, filter: &Digest) -> Result<Digest, serde_json::Error> {
    let mut parts = vec![filter.as_str().as_bytes().to_vec()];
    parts.extend(encode("Agent", &bundle.agents)?);
    parts.extend(encode("Consumer", &bundle.consumers)?);
    parts.extend(encode("Gateway", &bundle.gateways)?);
    parts.extend(encode("Issuer", &bundle.issuers)?);
    parts.extend(encode("RoutePolicy", &bundle.route_policies)?);
    parts.extend(encode("Service", &bundle.services)?);
    parts.extend(encode("Settings", &bundle.settings)?);
    for issuer in &bundle.issuers {
        let KeySource::Published { uri, .. } = &issuer.spec.keys else { continue };
        if let Some(set) = key_sets.get(uri) {
            parts.push(serde_json::to_vec(&("keys", &issuer.mesh, &issuer.name, set))?);
        }
    }
    Ok(Digest::of_parts(parts.iter().map(Vec::as_slice)))
}

fn encode<T: Serialize>(kind: &str, resources: &[Resource<T>]) -> Result<Vec<Vec<u8>>, serde_json::Error> {
    resources
        .iter()
        .map(|resource| serde_json::to_vec(&(kind, &resource.mesh, &resource.name, &resource.spec)))
        .collect()
}
