//! What is kept of a password: a PBKDF2 hash, never the password. Hashes are read in the PHC string format, which
//! other tools write too.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use pbkdf2::{hmac::Hmac, pbkdf2};
use postern_engine::consumers::{LONGEST_SALT, MOST_ITERATIONS};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// How often a password is hashed that is written in plain.
const ITERATIONS: u32 = 1_000;

/// PBKDF2 with HMAC and SHA-256 over a password.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct PasswordHash {
    /// What makes equal passwords have unequal hashes.
    pub salt: Vec<u8>,
    /// How often it was hashed: 1 to [`MOST_ITERATIONS`].
    pub iterations: u32,
    /// The hash.
    pub hash: [u8; 32],
}

impl std::fmt::Debug for PasswordHash {
    /// Without the hash: a password that can be guessed can be guessed from it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PasswordHash({} rounds)", self.iterations)
    }
}

impl PasswordHash {
    /// The hash of a password that a user wrote in plain. The salt comes from the user name, because equal resources
    /// must make equal plans.
    pub(super) fn of(username: &str, password: &str) -> Self {
        let salt = Sha256::new().chain_update("postern password salt:").chain_update(username).finalize();
        let salt = salt.get(..16).unwrap_or_default().to_vec();
        let mut hash = [0; 32];
        // It fails only for a key that is too long, which HMAC does not know.
        let _ = pbkdf2::<Hmac<Sha256>>(password.as_bytes(), &salt, ITERATIONS, &mut hash);
        Self { salt, iterations: ITERATIONS, hash }
    }

    /// `$pbkdf2-sha256$i=1000,l=32$<salt>$<hash>`, with salt and hash in base64 without padding. An error does not
    /// repeat it: a user may have put the password itself there.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str =
            "expected `$pbkdf2-sha256$i=<rounds>$<salt>$<hash>`, salt and hash in base64 without padding";
        let ["", "pbkdf2-sha256", params, salt, hash] = text.split('$').collect::<Vec<_>>()[..] else {
            return Err(FORM);
        };
        let mut iterations = None;
        for param in params.split(',') {
            match param.split_once('=') {
                Some(("i", rounds)) if iterations.is_none() => iterations = Some(rounds.parse().map_err(|_| FORM)?),
                Some(("l", "32")) => {}
                _ => return Err(FORM),
            }
        }
        let iterations = iterations.ok_or(FORM)?;
        let decode = |text| STANDARD_NO_PAD.decode(text).map_err(|_| FORM);
        let salt: Vec<u8> = decode(salt)?;
        let hash = <[u8; 32]>::try_from(decode(hash)?).map_err(|_| "expected a hash of 32 bytes")?;
        if !(1..=MOST_ITERATIONS).contains(&iterations) {
            return Err("expected 1 to 10000 rounds: every request with a wrong password pays for them");
        }
        if !(8..=LONGEST_SALT).contains(&salt.len()) {
            return Err("expected a salt of 8 to 64 bytes");
        }
        Ok(Self { salt, iterations, hash })
    }
}
