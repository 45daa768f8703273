//! `jwtValidation`: admits a request that carries a JSON Web Token of an issuer. Its claims go to later steps
//! (`jwt.claims`) and to the upstream (headers), and one of them can name the consumer.

use std::{borrow::Cow, sync::Arc};

use memchr::memchr;
use postern_proto::plan::v1::{self as wire, jwt_validation::Source as Wire};

use super::{BuiltIn, Context, Flow, Known, source::Source};
use crate::{
    edited::HeaderEdits,
    event::{Needs, Phase},
    header::{self, HeaderUse, Name},
    json,
    jwt::{Issuer, Rules, Trouble, Verified, Verifier},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::{Strings, find},
    text::cookie,
    verdict::{Denial, Response},
};

const MILLISECOND: u64 = 1_000_000;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "jwtValidation",
    about: "Admits a request that carries a JSON Web Token (JWS, compact form) which an issuer signed.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional(
                "issuers",
                Kind::List { item: &Kind::Name, at_least: 1 },
                "The `Issuer` resources whose tokens count. Where there is only one, it need not be named.",
            ),
            Field::optional(
                "audiences",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "A token must be for one of these, beside what its issuer asks for.",
            ),
            Field::optional("header", Kind::EditedHeader(HeaderUse::Set), "The request header that carries the token.")
                .or("authorization")
                .unless(&["query", "cookie"]),
            Field::optional("query", Kind::Text, "The query parameter that carries the token instead."),
            Field::optional("cookie", Kind::HeaderName, "The cookie that carries the token instead."),
            Field::optional(
                "scheme",
                Kind::HeaderName,
                "The word before the token in the header; `Bearer` in `authorization`, none in another header.",
            ),
            Field::optional("forward", Kind::Boolean, "Whether the upstream gets the token; always with `query`.")
                .or("true"),
            Field::optional(
                "allowMissing",
                Kind::Boolean,
                "Whether a request without a token passes, with no claims. A token that is not good is refused still. Not \
                 inherited from a less specific step.",
            )
            .or("false")
            .not_inherited(),
            Field::optional("requireExpiry", Kind::Boolean, "Whether a token must have `exp`.").or("true"),
            Field::optional(
                "leeway",
                Kind::Duration,
                "How far clocks may be apart, at most 10m; not at all by default.",
            ),
            Field::optional("maxAge", Kind::Duration, "How long after `iat` a token is good, whatever `exp` says."),
            Field::optional(
                "requiredClaims",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "Claims that must be there, by name or by path (`realm_access.roles`).",
            ),
            Field::optional(
                "claimsToHeaders",
                Kind::Map { key: &Kind::Text, value: &Kind::EditedHeader(HeaderUse::Set) },
                "From claims to the headers that the upstream finds them in. What the caller sends there is removed. A claim that \
                 is empty, or has white space around it or control characters in it, is refused.",
            ),
            Field::optional(
                "consumer",
                Kind::Text,
                "The claim that names the `Consumer` which the caller is. A token that names none passes, without a consumer: \
                 a later step that asks for `consumer.name` refuses it with 403 (`consumer_unknown`), and so does a \
                 `roleCheck` with `groups` (`group_missing`).",
            ),
            Field::optional(
                "typ",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "What the token's header may say in `typ`, in any case and with or without `application/`; `none` stands for \
                 a token that does not say. Tokens for another use, such as `logout+jwt`, are refused by default.",
            )
            .or("[JWT, at+jwt, none]"),
            Field::optional("maxTokenSize", Kind::Size, "The longest token, at most 64KiB.").or("8KiB"),
            Field::optional("realm", Kind::HeaderValue, "What `WWW-Authenticate` calls what is protected.").or("api"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "401", reason: "token_missing", when: "no token, or one of another scheme" },
        Ending { status: "400", reason: "token_repeated", when: "more than one token" },
        Ending { status: "401", reason: "token_too_large", when: "the token is longer than `maxTokenSize`" },
        Ending {
            status: "401",
            reason: "token_malformed",
            when: "it is not a JWT in compact form, or says what no JWT may",
        },
        Ending { status: "401", reason: "algorithm_refused", when: "its algorithm is unknown, or `none`" },
        Ending { status: "401", reason: "type_refused", when: "its `typ` is none of those of `typ`" },
        Ending { status: "401", reason: "issuer_unknown", when: "its `iss` is none of the issuers" },
        Ending { status: "401", reason: "audience_wrong", when: "its `aud` has none of the audiences" },
        Ending { status: "401", reason: "token_expired", when: "`exp` or `maxAge` is past" },
        Ending { status: "401", reason: "token_premature", when: "`nbf` or `iat` is yet to come" },
        Ending { status: "401", reason: "claim_missing", when: "a required claim is missing, `exp` among them" },
        Ending {
            status: "401",
            reason: "claim_unfit",
            when: "a claim cannot be the header or consumer that it should be",
        },
        Ending { status: "401", reason: "key_unknown", when: "the issuer has no key of this `kid` for this algorithm" },
        Ending { status: "401", reason: "signature_wrong", when: "the signature is not the issuer's" },
        Ending {
            status: "503",
            reason: "keys_unavailable",
            when: "the issuer's keys could not be fetched (a failure)",
        },
    ],
    example: "\
- policy: jwtValidation
  params:
    issuers: [accounts]
    audiences: [https://api.example.com]
    claimsToHeaders: { sub: x-user-id }
- policy: roleCheck
  params: { scopes: ['orders:read'] }
",
};

/// The loaded step. It is larger than others, so it is boxed to keep every step small.
#[derive(Debug)]
pub(crate) struct JwtValidation(Box<Validation>);

#[derive(Debug)]
struct Validation {
    source: Source,
    /// The scheme that precedes a token in a header.
    scheme: Option<Arc<str>>,
    /// The header to remove, if the upstream must not get the token.
    removed: Option<Name>,
    optional: bool,
    max_size: usize,
    /// The headers that claims become, in the verifier's order.
    headers: Vec<Name>,
    verifier: Verifier,
    /// The value of `WWW-Authenticate` for a caller without a token.
    challenge: String,
}

impl BuiltIn for JwtValidation {
    type Wire = wire::JwtValidation;
    type State = ();

    fn load(wire: &wire::JwtValidation, Known { strings, issuers, .. }: Known<'_>) -> Result<Self, LoadError> {
        let source = match wire.source.as_ref().ok_or(LoadError::Missing("source"))? {
            Wire::Header(name) => Source::Header(strings.header_name(*name)?),
            Wire::Query(name) => Source::Query(strings.get(*name)?),
            Wire::Cookie(name) => Source::Cookie(strings.get(*name)?),
        };
        if wire.remove && matches!(source, Source::Query(_)) {
            // A path that a filter edits makes Envoy choose the route anew, past this chain.
            return Err(LoadError::Unfit { what: "source of a token to remove", text: "query".into() });
        }
        let removed = match wire.source {
            Some(Wire::Header(name)) => Some(strings.set_header(name)?),
            Some(Wire::Cookie(_)) => Some(Name::built_in("cookie")),
            _ => None,
        };
        let realm = strings.header_value(wire.realm)?;
        if realm.contains(['"', '\\']) {
            return Err(LoadError::Unfit { what: "realm", text: realm });
        }
        let headers = wire.claim_headers.iter().map(|header| strings.set_header(header.header));
        Ok(Self(Box::new(Validation {
            source,
            scheme: Some(strings.get(wire.scheme)?).filter(|scheme| !scheme.is_empty()),
            removed: removed.filter(|_| wire.remove),
            optional: wire.optional,
            max_size: usize::try_from(wire.max_size).unwrap_or(usize::MAX),
            headers: headers.collect::<Result<_, _>>()?,
            verifier: Verifier::new(rules(wire, strings, issuers)?)?,
            challenge: format!("Bearer realm=\"{realm}\""),
        })))
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS.union(Needs::NOW)
    }

    fn credential(&self) -> Option<&Source> {
        Some(&self.0.source)
    }

    fn edits(&self) -> HeaderEdits {
        HeaderEdits::none().editing(self.0.removed.iter().map(Name::get)).promising(&self.0.headers)
    }

    /// Tells it that nobody in its chain asks what a token says.
    fn leave_out_claims(&mut self) {
        self.0.verifier.leave_out_claims();
    }

    /// Removes the caller's own values of headers that only a token may set, whatever the result is.
    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let found: Result<Option<Arc<[u8]>>, _> =
            self.0.token(context).map(|token| token.map(|token| token.as_ref().into()));
        for header in &self.0.headers {
            context.edits.remove(context.step, header);
        }
        match found {
            Ok(Some(token)) => match self.0.find(context, token) {
                Ok(token) => self.0.admit(context, &token),
                Err(flow) => flow,
            },
            Ok(None) if self.0.optional => Flow::Continue,
            Ok(None) => Flow::Deny(self.0.unauthorized("token_missing", "")),
            Err("token_repeated") => Flow::Deny(self.0.repeated()),
            Err(reason) => Flow::Deny(self.0.refused(reason)),
        }
    }
}

impl Validation {
    /// The verified token: remembered, or checked now.
    fn find(&self, context: &mut Context<'_>, token: Arc<[u8]>) -> Result<Arc<Verified>, Flow> {
        let (now, key) = (context.inputs.now, self.verifier.key(token));
        if let Some(known) = context.host.recall(&key).filter(|known| known.is_good_at(now)) {
            return Ok(known);
        }
        context.budget.declare(json::cost(key.size()));
        let pending = self.verifier.examine(key, now).map_err(|trouble| match trouble {
            Trouble::Refused(reason) => Flow::Deny(self.refused(reason)),
            Trouble::KeysUnavailable => Flow::Fail(keys_unavailable()),
        })?;
        match pending.is_signed(|check| context.host.verify(check), context.budget) {
            Ok(true) => {}
            Ok(false) => return Err(Flow::Deny(self.refused("signature_wrong"))),
            Err(exhausted) => return Err(Flow::Fail(exhausted.into())),
        }
        context.host.remember(pending.entry());
        Ok(pending.into_verified())
    }

    /// The one token that the request carries.
    fn token<'a>(&self, context: &'a Context<'_>) -> Result<Option<Cow<'a, [u8]>>, &'static str> {
        let mut values = self.source.values(context);
        let value = match (values.len(), &self.source) {
            (0, _) => return Ok(None),
            (1, _) => values.pop().unwrap_or_default(),
            // Envoy joins the values of some headers before it shows them, and of others not.
            (_, Source::Header(_)) => Cow::Owned(values.join(&b","[..])),
            _ => return Err("token_repeated"),
        };
        let token = match (&self.scheme, value) {
            (Some(scheme), Cow::Borrowed(value)) => after_scheme(value, scheme).map(Cow::Borrowed),
            (Some(scheme), Cow::Owned(value)) => after_scheme(&value, scheme).map(|token| Cow::Owned(token.to_vec())),
            (None, value) => Some(value),
        };
        match token.filter(|token| !token.is_empty()) {
            Some(token) if memchr(b',', &token).is_some() => Err("token_repeated"),
            Some(token) if token.len() > self.max_size => Err("token_too_large"),
            token => Ok(token),
        }
    }

    fn admit(&self, context: &mut Context<'_>, token: &Verified) -> Flow {
        context.facts.claims = Some(Arc::clone(&token.claims));
        if let Some(header) = &self.removed {
            self.remove_token(context, header);
        }
        for (header, value) in self.headers.iter().zip(&token.headers) {
            match value {
                Some(value) => context.edits.set(context.step, header, value),
                None => context.edits.remove(context.step, header),
            }
        }
        if let Some(consumer) = token.consumer.as_ref().and_then(|name| context.directory.consumers.by_name(name)) {
            context.facts.consumer = Some(Arc::clone(consumer));
        }
        Flow::Continue
    }

    /// Removes the token from a header. If it is a cookie, the other cookies stay.
    fn remove_token(&self, context: &mut Context<'_>, header: &Name) {
        let mut others = Vec::new();
        if let Source::Cookie(name) = &self.source {
            let headers = context.forwarded_header("cookie").into_iter();
            let kept = headers.filter_map(|header| cookie::without(header, name));
            // RFC 6265, section 4.1.1, has cookies in ASCII.
            others.extend(kept.map(|other| header::Value::lossy(String::from_utf8_lossy(&other).into_owned())));
        }
        context.edits.remove(context.step, header);
        others.iter().for_each(|other| context.edits.add(context.step, header, other));
    }

    /// The denial of a bad token (RFC 6750, section 3.1). One answer for every cause, so that it does not help a caller
    /// to forge a better token.
    fn refused(&self, reason: &'static str) -> Denial {
        self.unauthorized(reason, ", error=\"invalid_token\"")
    }

    fn unauthorized(&self, reason: &'static str, error: &str) -> Denial {
        let challenge = [self.challenge.as_str(), error].concat();
        let response = Response::problem(401, "a valid token is required").with_header("www-authenticate", &challenge);
        Denial { reason, response }
    }

    fn repeated(&self) -> Denial {
        let challenge = [self.challenge.as_str(), ", error=\"invalid_request\""].concat();
        let response = Response::problem(400, "more than one token").with_header("www-authenticate", &challenge);
        Denial { reason: "token_repeated", response }
    }
}

fn rules(wire: &wire::JwtValidation, strings: &Strings, issuers: &[Arc<Issuer>]) -> Result<Rules, LoadError> {
    let all = |indexes: &[u32]| indexes.iter().map(|index| strings.get(*index)).collect::<Result<Vec<_>, _>>();
    let headers: Vec<_> = wire.claim_headers.iter().map(|header| header.claim).collect();
    let issuer = |index: &u32| find(issuers, "issuer", *index).cloned();
    Ok(Rules {
        issuers: wire.issuers.iter().map(issuer).collect::<Result<_, _>>()?,
        audiences: all(&wire.audiences)?,
        unexpiring: wire.unexpiring,
        leeway: u64::from(wire.leeway_ms).saturating_mul(MILLISECOND),
        max_age: Some(wire.max_age_ms.saturating_mul(MILLISECOND)).filter(|age| *age > 0),
        types: all(&wire.types)?,
        required: all(&wire.required_claims)?,
        headers: all(&headers)?,
        consumer: Some(strings.get(wire.consumer_claim)?).filter(|claim| !claim.is_empty()),
    })
}

/// What follows a scheme, in any case, and one or more spaces (RFC 9110, section 11.4). `None` for another scheme.
fn after_scheme<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    (found.eq_ignore_ascii_case(scheme.as_bytes()) && spaces > 0).then(|| rest.get(spaces..).unwrap_or_default())
}

fn keys_unavailable() -> Denial {
    let response = Response::problem(503, "the token cannot be checked now").with_header("retry-after", "5");
    Denial { reason: "keys_unavailable", response }
}
