//! `auditLog`: a record of every request, whatever is decided.
//!
//! Users write it as a step, but no other step can keep it from running: it belongs to the `Chain` as a whole, and a
//! run makes its record when the decision is known.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{Context, Source, needs_of};
use crate::{
    attributes,
    cel::{Attribute, Attributes as _, Expression, Key, Map, Value},
    event::{Needs, Phase, Property},
    load_error::LoadError,
    record::{Collector, Destinations, Draft, Record, lossy},
    redaction::{Redacted, Redaction},
    schema::{Field, Kind, Object, PolicySchema},
    strings::Strings,
    text::split_path,
    verdict::{Decision, Note, Verdict},
};

/// The unit of samples: a sample is a number of records in this many.
pub const SAMPLE_OF: u32 = 1_000_000;
/// The fields that a record has by default, and that a user can omit.
pub const OMITTABLE: &[&str] = &["method", "path", "status", "source", "consumer", "route", "plan"];
/// The names of fields that a record may have, which a user's own field cannot have.
pub const RESERVED: &[&str] = &[
    "audit",
    "time",
    "verdict",
    "step",
    "reason",
    "notes",
    "onFailure",
    "skippedSteps",
    "headers",
    "conditionFailed",
    "cut",
    "method",
    "path",
    "status",
    "source",
    "consumer",
    "route",
    "plan",
];

const HEADER_LIST: Kind = Kind::List { item: &Kind::HeaderName, at_least: 1 };
const TEXT_LIST: Kind = Kind::List { item: &Kind::Text, at_least: 1 };

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "auditLog",
    about: "Records every request: a line of JSON to Envoy's log or by HTTP to a collector, a message by gRPC to another, \
            or any of these, and holds up nobody. \
            Its place in the chain does not matter: whatever a step does, denials above all, is recorded. `when` is \
            evaluated when the record is made; if that fails, the record is written and has `conditionFailed`. \
            `mode: shadow` and `onFailure` change nothing. A record has `audit` (the step's name), `time`, `route`, \
            `plan` (its label: `postern revisions --plan` says what it was), `verdict`, `step` and `reason` (of a denial), `notes` (what was not enforced), `onFailure` (what the last \
            step that failed went by, if the chain went on) and `skippedSteps` (those that it left out), `consumer`, \
            `method`, `path` (without its query), `status` and `source`, as far as they are known; it is of at most 8 KiB, \
            and if something in it had to be cut to 1 KiB or left out, it has `cut`. Credentials are never shown: what \
            the headers `authorization`, `cookie`, `proxy-authorization`, `set-cookie`, `x-api-key`, `x-auth-token` and \
            `x-csrf-token`, usual parameters of the query (`access_token`, `token`, `api_key`, `password` and the like) \
            and the places where `apiKeyAuth` and `jwtValidation` of the same chain look hold becomes `[redacted]`, also \
            in `fields`.",
    phases: &[Phase::Request, Phase::Response],
    params: Object {
        fields: &[
            Field::optional("to", Kind::Object(&TO), "Where records go.").or("{ log: true }"),
            Field::optional(
                "sample",
                Kind::Percent,
                "For how many of 100 requests a record is written, such as `10` or `0.1`.",
            )
            .or("100"),
            Field::optional(
                "sampleDenials",
                Kind::Boolean,
                "Whether `sample` is for denials too; else each of them is recorded.",
            )
            .or("false"),
            Field::optional(
                "at",
                Kind::Choice(&["response", "request"]),
                "When an admitted request is recorded: with its response, or as soon as it is admitted, without a \
                 status. Only in a request chain.",
            )
            .or("response"),
            Field::optional(
                "fields",
                Kind::Map { key: &Kind::Name, value: &Kind::Expression },
                "Further fields; `null` where a value cannot be had. Not `request.body`.",
            ),
            Field::optional("headers", HEADER_LIST, "Headers of the request to show, as they came, in `headers`."),
            Field::optional("omit", Kind::List { item: &Kind::Choice(OMITTABLE), at_least: 1 }, "Fields to leave out."),
            Field::optional("redact", Kind::Object(&REDACT), "What else becomes `[redacted]`."),
        ],
        exactly_one_of: &[],
    },
    endings: &[],
    example: "\
- policy: auditLog
  params:
    to: { log: true, http: { service: collector, path: /records } }
    sample: 0.5
    fields: { tenant: \"request.headers['x-tenant']\" }
    headers: [user-agent]
    redact: { query: [session] }
- policy: apiKeyAuth
  params: { header: x-api-key }
",
};

const TO: Object = Object {
    fields: &[
        Field::optional("log", Kind::Boolean, "Envoy's log, at the level `info`.").or("false"),
        Field::optional(
            "http",
            Kind::Object(&HTTP),
            "A collector: a POST of `application/x-ndjson` for each record. Its answer is not waited for, and a record \
             that it does not take in 5 seconds is lost.",
        ),
        Field::optional(
            "grpc",
            Kind::Object(&GRPC),
            "A collector that serves `postern.audit.v1.AuditLog` (`proto/postern/audit/v1/audit.proto`): a call of \
             `Record` for each record. Its answer is not waited for, and a record that it does not take in 5 seconds is \
             lost.",
        ),
    ],
    exactly_one_of: &[],
};

const HTTP: Object = Object {
    fields: &[
        Field::required("service", Kind::Name, "The `Service` resource."),
        Field::optional("path", Kind::Path, "The path.").or("/"),
    ],
    exactly_one_of: &[],
};

const GRPC: Object = Object {
    fields: &[Field::required("service", Kind::Name, "The `Service` resource; its `protocol` is `grpc`.")],
    exactly_one_of: &[],
};

const REDACT: Object = Object {
    fields: &[
        Field::optional("headers", HEADER_LIST, "Headers, of requests and responses."),
        Field::optional("query", TEXT_LIST, "Parameters of the query."),
        Field::optional("claims", TEXT_LIST, "Claims of the caller's token."),
    ],
    exactly_one_of: &[],
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct AuditLog {
    name: Arc<str>,
    when: Option<Arc<Expression>>,
    /// How many of [`SAMPLE_OF`] messages are recorded.
    sample: u32,
    sample_denials: bool,
    at_request: bool,
    fields: Vec<(Arc<str>, Arc<Expression>)>,
    headers: Vec<Arc<str>>,
    omit: Vec<Arc<str>>,
    redaction: Redaction,
    destinations: Destinations,
    needs: Needs,
}

impl AuditLog {
    pub(crate) fn load(
        wire: &wire::AuditLog,
        name: &Arc<str>,
        when: Option<Arc<Expression>>,
        strings: &Strings,
    ) -> Result<Self, LoadError> {
        if wire.sample > SAMPLE_OF {
            let (most, value) = (SAMPLE_OF.into(), wire.sample.into());
            return Err(LoadError::Range { what: "sample", least: 0, most, value });
        }
        let texts = |list: &[u32]| list.iter().map(|text| strings.get(*text)).collect::<Result<Vec<_>, _>>();
        let names = |list: &[u32]| list.iter().map(|name| strings.header_name(*name)).collect::<Result<Vec<_>, _>>();
        let field = |field: &wire::AuditField| {
            let expression = strings.expression(field.expression)?.ok_or(LoadError::Missing("expression"))?;
            Ok((strings.name(field.name)?, expression))
        };
        let collector = |wire: &wire::AuditCollector| {
            let (service, path) = (strings.name(wire.service)?, strings.header_value(wire.path)?);
            Ok::<_, LoadError>(Arc::new(Collector { service, path }))
        };
        let mut loaded = Self {
            name: Arc::clone(name),
            when,
            sample: wire.sample,
            sample_denials: wire.sample_denials,
            at_request: wire.at_request,
            fields: wire.fields.iter().map(field).collect::<Result<_, LoadError>>()?,
            headers: names(&wire.headers)?,
            omit: texts(&wire.omit)?,
            redaction: Redaction {
                headers: names(&wire.redact_headers)?,
                query: texts(&wire.redact_query)?,
                claims: texts(&wire.redact_claims)?,
            },
            destinations: Destinations {
                log: wire.log,
                collector: wire.collector.as_ref().map(collector).transpose()?,
                grpc: wire.grpc.as_ref().map(|wire| strings.name(wire.service)).transpose()?,
            },
            needs: Needs::NONE,
        };
        loaded.needs = loaded.reads();
        // It would have to wait for what a caller may send slowly, or not at all.
        if loaded.needs.has(Needs::BODY) { Err(LoadError::AuditedBody) } else { Ok(loaded) }
    }

    fn reads(&self) -> Needs {
        let base = Needs::REQUEST_HEADERS.union(Needs::RESPONSE_HEADERS).union(Needs::NOW);
        let mut needs = base.union(needs_of(self.fields.iter().map(|(_, expression)| expression)));
        if let Some(when) = &self.when {
            needs = needs.union(attributes::needs(when));
        }
        needs.union(Needs::of(Property::SourceAddress).when(self.shows("source")))
    }

    /// Redacts the place where a step of the same chain looks for a credential. Cookies are always redacted.
    pub(crate) fn hide(&mut self, credential: &Source) {
        match credential {
            Source::Header(name) => self.redaction.headers.push(Arc::clone(name)),
            Source::Query(name) => self.redaction.query.push(Arc::clone(name)),
            Source::Cookie(_) => {}
        }
    }

    /// The inputs of a record.
    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    /// Whether it records a message of this phase with this verdict.
    pub(crate) fn is_due(&self, phase: Phase, verdict: &Verdict) -> bool {
        match phase {
            Phase::Request => self.at_request || !matches!(verdict, Verdict::Continue(_)),
            Phase::Response => !self.at_request,
        }
    }

    /// Whether it records an admitted request with its response.
    pub(crate) fn waits(&self) -> bool {
        !self.at_request
    }

    /// The step's name.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether chance decides if a message with this verdict is recorded.
    pub(crate) fn is_sampled(&self, verdict: &Verdict) -> bool {
        let spared = matches!(verdict, Verdict::Deny(_)) && !self.sample_denials;
        self.sample < SAMPLE_OF && !spared
    }

    /// Whether a message with these random bytes is in the sample.
    pub(crate) fn is_hit(&self, random: [u8; 16]) -> bool {
        let [a, b, c, d, ..] = random;
        let scaled = u64::from(u32::from_le_bytes([a, b, c, d])).saturating_mul(SAMPLE_OF.into()) >> 32;
        scaled < u64::from(self.sample)
    }

    /// Makes the record, with notes and the names of the steps that were left out. `None` if `when` is false.
    pub(crate) fn record(
        &self,
        context: &Context<'_>,
        decision: &Decision,
        told: (&[Note], &[Value]),
    ) -> Option<Record> {
        let condition_failed = match self.when.as_ref().map(|when| when.test(context, context.budget)) {
            None | Some(Ok(true)) => false,
            Some(Ok(false)) => return None,
            Some(Err(_)) => true,
        };
        let mut draft = Draft::new(&self.name, &self.destinations);
        if let Ok(time) = context.attribute(Attribute::RequestTime) {
            draft.put("time", &time);
        }
        self.put_decision(&mut draft, context, decision, told);
        self.put_message(&mut draft, context);
        if condition_failed {
            draft.put("conditionFailed", &Value::Bool(true));
        }
        self.put_headers(&mut draft, context);
        let shown = Redacted { context, redaction: &self.redaction };
        for (name, expression) in &self.fields {
            draft.put_own(name, &expression.evaluate(&shown, context.budget).unwrap_or(Value::Null));
        }
        Some(draft.finish())
    }

    fn put_decision(
        &self,
        draft: &mut Draft<'_>,
        context: &Context<'_>,
        decision: &Decision,
        (notes, skipped): (&[Note], &[Value]),
    ) {
        let mut text = |name: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|_| self.shows(name)) {
                draft.put(name, &value.into());
            }
        };
        text("route", Some(context.route));
        text("plan", Some(&context.directory.label));
        text("verdict", Some(decision.verdict.word()));
        text("step", decision.step.as_deref());
        text("reason", decision.reason);
        text("consumer", decision.consumer.as_deref());
        if !notes.is_empty() {
            draft.put("notes", &Value::List(notes.iter().map(|note| note.pair().into()).collect()));
        }
        if let Some(action) = notes.iter().rev().find_map(Note::action) {
            draft.put("onFailure", &action.into());
        }
        if !skipped.is_empty() {
            draft.put("skippedSteps", &Value::List(skipped.iter().cloned().collect()));
        }
    }

    fn put_message(&self, draft: &mut Draft<'_>, context: &Context<'_>) {
        let request = |name| context.inputs.request_headers.values(name).next();
        let mut bytes = |name: &str, value: Option<&[u8]>| {
            if let Some(value) = value.filter(|_| self.shows(name)) {
                draft.put_bytes(name, value);
            }
        };
        bytes("method", request(":method"));
        bytes("path", request(":path").map(|path| split_path(path).0));
        let source = context.attribute(Attribute::SourceAddress).ok().filter(|_| self.shows("source"));
        if let Some(source) = source {
            draft.put("source", &source);
        }
        if let Some(status) = context.attribute(Attribute::ResponseCode).ok().filter(|_| self.shows("status")) {
            draft.put("status", &status);
        }
    }

    fn put_headers(&self, draft: &mut Draft<'_>, context: &Context<'_>) {
        let mut shown = Map::default();
        for name in &self.headers {
            let values: Vec<_> = context.inputs.request_headers.values(name).collect();
            if !values.is_empty() {
                let value = self.redaction.header(name, lossy(&values.join(&b","[..])));
                // No name is there twice.
                let _ = shown.insert(Key::String(Arc::clone(name)), value);
            }
        }
        if !shown.is_empty() {
            draft.put("headers", &shown.into());
        }
    }

    fn shows(&self, name: &str) -> bool {
        !self.omit.iter().any(|omitted| **omitted == *name)
    }
}
