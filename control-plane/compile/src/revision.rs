//! The digest of a revision, by content alone.

use postern_base::digest::Digest;
use postern_model::{Bundle, Declaration, Issuer, KeySource, Resource};

use crate::{attach::Scope, keys::KeySets, support::Support};

/// The digest of all resources, the published keys that they use, and the filter.
pub fn revision(bundle: &Bundle, key_sets: &KeySets, filter: &Digest) -> Digest {
    let mut parts = Parts::default();
    parts.add(bundle.iter());
    parts.keys(&bundle.issuers, key_sets);
    parts.refuses_all(bundle.refuses_all);
    parts.digest(filter)
}

/// The digest of what one group of nodes is served, including what their bootstraps allow. Equal to [`revision`]
/// if all resources concern the nodes.
pub fn group_revision(scope: &Scope<'_>, key_sets: &KeySets, filter: &Digest) -> Digest {
    let mut parts = Parts::default();
    parts.add(scope.iter());
    parts.keys(scope.issuers.iter().copied(), key_sets);
    parts.refuses_all(scope.refuses_all);
    if scope.support != Support::default() {
        parts.0.push(Digest::of_parts([&b"support"[..], format!("{:?}", scope.support).as_bytes()]));
    }
    parts.digest(filter)
}

/// The digests of all parts. Each covers its kind and name, so their order does not matter, and they are sorted.
#[derive(Default)]
struct Parts(Vec<Digest>);

impl Parts {
    fn add<'a>(&mut self, resources: impl Iterator<Item = Declaration<'a>>) {
        self.0.extend(resources.map(|resource| resource.digest.clone()));
    }

    fn keys<'a>(&mut self, issuers: impl IntoIterator<Item = &'a Resource<Issuer>>, key_sets: &KeySets) {
        for issuer in issuers {
            let KeySource::Published { uri, .. } = &issuer.spec.keys else { continue };
            if let Some(set) = key_sets.get(uri) {
                // Serializing plain data does not fail.
                let set = serde_json::to_vec(set).unwrap_or_default();
                self.0.push(Digest::of_parts([b"keys", issuer.mesh().as_bytes(), issuer.name.as_bytes(), &set]));
            }
        }
    }

    fn refuses_all(&mut self, all: bool) {
        self.0.extend(all.then(|| Digest::of(b"refuses all")));
    }

    fn digest(mut self, filter: &Digest) -> Digest {
        self.0.sort_unstable();
        Digest::of_parts([filter].into_iter().chain(&self.0).map(|digest| digest.as_str().as_bytes()))
    }
}
