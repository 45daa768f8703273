//! `hmacAuth`: admits a request that a consumer has signed with its secret: RFC 9421 with `hmac-sha256`, RFC 9530 for the
//! body.
//!
//! The signature is checked before the body is asked for, so that nobody without a key has a body buffered. Signatures
//! that were admitted are kept in shared data until they are too old, a few hundred to a value, changed by
//! compare-and-swap; the values are created when the plan is loaded, so that even two workers at once admit one only once.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;
use sha2::{Digest, Sha256};

use super::{Context, Flow, exhausted, failure};
use crate::{
    budget::{self, Exhausted},
    event::{Needs, Phase},
    host::{Host, SharedValue},
    message_signature::{Message, NOBODY, Problem, Signature, is_digest_of},
    plan::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    text::date,
    verdict::{Denial, Response},
};

const SECOND: u64 = 1_000_000_000;
/// How many values the signatures that were seen are spread over, and how many each holds.
const SETS: u64 = 256;
const SET_SIZE: usize = 256;
const MOST_TRIES: u32 = 64;
/// A step that has asked for the body.
const ASKED: u32 = 1 << 16;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "hmacAuth",
    about: "Admits a request that a consumer has signed as HTTP Message Signatures says (RFC 9421, `hmac-sha256`), with \
            `Content-Digest` (RFC 9530, `sha-256` or `sha-512`) for a body. The `keyid` names a key of a `Consumer` \
            (`spec.hmac`), whose secret the filter must know to check a signature: unlike other credentials it is part of the \
            plan as it is, and shown nowhere. Understood are header fields and `@method`, `@target-uri`, `@authority`, \
            `@scheme`, `@request-target`, `@path` and `@query`; components with parameters are refused.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional(
                "components",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "What a signature must cover at the least. `@target-uri` covers `@scheme`, `@authority`, `@path` and `@query`.",
            )
            .or("[\"@method\", \"@authority\", \"@path\", \"@query\"]"),
            Field::optional(
                "label",
                Kind::Text,
                "Which signature counts if a request has several; without it, a request must have one.",
            ),
            Field::optional("window", Kind::Duration, "How old a signature may be.").or("5m"),
            Field::optional("clockSkew", Kind::Duration, "How far in the future a signature may be made.").or("30s"),
            Field::optional(
                "requireDate",
                Kind::Boolean,
                "Whether a signature must say when it was made: by `created`, or by covering `date`.",
            )
            .or("true"),
            Field::optional(
                "requireDigest",
                Kind::Boolean,
                "Whether a body must be covered by `content-digest`, which is checked. If not, bodies are not looked at.",
            )
            .or("true"),
            Field::optional(
                "refuseReplays",
                Kind::Boolean,
                "Whether a signature is admitted only once: the last 65536 are remembered for `window`, across all workers.",
            )
            .or("true"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "401", reason: "signature_missing", when: "no signature, or none of this `label`" },
        Ending { status: "401", reason: "signature_malformed", when: "headers that are not as RFC 9421 wants them" },
        Ending { status: "401", reason: "signature_ambiguous", when: "several signatures, and no `label`" },
        Ending { status: "401", reason: "component_unsupported", when: "a covered component that is not understood" },
        Ending { status: "401", reason: "component_missing", when: "`components` are not covered, or a covered one is absent" },
        Ending { status: "401", reason: "algorithm_unsupported", when: "`alg` is another than `hmac-sha256`" },
        Ending { status: "401", reason: "key_unknown", when: "no consumer has this `keyid`, or there is none" },
        Ending { status: "401", reason: "signature_wrong", when: "the signature is not that of this request and this key" },
        Ending { status: "401", reason: "date_missing", when: "nothing says when the signature was made" },
        Ending { status: "401", reason: "signature_expired", when: "it is older than `window`, or `expires` is past" },
        Ending { status: "401", reason: "signature_early", when: "it is of a later time than `clockSkew` from now" },
        Ending { status: "401", reason: "digest_missing", when: "a body that the signature does not cover" },
        Ending { status: "401", reason: "digest_wrong", when: "`Content-Digest` is not that of the body" },
        Ending { status: "401", reason: "signature_replayed", when: "the signature has been admitted before" },
        Ending { status: "500", reason: "replays_contended", when: "it could not be remembered (a failure)" },
    ],
    example: "\
- policy: hmacAuth
  params:
    components: [\"@method\", \"@target-uri\", content-type]
    window: 1m
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct HmacAuth {
    components: Vec<Arc<str>>,
    label: Option<Arc<str>>,
    window: u64,
    skew: u64,
    require_date: bool,
    require_digest: bool,
    /// What the names of the values start with that remember signatures, if they are remembered.
    replays: Option<String>,
}

impl Message for &Context<'_> {
    fn values(&self, name: &str) -> Vec<&[u8]> {
        self.request_header(name).into_vec()
    }
}

impl HmacAuth {
    pub(crate) fn load(wire: &wire::HmacAuth, strings: &Strings) -> Result<Self, LoadError> {
        let components = wire.components.iter().map(|name| strings.get(*name)).collect::<Result<_, _>>()?;
        let label = strings.get(wire.label)?;
        let replays = strings.get(wire.replays)?;
        Ok(Self {
            components,
            label: (!label.is_empty()).then_some(label),
            window: wire.window_ns,
            skew: wire.skew_ns,
            require_date: wire.require_date,
            require_digest: wire.require_digest,
            replays: (!replays.is_empty()).then(|| format!("postern.signature/{replays}/")),
        })
    }

    pub(crate) fn needs() -> Needs {
        Needs::REQUEST_HEADERS.union(Needs::NOW)
    }

    pub(crate) fn shared_keys(&self) -> Vec<Arc<str>> {
        (0..SETS).filter_map(|set| self.set_key(set)).collect()
    }

    fn set_key(&self, hash: u64) -> Option<Arc<str>> {
        let set = hash.checked_rem(SETS).unwrap_or_default();
        self.replays.as_ref().map(|prefix| [prefix.as_str(), &set.to_string()].concat().into())
    }

    #[inline(never)]
    pub(crate) fn run(&self, context: &mut Context<'_>) -> Flow {
        let checked = match context.memory.tries {
            ASKED => self.check_digest(context),
            _ => self.check(context),
        };
        match checked {
            Err(budget::REASON) => Flow::Fail(exhausted()),
            Err(reason) => deny(reason),
            Ok(()) if self.require_digest && context.memory.tries != ASKED => {
                context.memory.tries = ASKED;
                Flow::Want(Needs::BODY)
            }
            Ok(()) => self.admit(context),
        }
    }

    /// Everything but the body; what comes of it is kept in the step's memory.
    fn check(&self, context: &mut Context<'_>) -> Result<(), &'static str> {
        let message = &*context;
        let signature = Signature::find(&message, self.label.as_deref()).map_err(reason)?;
        if !self.components.iter().all(|component| signature.covers(component)) {
            return Err("component_missing");
        }
        if signature.text("alg").is_some_and(|algorithm| algorithm != "hmac-sha256") {
            return Err("algorithm_unsupported");
        }
        let base = signature.base(&message).map_err(reason)?;
        context.budget.digest(base.len()).map_err(|Exhausted| budget::REASON)?;
        let key = signature.text("keyid").and_then(|id| context.plan.consumers().by_hmac_key(id));
        let right = signature.is_made_with(key.map_or(NOBODY, |key| key.secret()), &base);
        let consumer = Arc::clone(key.ok_or("key_unknown")?.consumer());
        if !right {
            return Err("signature_wrong");
        }
        let made = self.check_time(message, &signature)?;
        let digest = Sha256::digest(&signature.code);
        let hash = digest.split_first_chunk::<8>().map_or(0, |(first, _)| u64::from_le_bytes(*first));
        context.memory.numbers = [hash, made.saturating_add(self.window).saturating_add(SECOND)];
        context.memory.consumer = Some(consumer);
        context.memory.covers_digest = signature.covers("content-digest");
        Ok(())
    }

    /// The earliest time that a signature names, which must be within the window.
    fn check_time(&self, message: &Context<'_>, signature: &Signature) -> Result<u64, &'static str> {
        let now = message.inputs.now;
        if signature.integer("expires").is_some_and(|expires| nanoseconds(expires) <= now) {
            return Err("signature_expired");
        }
        let mut times: Vec<_> = signature.integer("created").map(nanoseconds).into_iter().collect();
        if signature.covers("date") {
            let lines = message.request_header("date");
            let date = if let [line] = lines.as_slice() { date::read(line) } else { None };
            times.push(nanoseconds(date.ok_or("signature_malformed")?));
        }
        if times.iter().any(|time| time.saturating_add(self.window) < now) {
            return Err("signature_expired");
        }
        if times.iter().any(|time| *time > now.saturating_add(self.skew)) {
            return Err("signature_early");
        }
        match times.into_iter().max() {
            Some(made) => Ok(made),
            None if self.require_date => Err("date_missing"),
            None => Ok(now),
        }
    }

    fn check_digest(&self, context: &Context<'_>) -> Result<(), &'static str> {
        let body = context.body();
        // Two algorithms at the most.
        context.allow_body();
        context.budget.digest(body.len().saturating_mul(2)).map_err(|Exhausted| budget::REASON)?;
        match context.memory.covers_digest {
            true if is_digest_of(&context.request_header("content-digest"), body) => Ok(()),
            true => Err("digest_wrong"),
            false if body.is_empty() => Ok(()),
            false => Err("digest_missing"),
        }
    }

    /// Admits the signature, once if signatures are remembered.
    fn admit(&self, context: &mut Context<'_>) -> Flow {
        let [hash, until] = context.memory.numbers;
        if let Some(key) = self.set_key(hash) {
            let now = context.inputs.now;
            match remember(context.host, &key, hash, until, now) {
                None => return Flow::Fail(failure("replays_contended")),
                Some(false) => return deny("signature_replayed"),
                Some(true) => {}
            }
        }
        context.facts.consumer = context.memory.consumer.take();
        Flow::Continue
    }
}

/// Remembers a signature; `false` if it was remembered before, `None` if it cannot be remembered.
fn remember(host: &mut dyn Host, key: &Arc<str>, hash: u64, until: u64, now: u64) -> Option<bool> {
    for _ in 0..MOST_TRIES {
        let (value, version) = host.load(key).ok()?;
        let mut seen = Seen::decode(&value, now);
        if seen.0.iter().any(|(other, _)| *other == hash) {
            return Some(false);
        }
        seen.put(hash, until);
        if host.store(key, seen.encode(), version).ok()? {
            return Some(true);
        }
    }
    None
}

/// Signatures that were admitted, and until when they are remembered.
struct Seen(Vec<(u64, u64)>);

impl Seen {
    /// Those that are still worth remembering.
    fn decode(value: &[u8], now: u64) -> Self {
        let (numbers, _) = value.as_chunks::<8>();
        let (pairs, _) = numbers.as_chunks::<2>();
        let pair = |[hash, until]: &[[u8; 8]; 2]| (u64::from_le_bytes(*hash), u64::from_le_bytes(*until));
        Self(pairs.iter().map(pair).filter(|(_, until)| *until > now).collect())
    }

    fn encode(&self) -> SharedValue {
        self.0.iter().flat_map(|(hash, until)| [hash.to_le_bytes(), until.to_le_bytes()]).flatten().collect()
    }

    /// If there is no room, the one goes that would be forgotten first.
    fn put(&mut self, hash: u64, until: u64) {
        if self.0.len() >= SET_SIZE {
            self.0.sort_unstable_by_key(|(_, until)| *until);
            self.0.remove(0);
        }
        self.0.push((hash, until));
    }
}

/// Seconds as nanoseconds; a time before 1970 is long ago.
fn nanoseconds(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(SECOND)
}

const fn reason(problem: Problem) -> &'static str {
    match problem {
        Problem::Missing => "signature_missing",
        Problem::Malformed => "signature_malformed",
        Problem::Ambiguous => "signature_ambiguous",
        Problem::Unsupported => "component_unsupported",
        Problem::Absent => "component_missing",
    }
}

/// One answer for every cause: a caller must not learn from it how far it came.
fn deny(reason: &'static str) -> Flow {
    let response = Response::problem(401, "a valid signature is required").with_header("www-authenticate", "Signature");
    Flow::Deny(Denial { reason, response })
}
