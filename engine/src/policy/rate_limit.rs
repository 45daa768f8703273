//! `rateLimit`: a token bucket for each value of a key, right across workers.
//!
//! A bucket is one number: the time at which it will be full again (the generic cell rate algorithm). Buckets live in
//! shared data, a few to a value, and are changed by compare-and-swap. A full bucket says nothing and is forgotten, so
//! memory stays bounded: `maxKeys` buckets, then the one closest to full goes.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::{Context, Flow, failure, needs_of};
use crate::{
    ask::{Answer, Ask},
    cel::{Expression, Value},
    event::{Needs, Phase},
    plan::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    verdict::{Denial, Response},
};

const SECOND: u64 = 1_000_000_000;
/// How many buckets share a value: enough that a set is rarely full while others are empty.
const SET_SIZE: usize = 8;
/// How often a worker tries again when others are faster. Each time somebody has got ahead, so this is never reached
/// unless something is broken.
const MOST_TRIES: u32 = 64;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "rateLimit",
    about: "Limits requests by a token bucket for each value of a key, exactly across all workers of an Envoy.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::required("requests", Kind::Integer { min: 1, max: 1_000_000 }, "How many requests …"),
            Field::required("per", Kind::Duration, "… in this time."),
            Field::optional("burst", Kind::Integer { min: 1, max: 1_000_000 }, "How many may come at once.")
                .or("requests"),
            Field::optional("key", Kind::Expression, "What each bucket is for; one bucket for all by default."),
            Field::optional(
                "maxKeys",
                Kind::Integer { min: 1, max: 1_048_576 },
                "How many buckets are remembered at the most.",
            )
            .or("65536"),
            Field::optional(
                "report",
                Kind::Choice(&["denied", "always", "never"]),
                "Which answers carry `RateLimit-*` headers.",
            )
            .or("denied"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "429", reason: "limit_exceeded", when: "the bucket is empty; `Retry-After` says how long" },
        Ending { status: "500", reason: "key_failed", when: "`key` could not be evaluated (a failure)" },
        Ending { status: "500", reason: "bucket_contended", when: "the bucket could not be written (a failure)" },
    ],
    example: "\
- policy: rateLimit
  params: { requests: 100, per: 1s, burst: 20, key: source.address }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// What the names of all its values start with; of a limit without a key, the name of its only one.
    prefix: Arc<str>,
    interval: u64,
    /// How far ahead of now a bucket may be full and still give a token.
    tolerance: u64,
    key: Option<Arc<Expression>>,
    sets: u64,
    limit: u32,
    report: Report,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Denied,
    Always,
    Never,
}

impl RateLimit {
    pub(crate) fn load(wire: &wire::RateLimit, strings: &Strings) -> Result<Self, LoadError> {
        let most_interval = SECOND.saturating_mul(86_400 * 366);
        let interval = in_range("interval_ns", wire.interval_ns, 1, most_interval)?;
        let burst = in_range("burst", wire.burst.into(), 1, 1_000_000)?;
        let most_keys = in_range("most_keys", wire.most_keys.into(), 1, 1 << 20)?;
        let report = match wire::ReportLimit::try_from(wire.report) {
            Ok(wire::ReportLimit::Denied) => Report::Denied,
            Ok(wire::ReportLimit::Always) => Report::Always,
            Ok(wire::ReportLimit::Never) => Report::Never,
            Err(_) => return Err(LoadError::Missing("report")),
        };
        let key = strings.expression(wire.key)?;
        let only = if key.is_none() { "0" } else { "" };
        Ok(Self {
            prefix: format!("postern.limit/{}/{only}", strings.name(wire.id)?).into(),
            interval,
            tolerance: interval.saturating_mul(burst.saturating_sub(1)),
            key,
            sets: most_keys.div_ceil(SET_SIZE as u64),
            limit: wire.limit,
            report,
        })
    }

    /// The value of a limit that has one bucket for all.
    pub(crate) fn shared_key(&self) -> Option<Arc<str>> {
        self.key.is_none().then(|| self.set_key(0))
    }

    pub(crate) fn needs(&self) -> Needs {
        Needs::NOW.union(needs_of(&self.key))
    }

    pub(crate) fn run(&self, context: &mut Context<'_>, answer: Option<Answer>) -> Flow {
        match answer {
            None => match self.hash(context) {
                Some(hash) => {
                    context.memory.numbers = [hash, 0];
                    Flow::Ask(Ask::Load { key: self.set_key(hash) })
                }
                None => Flow::Fail(failure("key_failed")),
            },
            Some(Answer::Loaded { value, version }) => self.take(context, value, version),
            Some(Answer::Stored(true)) => self.admit(context),
            Some(Answer::Stored(false)) if context.memory.tries < MOST_TRIES => {
                context.memory.tries = context.memory.tries.saturating_add(1);
                let [hash, _] = context.memory.numbers;
                Flow::Ask(Ask::Load { key: self.set_key(hash) })
            }
            Some(_) => Flow::Fail(failure("bucket_contended")),
        }
    }

    /// Which bucket the request takes from. The digest keeps a caller from choosing another's bucket.
    fn hash(&self, context: &Context<'_>) -> Option<u64> {
        let Some(key) = &self.key else {
            return Some(0);
        };
        let digest = match key.evaluate(context).ok()? {
            Value::String(text) => Sha256::digest(text.as_bytes()),
            Value::Int(number) => Sha256::digest(number.to_le_bytes()),
            Value::Uint(number) => Sha256::digest(number.to_le_bytes()),
            Value::Bool(truth) => Sha256::digest([u8::from(truth)]),
            Value::Bytes(bytes) => Sha256::digest(&bytes),
            _ => return None,
        };
        let (first, _) = digest.split_first_chunk::<8>()?;
        Some(u64::from_le_bytes(*first))
    }

    #[inline]
    fn set_key(&self, hash: u64) -> Arc<str> {
        if self.key.is_none() {
            return Arc::clone(&self.prefix);
        }
        let set = hash.checked_rem(self.sets).unwrap_or_default();
        [&*self.prefix, &set.to_string()].concat().into()
    }

    fn take(&self, context: &mut Context<'_>, value: Vec<u8>, version: u32) -> Flow {
        let now = context.inputs.now;
        let [hash, _] = context.memory.numbers;
        let mut set = BucketSet::decode(&value);
        let full_at = set.full_at(hash).max(now);
        let ahead = full_at.saturating_sub(now);
        if ahead > self.tolerance {
            return Flow::Deny(self.too_many(ahead));
        }
        let full_at = full_at.saturating_add(self.interval);
        context.memory.numbers = [hash, full_at];
        set.put(hash, full_at, now);
        Flow::Ask(Ask::Store { key: self.set_key(hash), value: set.encode(value), version })
    }

    fn admit(&self, context: &mut Context<'_>) -> Flow {
        if self.report == Report::Always {
            let [_, full_at] = context.memory.numbers;
            for (name, value) in self.report_headers(full_at.saturating_sub(context.inputs.now)) {
                context.facts.rare().response.set(context.step, &name.into(), &value.into());
            }
        }
        Flow::Continue
    }

    fn too_many(&self, ahead: u64) -> Denial {
        let wait = ahead.saturating_sub(self.tolerance).div_ceil(SECOND).max(1);
        let mut response = Response::problem(429, "too many requests").with_header("retry-after", &wait.to_string());
        if self.report != Report::Never {
            for (name, value) in self.report_headers(ahead) {
                response = response.with_header(name, &value);
            }
        }
        Denial { reason: "limit_exceeded", response }
    }

    /// What is left of a bucket that will be full `ahead` from now.
    fn report_headers(&self, ahead: u64) -> [(&'static str, String); 3] {
        let room = self.tolerance.saturating_add(self.interval).saturating_sub(ahead);
        let left = room.checked_div(self.interval).unwrap_or_default();
        [
            ("ratelimit-limit", self.limit.to_string()),
            ("ratelimit-remaining", left.to_string()),
            ("ratelimit-reset", ahead.div_ceil(SECOND).to_string()),
        ]
    }
}

fn in_range(what: &'static str, value: u64, least: u64, most: u64) -> Result<u64, LoadError> {
    if (least..=most).contains(&value) { Ok(value) } else { Err(LoadError::Range { what, least, most, value }) }
}

/// A few buckets in one shared value: pairs of a key's hash and the time at which its bucket is full.
struct BucketSet(SmallVec<[(u64, u64); 1]>);

impl BucketSet {
    /// What is not a whole pair is dropped: it can only come from another version of this code.
    fn decode(value: &[u8]) -> Self {
        let (numbers, _) = value.as_chunks::<8>();
        let (pairs, _) = numbers.as_chunks::<2>();
        Self(pairs.iter().map(|[hash, full_at]| (u64::from_le_bytes(*hash), u64::from_le_bytes(*full_at))).collect())
    }

    /// In the place of what it was decoded from.
    fn encode(&self, mut value: Vec<u8>) -> Vec<u8> {
        value.clear();
        value.reserve_exact(self.0.len().saturating_mul(16));
        for (hash, full_at) in &self.0 {
            value.extend_from_slice(&hash.to_le_bytes());
            value.extend_from_slice(&full_at.to_le_bytes());
        }
        value
    }

    fn full_at(&self, hash: u64) -> u64 {
        self.0.iter().find(|(candidate, _)| *candidate == hash).map_or(0, |(_, full_at)| *full_at)
    }

    fn put(&mut self, hash: u64, full_at: u64, now: u64) {
        self.0.retain(|(candidate, full_at)| *candidate != hash && *full_at > now);
        if self.0.len() >= SET_SIZE {
            self.0.sort_unstable_by_key(|(_, full_at)| *full_at);
            self.0.remove(0);
        }
        self.0.push((hash, full_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_drops_what_is_no_pair() {
        let mut set = BucketSet::decode(&[1, 2, 3]);
        set.put(7, 100, 0);
        set.put(8, 200, 0);
        let read = BucketSet::decode(&set.encode(Vec::new()));
        assert_eq!((read.full_at(7), read.full_at(8), read.full_at(9)), (100, 200, 0));
    }

    #[test]
    fn forgets_full_buckets_first_and_then_the_one_closest_to_full() {
        let mut set = BucketSet(SmallVec::new());
        for key in 0..20 {
            set.put(key, 1000 + key, 500);
            assert!(set.0.len() <= SET_SIZE);
        }
        assert_eq!((set.full_at(0), set.full_at(19)), (0, 1019));
        set.put(99, 3000, 2000);
        assert_eq!(set.0.as_slice(), [(99, 3000)]);
    }
}
