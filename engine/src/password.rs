//! Passwords: the hash that a plan has of one, and how a caller's password is checked against it.
//!
//! Guessing a password from its hash must be slow, and checking it for every request must be fast. So the first check
//! runs all rounds of PBKDF2. A password that was found right is then remembered by a plain digest, only in this
//! worker's memory and for this plan. A wrong password always costs all rounds, about 1 µs each in Envoy. Whoever may
//! guess without limit can keep a worker busy, so rounds are bounded, and a rate limit belongs before this check.

use std::{fmt, hint::black_box, sync::OnceLock};

use pbkdf2::{hmac::Hmac, pbkdf2};
use postern_proto::plan::v1 as wire;
use sha2::{Digest, Sha256};

use crate::{
    budget::{self, Budget},
    load_error::LoadError,
    secret::same,
};

type Hash = [u8; 32];

/// The most rounds that a password may have. Every wrong password keeps a worker busy for that long.
pub const MOST_ITERATIONS: u32 = 10_000;
/// The longest salt of a password.
pub const LONGEST_SALT: usize = 64;
/// The cost of a round: about 1 µs in Envoy.
const STEPS_A_ROUND: u64 = budget::STEPS_A_MICROSECOND;

/// The salted hash of a password.
pub(crate) struct Password {
    salt: Vec<u8>,
    iterations: u32,
    hash: Hash,
    /// The digest of the password, once a caller has sent it.
    right: OnceLock<Hash>,
}

/// Shows nothing from which a password could be guessed.
impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Password({} rounds)", self.iterations)
    }
}

impl Password {
    pub(crate) fn load(wire: &wire::PasswordCredential) -> Result<Self, LoadError> {
        let range = |what, least: u64, most: u64, value: u64| match value {
            _ if (least..=most).contains(&value) => Ok(()),
            _ => Err(LoadError::Range { what, least, most, value }),
        };
        range("iterations", 1, MOST_ITERATIONS.into(), wire.iterations.into())?;
        range("size of the salt", 1, LONGEST_SALT as u64, wire.salt.len() as u64)?;
        range("size of the hash", 32, 32, wire.hash.len() as u64)?;
        let hash = Hash::try_from(wire.hash.as_slice()).map_err(|_| LoadError::Missing("hash"))?;
        Ok(Self { salt: wire.salt.clone(), iterations: wire.iterations, hash, right: OnceLock::new() })
    }

    /// A password that nobody has. A caller with an unknown user name is checked against it.
    pub(crate) fn nobodys() -> Self {
        Self { salt: vec![0; 16], iterations: 0, hash: [0; 32], right: OnceLock::new() }
    }

    /// Whether this is the password. Unless it was found right before, the check takes `rounds`, whatever the result
    /// is; the password's own rounds are part of these.
    pub(crate) fn is(&self, password: &[u8], rounds: u32, budget: &Budget) -> bool {
        let digest = Hash::from(Sha256::new().chain_update(&self.salt).chain_update(password).finalize());
        if self.right.get().is_some_and(|right| same(right, &digest)) {
            return true;
        }
        // The rounds are the consumers' own, and one password is checked: they are always allowed.
        budget.declare(u64::from(rounds.max(self.iterations)).saturating_mul(STEPS_A_ROUND));
        let hash = derive(password, &self.salt, self.iterations);
        black_box(derive(password, &self.salt, rounds.saturating_sub(self.iterations)));
        let right = self.iterations > 0 && same(&hash, &self.hash);
        if right {
            // Whoever was first has written the same.
            let _ = self.right.set(digest);
        }
        right
    }
}

fn derive(password: &[u8], salt: &[u8], rounds: u32) -> Hash {
    let mut hash = Hash::default();
    if rounds > 0 {
        // HMAC takes keys of any size, so this cannot fail; if it did, the hash would be that of no password.
        let _ = pbkdf2::<Hmac<Sha256>>(password, salt, rounds, &mut hash);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(iterations: u32, hash: Vec<u8>) -> Result<Password, LoadError> {
        Password::load(&wire::PasswordCredential { username: 0, salt: b"saltSALT".to_vec(), iterations, hash })
    }

    #[test]
    fn knows_the_right_password_the_first_time_and_later() {
        // Python: hashlib.pbkdf2_hmac("sha256", b"secret", b"saltSALT", 7)
        let hash = b"\x29\x86\xa3\x77\x6c\xcc\xfe\x5c\x49\xb0\x92\x27\xa2\x55\xdb\xdf\xd4\x92\x18\x1f\x49\x96\x01\xf0\xeb\x53\xd2\xac\x3f\x53\x06\xa5";
        let password = password(7, hash.to_vec()).unwrap();
        let budget = Budget::default();
        for _ in 0..2 {
            assert!(!password.is(b"Secret", 10, &budget));
            assert!(!password.is(b"", 10, &budget));
            assert!(password.is(b"secret", 10, &budget));
        }
        assert!(password.right.get().is_some());
    }

    #[test]
    fn nobody_has_nobodys_password() {
        assert!(!Password::nobodys().is(b"", 0, &Budget::default()));
        assert!(!Password::nobodys().is(&[0; 32], 5, &Budget::default()));
    }

    #[test]
    fn refuses_what_would_be_too_weak_or_too_costly() {
        for (iterations, size) in [(0, 32), (10_001, 32), (1, 31), (1, 33), (1, 0)] {
            assert!(password(iterations, vec![0; size]).is_err(), "{iterations} {size}");
        }
        assert!(password(10_000, vec![0; 32]).is_ok());
        let unsalted = wire::PasswordCredential { username: 0, salt: vec![], iterations: 1, hash: vec![0; 32] };
        assert!(Password::load(&unsalted).is_err());
    }
}
