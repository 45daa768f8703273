//! Encodes keys for plans.

use postern_proto::plan::v1::{
    FORMAT, Issuer, Plan, SignatureAlgorithm, VerificationKey, verification_key::Material as WireMaterial,
};

use prost::Message as _;

use super::{Algorithm, Key, Material};

impl Key {
    /// The key in a plan. `id` is the index of the string for its `kid`.
    pub fn to_wire(&self, id: u32) -> VerificationKey {
        let material = match &self.material {
            Material::Rsa(key) => WireMaterial::Rsa(key.clone()),
            Material::P256(point) => WireMaterial::P256(point.clone()),
            Material::P384(point) => WireMaterial::P384(point.clone()),
            Material::Ed25519(point) => WireMaterial::Ed25519(point.clone()),
            Material::Secret(secret) => WireMaterial::Secret(secret.reveal().to_vec()),
        };
        let algorithms = self.algorithms.iter().map(|algorithm| algorithm.to_wire().into()).collect();
        VerificationKey { id, algorithms, material: Some(material) }
    }

    /// Whether a filter would load the key: for example, a point must be on its curve. One bad key must not make a
    /// filter refuse the whole plan.
    pub(super) fn is_loadable(&self) -> bool {
        let strings = ["issuer", self.id.as_deref().unwrap_or_default()].map(str::to_owned).to_vec();
        let issuer = Issuer { keys: vec![self.to_wire(1)], ..Issuer::default() };
        let plan = Plan { format: FORMAT, strings, issuers: vec![issuer], ..Plan::default() };
        postern_engine::Plan::load(&plan.encode_to_vec()).is_ok()
    }
}

impl Algorithm {
    fn to_wire(self) -> SignatureAlgorithm {
        match self {
            Self::Rs256 => SignatureAlgorithm::Rs256,
            Self::Rs384 => SignatureAlgorithm::Rs384,
            Self::Rs512 => SignatureAlgorithm::Rs512,
            Self::Ps256 => SignatureAlgorithm::Ps256,
            Self::Es256 => SignatureAlgorithm::Es256,
            Self::Es384 => SignatureAlgorithm::Es384,
            Self::EdDsa => SignatureAlgorithm::Eddsa,
            Self::Hs256 => SignatureAlgorithm::Hs256,
        }
    }
}
