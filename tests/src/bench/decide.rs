//! What the servers of ext_authz and ext_proc decide: key, limit and headers, the same as `wasm-three`.
//!
//! A stand-in in plain Rust until the engine has the limit; then [`Decider::decide`] runs the engine.

use std::{collections::HashMap, sync::Mutex, sync::PoisonError, time::Instant};

use sha2::{Digest, Sha256};

use super::policies::{CONSUMER, GUARD, KEY, KEY_HEADER, LIMIT_PER_SECOND};

/// What is to happen to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It goes on with these edits.
    Continue { set: Vec<(String, String)>, remove: Vec<String> },
    /// It is answered.
    Deny { status: u16, body: String },
}

/// The state of a server, shared by its requests.
#[derive(Debug)]
pub(super) struct Decider {
    consumers: HashMap<[u8; 32], &'static str>,
    bucket: Mutex<Bucket>,
}

impl Decider {
    pub(super) fn new() -> Self {
        let consumers = HashMap::from([(Sha256::digest(KEY).into(), CONSUMER)]);
        let bucket = Bucket { tokens: f64::from(LIMIT_PER_SECOND), filled: Instant::now() };
        Self { consumers, bucket: Mutex::new(bucket) }
    }

    /// Decides on a request by its headers, names in lower case.
    pub(super) fn decide<'a>(&self, headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Decision {
        let mut keys = headers.filter(|(name, _)| *name == KEY_HEADER);
        let (Some((_, key)), None) = (keys.next(), keys.next()) else { return unauthorized() };
        let key: [u8; 32] = Sha256::digest(key).into();
        if !self.consumers.contains_key(&key) {
            return unauthorized();
        }
        let is_allowed = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        if !is_allowed {
            return Decision::Deny { status: 429, body: "too many requests".to_owned() };
        }
        let (name, value) = GUARD;
        Decision::Continue { set: vec![(name.to_owned(), value.to_owned())], remove: vec![KEY_HEADER.to_owned()] }
    }
}

fn unauthorized() -> Decision {
    Decision::Deny { status: 401, body: "a valid API key is required".to_owned() }
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let limit = f64::from(LIMIT_PER_SECOND);
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * limit;
        self.tokens = (self.tokens + gained).min(limit);
        self.filled = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_the_key_only() {
        let decider = Decider::new();
        let check = |headers: &[(&'static str, &'static str)], expect: Option<u16>| {
            let decision = decider.decide(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
            let status = match decision {
                Decision::Continue { .. } => None,
                Decision::Deny { status, .. } => Some(status),
            };
            assert_eq!(status, expect, "{headers:?}");
        };
        check(&[], Some(401));
        check(&[(KEY_HEADER, "guess")], Some(401));
        check(&[(KEY_HEADER, KEY), (KEY_HEADER, KEY)], Some(401));
        check(&[("host", "a"), (KEY_HEADER, KEY)], None);
    }
}
