//! `hmacAuth`: admits a request only if a consumer has signed it with its secret: RFC 9421 with `hmac-sha256`, and RFC
//! 9530 for the body.
//!
//! The signature is checked before the body is asked for, so that a body is buffered only for those who have a key.
//! Admitted signatures are remembered for each key ([`Replays`](crate::replays::Replays)), whatever the step and the
//! route.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known, State, exhausted, failure};
use crate::{
    budget::{self, Exhausted},
    consumers::Consumer,
    event::{Needs, Phase},
    load_error::LoadError,
    message_signature::{Message, NOBODY, Problem, Signature, is_digest_of},
    replays::{Demand, MOST_SIGNATURES, Remembered},
    schema::{Ending, Field, Kind, Object, PolicySchema},
    text::date,
    verdict::{Denial, Response},
};

const SECOND: u64 = 1_000_000_000;

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
                "Whether a signature is admitted only once, whatever the route and the worker: signatures are remembered by \
                 their keys for the longest `window` among the steps of an Envoy. One without a time can be admitted again \
                 after that.",
            )
            .or("true"),
            Field::optional(
                "replayRate",
                Kind::Integer { min: 1, max: 100_000 },
                "How many requests a second one key signs at the most, over `window`: so many signatures are remembered, \
                 262144 of a key at the most. None is forgotten while it is good: if there is no room, the step fails. \
                 Where a long `window` leaves room for less than 100, the default is what there is room for.",
            )
            .or("100"),
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
        Ending { status: "500", reason: "replay_memory_full", when: "more signatures than `replayRate` says (a failure)" },
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
    /// How many signatures of one key it wants remembered; 0 if replays are admitted.
    capacity: u32,
}

/// What is known of the signature of a message.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// A good signature, while the run waits for the body that it may cover.
    checked: Option<Signed>,
    /// The signature that admitted the message. It is kept for later steps, so that they do not take it for a replay.
    admitted: Option<u64>,
}

impl State for Admission {
    /// Drops `checked` only if it is there, since dropping costs a call.
    #[inline]
    fn leave(&mut self) {
        if self.checked.is_some() {
            self.checked = None;
        }
    }
}

/// The contents of a good signature.
#[derive(Debug)]
struct Signed {
    hash: u64,
    /// The time when it was made.
    made: u64,
    /// The name of the key.
    key: Option<Arc<str>>,
    consumer: Arc<Consumer>,
    /// Whether it covers the body's digest.
    covers_digest: bool,
}

impl Message for &Context<'_> {
    fn values(&self, name: &str) -> Vec<&[u8]> {
        self.request_header(name).into_vec()
    }
}

impl BuiltIn for HmacAuth {
    type Wire = wire::HmacAuth;
    type State = Admission;

    fn load(wire: &wire::HmacAuth, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let components = wire.components.iter().map(|name| strings.get(*name)).collect::<Result<_, _>>()?;
        let label = strings.get(wire.label)?;
        let most = u64::from(MOST_SIGNATURES);
        if u64::from(wire.replay_capacity) > most {
            let value = wire.replay_capacity.into();
            return Err(LoadError::Range { what: "replay_capacity", least: 0, most, value });
        }
        Ok(Self {
            components,
            label: (!label.is_empty()).then_some(label),
            window: wire.window_ns,
            skew: wire.skew_ns,
            require_date: wire.require_date,
            require_digest: wire.require_digest,
            capacity: wire.replay_capacity,
        })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS.union(Needs::NOW)
    }

    /// The body is wanted only once the signature is known to be good.
    fn may_want_body(&self) -> bool {
        self.require_digest
    }

    /// How long and how many signatures are to be remembered. `None` if replays are admitted.
    fn replays(&self) -> Option<Demand> {
        (self.capacity > 0).then_some(Demand { window: self.window, capacity: self.capacity })
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, admission: &mut Admission) -> Flow {
        let checked = match admission.checked.take() {
            Some(signed) => check_digest(context, &signed).map(|()| (signed, true)),
            None => self.check(context).map(|signed| (signed, false)),
        };
        match checked {
            Err(budget::REASON) => Flow::Fail(exhausted()),
            Err(reason) => deny(reason),
            Ok((signed, false)) if self.require_digest => {
                admission.checked = Some(signed);
                Flow::Want(Needs::BODY)
            }
            Ok((signed, _)) => self.admit(context, signed, &mut admission.admitted),
        }
    }
}

impl HmacAuth {
    /// Checks everything but the body.
    fn check(&self, message: &Context<'_>) -> Result<Signed, &'static str> {
        let signature = Signature::find(&message, self.label.as_deref()).map_err(reason)?;
        if !self.components.iter().all(|component| signature.covers(component)) {
            return Err("component_missing");
        }
        if signature.text("alg").is_some_and(|algorithm| algorithm != "hmac-sha256") {
            return Err("algorithm_unsupported");
        }
        let base = signature.base(&message).map_err(reason)?;
        message.budget.digest(base.len()).map_err(|Exhausted| budget::REASON)?;
        let key = signature.text("keyid").and_then(|id| message.directory.consumers.by_hmac_key(id));
        let right = signature.is_made_with(key.map_or(NOBODY, |key| key.secret()), &base);
        let consumer = Arc::clone(key.ok_or("key_unknown")?.consumer());
        if !right {
            return Err("signature_wrong");
        }
        let made = self.check_time(message, &signature)?;
        let hash = key.map_or(0, |key| key.replays().hash(&signature.code));
        let key = signature.text("keyid").map(Arc::from);
        Ok(Signed { hash, made, key, consumer, covers_digest: signature.covers("content-digest") })
    }

    /// The earliest time that a signature names. `Err` if it is not within the window.
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

    /// Admits the signature, unless it was admitted before and replays are refused. `admitted` is the signature that
    /// another such step of this chain has admitted the message by.
    fn admit(&self, context: &mut Context<'_>, signed: Signed, admitted: &mut Option<u64>) -> Flow {
        let Signed { hash, made, key, consumer, .. } = signed;
        if self.capacity > 0 && *admitted != Some(hash) {
            let key = key.as_deref().and_then(|id| context.directory.consumers.by_hmac_key(id));
            let Some(key) = key else { return Flow::Fail(failure("replays_contended")) };
            match context.directory.replays.remember(context.host, key.replays(), hash, made, context.inputs.now) {
                Remembered::New => *admitted = Some(hash),
                Remembered::Before => return deny("signature_replayed"),
                Remembered::Full => return Flow::Fail(failure("replay_memory_full")),
                Remembered::Unknown => return Flow::Fail(failure("replays_contended")),
            }
        }
        context.facts.consumer = Some(consumer);
        Flow::Continue
    }
}

fn check_digest(context: &Context<'_>, signed: &Signed) -> Result<(), &'static str> {
    let body = context.body();
    // Two algorithms at the most.
    context.allow_body();
    context.budget.digest(body.len().saturating_mul(2)).map_err(|Exhausted| budget::REASON)?;
    match signed.covers_digest {
        true if is_digest_of(&context.request_header("content-digest"), body) => Ok(()),
        true => Err("digest_wrong"),
        false if body.is_empty() => Ok(()),
        false => Err("digest_missing"),
    }
}

/// Seconds as nanoseconds. A time before 1970 is 0.
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

/// One answer for every cause: a caller must not learn from it which check failed.
fn deny(reason: &'static str) -> Flow {
    let response = Response::problem(401, "a valid signature is required").with_header("www-authenticate", "Signature");
    Flow::Deny(Denial { reason, response })
}
