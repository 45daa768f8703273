//! JSON Web Tokens for the cases that check them, signed by `ring`: the engine only verifies. The key beside this file is
//! for this alone, and known to everybody.

use anyhow::{Context, Result, anyhow};
use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use serde_json::{Value, json};

/// The issuer.
pub(super) const ISSUER: &str = "https://issuer.bench.example";
/// The audience.
pub(super) const AUDIENCE: &str = "bench";
/// The claim that a role check looks at, and what it must say.
pub(super) const ROLE: (&str, &str) = ("role", "reader");
const KEY_ID: &str = "bench-1";
/// The end of the year 2099.
const EXPIRY: u64 = 4_102_444_799;
/// The number of different tokens. No cache keeps one until its next turn: Envoy's and ours have room for some hundred.
const NEW: u64 = 4096;

/// The tokens that a case's requests carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tokens {
    None,
    /// The same token with every request.
    Same,
    /// Another token with every request.
    New,
}

impl Tokens {
    /// The values of `authorization`, which requests use in turn; empty for none.
    pub(super) fn make(self) -> Result<Vec<String>> {
        let count = match self {
            Self::None => return Ok(Vec::new()),
            Self::Same => 1,
            Self::New => NEW,
        };
        let key = key()?;
        (0..count).map(|serial| token(&key, serial)).collect()
    }
}

/// The key set that the tokens are checked with.
pub(super) fn key_set() -> Result<Value> {
    let key = key()?;
    let public: ring::rsa::PublicKeyComponents<Vec<u8>> = key.public_key().into();
    let [n, e] = [public.n, public.e].map(|number| BASE64_URL_SAFE_NO_PAD.encode(number));
    Ok(json!({ "keys": [{ "kty": "RSA", "kid": KEY_ID, "alg": "RS256", "use": "sig", "n": n, "e": e }] }))
}

fn token(key: &RsaKeyPair, serial: u64) -> Result<String> {
    let encode = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = encode(json!({ "alg": "RS256", "typ": "JWT", "kid": KEY_ID }));
    let claims = encode(json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "caller-1", "exp": EXPIRY, "iat": 1_700_000_000,
        "jti": format!("{serial:08}"), "scope": "orders:read orders:write", ROLE.0: ROLE.1,
    }));
    let signed = format!("{header}.{claims}");
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| anyhow!("a token cannot be signed"))?;
    Ok(format!("Bearer {signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

fn key() -> Result<RsaKeyPair> {
    let text: String = include_str!("signer.pem").lines().filter(|line| !line.starts_with('-')).collect();
    let der = BASE64_STANDARD.decode(text).context("the bench's key")?;
    RsaKeyPair::from_pkcs8(&der).map_err(|error| anyhow!("the bench's key: {error}"))
}
