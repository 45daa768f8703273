//! Issuers of tokens: their keys, from the resource or as they were fetched, in the plan's words.

use postern_proto::plan::v1::{
    Issuer, SignatureAlgorithm, VerificationKey, verification_key::Material as WireMaterial,
};

use super::{Lowering, Place};
use crate::{
    jwk::{Algorithm, Key, Material},
    keys::KeySets,
    model::{self, Bundle, KeySource, Resource, quote, suggestion},
};

impl Lowering {
    /// All issuers, in the order of their names.
    pub(super) fn issuers(&mut self, bundle: &Bundle, sets: &KeySets) {
        for issuer in &bundle.issuers {
            let lowered = self.lower_issuer(issuer, sets);
            self.plan.issuers.push(lowered);
            self.issuers.push(issuer.name.clone());
        }
    }

    /// The place in `Plan.issuers` of the issuer that a field of a step names, such as `params.issuers[0]`; 0, and an
    /// error at that field, if there is none.
    #[allow(dead_code, reason = "for policies that take tokens")]
    pub(super) fn issuer(&mut self, place: &Place<'_>, field: &str, name: &str) -> u32 {
        match self.issuers.iter().position(|issuer| issuer == name) {
            Some(index) => u32::try_from(index).unwrap_or(u32::MAX),
            None => {
                let near = suggestion(name, self.issuers.iter().map(String::as_str));
                self.error(place, field, format!("unknown issuer {}{near}", quote(name)));
                0
            }
        }
    }

    fn lower_issuer(&mut self, issuer: &Resource<model::Issuer>, sets: &KeySets) -> Issuer {
        let spec = &issuer.spec;
        let keys: Vec<Key> = match &spec.keys {
            KeySource::Inline(keys) => keys.clone(),
            KeySource::Published { uri, .. } => {
                let published = sets.get(uri).map_or(&[][..], |set| set.keys());
                published.iter().filter_map(|key| key.restricted_to(&spec.algorithms)).collect()
            }
        };
        Issuer {
            name: self.string(&issuer.name),
            issuer: self.string(&spec.issuer),
            audiences: spec.audiences.iter().map(|audience| self.string(audience)).collect(),
            // Without a key no token can be told from another: that is no denial.
            keys_unavailable: keys.is_empty(),
            keys: keys.iter().map(|key| self.key(key)).collect(),
        }
    }

    fn key(&mut self, key: &Key) -> VerificationKey {
        let material = match &key.material {
            Material::Rsa(key) => WireMaterial::Rsa(key.clone()),
            Material::P256(point) => WireMaterial::P256(point.clone()),
            Material::P384(point) => WireMaterial::P384(point.clone()),
            Material::Ed25519(point) => WireMaterial::Ed25519(point.clone()),
            Material::Secret(secret) => WireMaterial::Secret(secret.reveal().to_vec()),
        };
        VerificationKey {
            id: self.string(key.id.as_deref().unwrap_or_default()),
            algorithms: key.algorithms.iter().map(|algorithm| wire(*algorithm).into()).collect(),
            material: Some(material),
        }
    }
}

fn wire(algorithm: Algorithm) -> SignatureAlgorithm {
    match algorithm {
        Algorithm::Rs256 => SignatureAlgorithm::Rs256,
        Algorithm::Rs384 => SignatureAlgorithm::Rs384,
        Algorithm::Rs512 => SignatureAlgorithm::Rs512,
        Algorithm::Ps256 => SignatureAlgorithm::Ps256,
        Algorithm::Es256 => SignatureAlgorithm::Es256,
        Algorithm::Es384 => SignatureAlgorithm::Es384,
        Algorithm::EdDsa => SignatureAlgorithm::Eddsa,
        Algorithm::Hs256 => SignatureAlgorithm::Hs256,
    }
}
