//! Issuers: who signs tokens, for whom, and with which keys.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{algorithm::Algorithm, fingerprint::Fingerprint, key::Key};
use crate::{
    load_error::{LoadError, PlanPart},
    strings::Strings,
};

/// How many keys are tried for a token that does not name one. More would make a bad token too expensive.
const MOST_CANDIDATES: usize = 8;

/// An issuer of tokens.
#[derive(Debug)]
pub(crate) struct Issuer {
    /// The value of the claim `iss`.
    pub(super) issuer: Arc<str>,
    /// The audiences, of which a token must name one. Empty if any audience will do.
    pub(super) audiences: Vec<Arc<str>>,
    keys: Vec<Key>,
    /// Whether its keys are unknown, so that no token can be checked.
    pub(super) keys_unavailable: bool,
    /// A digest of its contents.
    pub(super) fingerprint: [u8; 32],
}

impl Issuer {
    pub(crate) fn load(wire: &wire::Issuer, strings: &Strings) -> Result<Self, LoadError> {
        let name = strings.name(wire.name)?;
        Self::load_named(wire, strings).map_err(|error| error.within(PlanPart::Issuer(name)))
    }

    fn load_named(wire: &wire::Issuer, strings: &Strings) -> Result<Self, LoadError> {
        let issuer = strings.get(wire.issuer)?;
        if issuer.is_empty() {
            return Err(LoadError::Missing("issuer"));
        }
        let audiences = wire.audiences.iter().map(|audience| strings.get(*audience)).collect::<Result<Vec<_>, _>>()?;
        let load = |(index, key)| Key::load(key, strings).map_err(|error| error.within(format!("key {index}")));
        let keys = wire.keys.iter().enumerate().map(load).collect::<Result<_, _>>()?;
        let fingerprint = fingerprint(wire, strings, &issuer, &audiences)?;
        Ok(Self { issuer, audiences, keys, keys_unavailable: wire.keys_unavailable, fingerprint })
    }

    /// The indexes of the keys that a token may be checked with. If it names a key, only keys of that name.
    pub(super) fn candidates(&self, algorithm: Algorithm, key_id: Option<&str>) -> Vec<usize> {
        let fitting = self.keys.iter().enumerate().filter(|(_, key)| key.fits(algorithm, key_id));
        fitting.map(|(place, _)| place).take(MOST_CANDIDATES).collect()
    }

    pub(super) fn key(&self, place: usize) -> Option<&Key> {
        self.keys.get(place)
    }
}

fn fingerprint(
    wire: &wire::Issuer,
    strings: &Strings,
    issuer: &str,
    audiences: &[Arc<str>],
) -> Result<[u8; 32], LoadError> {
    use wire::verification_key::Material;
    let mut print = Fingerprint::default();
    print.add(issuer);
    print.add_all(audiences);
    print.number(wire.keys.len() as u64);
    for key in &wire.keys {
        print.add(&*strings.get(key.id)?);
        print.number(key.algorithms.len() as u64);
        key.algorithms.iter().for_each(|algorithm| print.add(algorithm.to_le_bytes()));
        let (family, bytes) = match &key.material {
            None => (0, &[][..]),
            Some(Material::Rsa(bytes)) => (1, bytes.as_slice()),
            Some(Material::P256(bytes)) => (2, bytes.as_slice()),
            Some(Material::P384(bytes)) => (3, bytes.as_slice()),
            Some(Material::Ed25519(bytes)) => (4, bytes.as_slice()),
            Some(Material::Secret(bytes)) => (5, bytes.as_slice()),
        };
        print.number(family);
        print.add(bytes);
    }
    Ok(print.finish())
}
