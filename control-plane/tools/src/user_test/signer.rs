//! Tokens that tests sign by themselves, with a throw-away key that the plan under test takes for one of the issuer's.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_model::{Bundle, Issuer, KeySource, KeyUri, jwk::Algorithm};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Map, Value, json};

/// The `kid` of the throw-away key.
const KEY: &str = "postern-test";
/// How long a token is good, unless its claims say otherwise.
const LIFETIME: Duration = Duration::from_secs(300);

/// A throw-away key.
pub(super) struct Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    /// A new key. `None` if the system has no randomness.
    pub(super) fn new() -> Option<Self> {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).ok()?;
        Some(Self { pair, random })
    }

    /// The public key, as issuers publish it.
    pub(super) fn jwk(&self) -> Value {
        // An uncompressed point: a byte 4, then both coordinates.
        let (_, point) = self.pair.public_key().as_ref().split_at_checked(1).unwrap_or_default();
        let (x, y) = point.split_at_checked(point.len() / 2).unwrap_or_default();
        let [x, y] = [x, y].map(|coordinate| URL_SAFE_NO_PAD.encode(coordinate));
        json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": KEY, "x": x, "y": y })
    }

    /// A token of an issuer. What `claims` leave out is filled in such that the token is good; null leaves a claim out.
    /// An error says why no such token can be signed.
    pub(super) fn token(&self, issuer: &Issuer, claims: &Map<String, Value>, now: u64) -> Result<String, String> {
        if !issuer.algorithms.is_empty() && !issuer.algorithms.contains(&Algorithm::Es256) {
            return Err("its `algorithms` leave out ES256, with which tests sign".to_owned());
        }
        if matches!(issuer.keys, KeySource::Inline(_)) {
            return Err("its keys are written in: give the test a token of your own, in `headers`".to_owned());
        }
        let mut all = json!({ "iss": issuer.issuer, "iat": now, "exp": now.saturating_add(LIFETIME.as_secs()) });
        if let Some(all) = all.as_object_mut() {
            all.extend(issuer.audiences.first().map(|audience| ("aud".to_owned(), json!(audience))));
            all.extend(claims.clone());
            all.retain(|_, claim| !claim.is_null());
        }
        let head = json!({ "alg": "ES256", "typ": "JWT", "kid": KEY });
        let text = [head, all].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signed = self.pair.sign(&self.random, text.as_bytes()).map_err(|_| "the system has no randomness")?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signed)))
    }
}

/// The addresses of the key sets that issuers publish.
pub(super) fn published(bundle: &Bundle) -> impl Iterator<Item = &KeyUri> {
    bundle.issuers.iter().filter_map(|issuer| match &issuer.spec.keys {
        KeySource::Published { uri, .. } => Some(uri),
        KeySource::Inline(_) => None,
    })
}
