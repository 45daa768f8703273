//! Hashes of passwords (PBKDF2). Plain passwords are hashed and not kept. Hashes are read in the PHC string format,
//! which other tools write.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use pbkdf2::{hmac::Hmac, pbkdf2};
use postern_engine::consumers::{LONGEST_SALT, MOST_ITERATIONS};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The number of iterations for plain passwords.
const ITERATIONS: u32 = 1_000;

/// A PBKDF2-HMAC-SHA256 hash of a password.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct PasswordHash {
    /// The salt.
    pub salt: Vec<u8>,
    /// The number of iterations: 1 to [`MOST_ITERATIONS`].
    pub iterations: u32,
    /// The hash.
    pub hash: [u8; 32],
}

impl std::fmt::Debug for PasswordHash {
    /// Omits the hash: a weak password could be guessed from it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PasswordHash({} rounds)", self.iterations)
    }
}

impl PasswordHash {
    /// Hashes a plain password. The salt is derived from the user name, because equal resources must give equal plans.
    pub(super) fn of(username: &str, password: &str) -> Self {
        let salt = Sha256::new().chain_update("postern password salt:").chain_update(username).finalize();
        let salt = salt.get(..16).unwrap_or_default().to_vec();
        let mut hash = [0; 32];
        // Fails only for an invalid key length, and HMAC accepts all lengths.
        let _ = pbkdf2::<Hmac<Sha256>>(password.as_bytes(), &salt, ITERATIONS, &mut hash);
        Self { salt, iterations: ITERATIONS, hash }
    }

    /// Parses `$pbkdf2-sha256$i=1000,l=32$<salt>$<hash>`, with salt and hash in base64 without padding. Errors do not
    /// repeat the text, since it may be the password itself.
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
