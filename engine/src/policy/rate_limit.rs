//! `rateLimit`: a token bucket for each value of a key, exact across workers.
//!
//! A bucket is one number: the time at which it will be full again (the generic cell rate algorithm). Buckets are in
//! shared data, a few in each value, and are changed by compare-and-swap. A full bucket has no information and is
//! forgotten. Memory is bounded: past `maxKeys` buckets, the one closest to full is dropped.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::{BuiltIn, Context, Flow, Known, failure, least_cost, needs_of, unevaluated};
use crate::{
    cel::{Expression, Value},
    event::{Needs, Phase},
    header::{self, Name},
    host::{SharedValue, Unavailable},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema, Range},
    verdict::{Denial, Response},
};

const SECOND: u64 = 1_000_000_000;
/// How many buckets share a value: enough that a set is rarely full while others are empty.
const SET_SIZE: usize = 8;
/// How often a worker tries again when others were faster. Each time some worker has succeeded, so this is reached only
/// if something is broken.
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
                .or_same_as("requests"),
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
        Ending {
            status: "403",
            reason: "consumer_unknown",
            when: "`key` asks for the consumer of a caller who is none (a failure)",
        },
        Ending { status: "500", reason: "key_failed", when: "`key` could not be evaluated (a failure)" },
        Ending { status: "500", reason: "bucket_contended", when: "the bucket could not be written (a failure)" },
    ],
    example: "\
- policy: rateLimit
  params: { requests: 100, per: 1s, burst: 20, key: source.address }
",
};

const BURST: Range = SCHEMA.params.range("burst");
const MOST_KEYS: Range = SCHEMA.params.range("maxKeys");

/// The loaded step.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// The prefix of the names of its shared values or, for a limit without a key, the name of the only one.
    prefix: Arc<str>,
    interval: u64,
    /// A bucket gives a token if it will be full within this time from now.
    tolerance: u64,
    /// An empty bucket will be full after this time.
    capacity: u64,
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

impl BuiltIn for RateLimit {
    type Wire = wire::RateLimit;
    type State = ();

    fn load(wire: &wire::RateLimit, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let most_interval = SECOND.saturating_mul(86_400 * 366);
        let interval = in_range("interval_ns", wire.interval_ns, 1, most_interval)?;
        let burst = u64::from(BURST.check("burst", wire.burst)?);
        let most_keys = u64::from(MOST_KEYS.check("most_keys", wire.most_keys)?);
        let report = match wire::ReportLimit::try_from(wire.report) {
            Ok(wire::ReportLimit::Denied) => Report::Denied,
            Ok(wire::ReportLimit::Always) => Report::Always,
            Ok(wire::ReportLimit::Never) => Report::Never,
            Err(_) => return Err(LoadError::Missing("report")),
        };
        let key = strings.expression(wire.key)?;
        let tolerance = interval.saturating_mul(burst.saturating_sub(1));
        let only = if key.is_none() { "0" } else { "" };
        Ok(Self {
            prefix: format!("postern.limit/{}/{only}", strings.name(wire.id)?).into(),
            interval,
            tolerance,
            capacity: tolerance.saturating_add(interval),
            key,
            sets: most_keys.div_ceil(SET_SIZE as u64),
            limit: wire.limit,
            report,
        })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::NOW.union(needs_of(&self.key))
    }

    fn evaluates(&self) -> bool {
        true
    }

    fn least_cost(&self) -> u64 {
        least_cost(&self.key)
    }

    /// The shared value of a limit without a key.
    fn shared_key(&self) -> Option<Arc<str>> {
        self.key.is_none().then(|| Arc::clone(&self.prefix))
    }

    /// Takes a token, and tries again when another worker was faster.
    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let made;
        let (hash, key) = match &self.key {
            None => (0, &self.prefix),
            Some(key) => {
                let hash = match hash(key, context) {
                    Ok(hash) => hash,
                    Err(denial) => return Flow::Fail(denial),
                };
                made = self.set_key(hash);
                (hash, &made)
            }
        };
        for _ in 0..MOST_TRIES {
            let Ok((value, version)) = context.host.load(key) else { break };
            let (value, full_at) = match self.take(context.inputs.now, hash, &value) {
                Ok(taken) => taken,
                Err(denial) => return Flow::Deny(denial),
            };
            match context.host.store(key, value, version) {
                Ok(true) => return self.admit(context, full_at),
                Ok(false) => {}
                Err(Unavailable) => break,
            }
        }
        Flow::Fail(failure("bucket_contended"))
    }
}

impl RateLimit {
    /// The name of the shared value that has the bucket of this hash.
    #[inline(never)]
    fn set_key(&self, hash: u64) -> Arc<str> {
        let set = hash.checked_rem(self.sets).unwrap_or_default();
        [&*self.prefix, &set.to_string()].concat().into()
    }

    /// Takes a token from one bucket. Returns the new shared value, and when the bucket will be full again.
    #[inline]
    fn take(&self, now: u64, hash: u64, value: &SharedValue) -> Result<(SharedValue, u64), Denial> {
        // The only bucket of a limit without a key, in place.
        if let (None, Ok(bucket)) = (&self.key, <[u8; 16]>::try_from(value.as_slice())) {
            let [number, full_at] = decode(bucket);
            let full_at = self.fill(now, if number == hash { full_at } else { 0 })?;
            return Ok((SharedValue::from_buf(encode([hash, full_at])), full_at));
        }
        self.take_from_set(now, hash, value)
    }

    #[inline(never)]
    fn take_from_set(&self, now: u64, hash: u64, value: &SharedValue) -> Result<(SharedValue, u64), Denial> {
        let mut set = BucketSet::decode(value);
        let full_at = self.fill(now, set.full_at(hash))?;
        set.put(hash, full_at, now);
        Ok((set.encode(), full_at))
    }

    /// When a bucket will be full again after a token is taken.
    ///
    /// A bucket that is further ahead than this limit allows was written by another limit under the same name, or
    /// before a clock jumped back. It counts as a bucket with a single token left, so that the next write corrects it;
    /// if it counted as empty, it would stay as it is for as long as it is ahead.
    #[inline]
    fn fill(&self, now: u64, full_at: u64) -> Result<u64, Denial> {
        let mut full_at = full_at.max(now);
        if full_at.saturating_sub(now) > self.capacity {
            full_at = now.saturating_add(self.tolerance);
        }
        let ahead = full_at.saturating_sub(now);
        if ahead > self.tolerance { Err(self.too_many(ahead)) } else { Ok(full_at.saturating_add(self.interval)) }
    }

    #[inline]
    fn admit(&self, context: &mut Context<'_>, full_at: u64) -> Flow {
        if self.report == Report::Always {
            self.report(context, full_at);
        }
        Flow::Continue
    }

    #[inline(never)]
    fn report(&self, context: &mut Context<'_>, full_at: u64) {
        for (name, value) in self.report_headers(full_at.saturating_sub(context.inputs.now)) {
            context.facts.rare().response.set(context.step, &Name::built_in(name), &header::Value::number(value));
        }
    }

    #[cold]
    #[inline(never)]
    fn too_many(&self, ahead: u64) -> Denial {
        let wait = self.wait(ahead);
        let mut response = Response::problem(429, "too many requests").with_header("retry-after", &wait.to_string());
        if self.report != Report::Never {
            for (name, value) in self.report_headers(ahead) {
                response = response.with_header(name, &value.to_string());
            }
        }
        Denial { reason: "limit_exceeded", response }
    }

    /// In how many seconds an empty bucket that will be full `ahead` from now has a token.
    fn wait(&self, ahead: u64) -> u64 {
        ahead.saturating_sub(self.tolerance).div_ceil(SECOND).max(1)
    }

    /// The headers that report a bucket that will be full `ahead` from now. `RateLimit-Reset` is the time until then
    /// or, if no token is left, until the next token comes, as in `Retry-After`.
    fn report_headers(&self, ahead: u64) -> [(&'static str, u64); 3] {
        let left = self.capacity.saturating_sub(ahead).checked_div(self.interval).unwrap_or_default();
        let reset = if left == 0 { self.wait(ahead) } else { ahead.div_ceil(SECOND) };
        [("ratelimit-limit", self.limit.into()), ("ratelimit-remaining", left), ("ratelimit-reset", reset)]
    }
}

/// The hash of the request's key, which selects the bucket. It is a digest, so that a caller cannot choose another's
/// bucket.
#[inline(never)]
fn hash(key: &Expression, context: &Context<'_>) -> Result<u64, Denial> {
    let value = key.evaluate(context, context.budget).map_err(|error| unevaluated(&error, "key_failed"))?;
    let digest = match value {
        Value::String(text) => {
            context.budget.digest(text.len())?;
            Sha256::digest(text.as_bytes())
        }
        Value::Int(number) => Sha256::digest(number.to_le_bytes()),
        Value::Uint(number) => Sha256::digest(number.to_le_bytes()),
        Value::Bool(truth) => Sha256::digest([u8::from(truth)]),
        Value::Bytes(bytes) => {
            context.budget.digest(bytes.len())?;
            Sha256::digest(&bytes)
        }
        _ => return Err(failure("key_failed")),
    };
    Ok(digest.split_first_chunk::<8>().map_or(0, |(first, _)| u64::from_le_bytes(*first)))
}

fn in_range(what: &'static str, value: u64, least: u64, most: u64) -> Result<u64, LoadError> {
    if (least..=most).contains(&value) { Ok(value) } else { Err(LoadError::Range { what, least, most, value }) }
}

/// A bucket in a shared value: its key's hash, and when it will be full.
#[inline]
fn decode(bucket: [u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(bucket);
    [number as u64, (number >> 64) as u64]
}

#[inline]
fn encode([hash, full_at]: [u64; 2]) -> [u8; 16] {
    (u128::from(full_at) << 64 | u128::from(hash)).to_le_bytes()
}

/// A few buckets in one shared value: pairs of a key's hash and the time at which its bucket is full.
struct BucketSet(SmallVec<[(u64, u64); 1]>);

impl BucketSet {
    /// Decodes a shared value. An incomplete pair is dropped: only another version of this code can have written it.
    fn decode(value: &[u8]) -> Self {
        let (pairs, _) = value.as_chunks();
        Self(pairs.iter().map(|pair| decode(*pair).into()).collect())
    }

    fn encode(&self) -> SharedValue {
        self.0.iter().flat_map(|(hash, full_at)| encode([*hash, *full_at])).collect()
    }

    fn full_at(&self, hash: u64) -> u64 {
        self.0.iter().find(|(candidate, _)| *candidate == hash).map_or(0, |(_, full_at)| *full_at)
    }

    fn put(&mut self, hash: u64, full_at: u64, now: u64) {
        self.0.retain(|(candidate, full_at)| *candidate != hash && *full_at > now);
        if self.0.len() >= SET_SIZE {
            let closest = self.0.iter().enumerate().min_by_key(|(_, (_, full_at))| *full_at);
            if let Some((place, _)) = closest {
                self.0.remove(place);
            }
        }
        self.0.push((hash, full_at));
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_drops_what_is_no_pair() {
        let mut set = BucketSet::decode(&[1, 2, 3]);
        set.put(7, 100, 0);
        set.put(8, 200, 0);
        let read = BucketSet::decode(&set.encode());
        assert_eq!((read.full_at(7), read.full_at(8), read.full_at(9)), (100, 200, 0));
    }

    fn limit(requests: u64, per: u64, burst: u64) -> RateLimit {
        let interval = per / requests;
        RateLimit {
            prefix: "p".into(),
            interval,
            tolerance: interval * (burst - 1),
            capacity: interval * burst,
            key: None,
            sets: 1,
            limit: requests.try_into().unwrap(),
            report: Report::Always,
        }
    }

    #[test]
    fn is_never_further_ahead_than_its_own_limit_allows() {
        let (hour, now) = (3600 * SECOND, 1_000_000 * SECOND);
        let (slow, fast) = (limit(2, hour, 2), limit(1000, SECOND, 1000));
        let empty = slow.fill(now, slow.fill(now, 0).unwrap()).unwrap();
        assert!(slow.fill(now, empty).is_err(), "the slow limit is used up");
        let full_at = fast.fill(now, empty).unwrap();
        assert_eq!(full_at, now + SECOND, "one token was left, and is gone");
        assert!(fast.fill(now, full_at).is_err());
        assert!(fast.fill(now + fast.interval, full_at).is_ok());
    }

    #[test]
    fn forgives_a_clock_that_jumps_back() {
        let (limit, now) = (limit(2, 10 * SECOND, 2), 1_000_000 * SECOND);
        let full_at = limit.fill(now, limit.fill(now, 0).unwrap()).unwrap();
        let earlier = now - 3600 * SECOND;
        let full_at = limit.fill(earlier, full_at).unwrap();
        assert!(limit.fill(earlier, full_at).is_err() && limit.fill(earlier + limit.interval, full_at).is_ok());
    }

    #[test]
    fn says_the_same_time_in_both_headers() {
        let limit = limit(3, 3600 * SECOND, 3);
        for ahead in [limit.tolerance + 1, limit.tolerance + SECOND / 2, limit.tolerance + 700 * SECOND, limit.capacity]
        {
            let denial = limit.too_many(ahead);
            let header = |name: &str| {
                let found = denial.response.headers.iter().find(|(known, _)| &**known == name);
                found.map(|(_, value)| value.to_string()).unwrap()
            };
            assert_eq!(header("retry-after"), header("ratelimit-reset"), "{ahead}");
        }
        let [_, left, reset] = limit.report_headers(limit.interval).map(|(_, value)| value);
        assert_eq!((left, reset), (2, 1200));
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
