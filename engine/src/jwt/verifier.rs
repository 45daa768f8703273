//! Checks a token for a step: issuer, audience, time, required claims and, last, the signature, which costs the most.

use std::sync::Arc;

use super::{
    algorithm::Algorithm,
    cache::{Entry, TokenKey, Verified},
    claims::{self, ClaimPath, header_text},
    fingerprint::Fingerprint,
    issuer::Issuer,
    key::{Key, SignatureCheck, SignedText},
    token::{LastHeader, Token, Unreadable},
};
use crate::{
    budget::{Budget, Exhausted},
    cel::Map,
    header,
    json::{Object, Value},
    load_error::LoadError,
};

/// The rules that a token must meet.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The issuers whose tokens are accepted; at least one.
    pub(crate) issuers: Vec<Arc<Issuer>>,
    /// Audiences of which the token must name one, in addition to what the issuer demands. Empty for no such rule.
    pub(crate) audiences: Vec<Arc<str>>,
    /// Whether a token without `exp` is accepted.
    pub(crate) unexpiring: bool,
    /// How far clocks may differ, in nanoseconds.
    pub(crate) leeway: u64,
    /// How long after `iat` a token is good, in nanoseconds.
    pub(crate) max_age: Option<u64>,
    /// The accepted values of `typ`, in lower case and without `application/`. An empty text stands for a token without
    /// `typ`.
    pub(crate) types: Vec<Arc<str>>,
    /// The claims that must be present.
    pub(crate) required: Vec<Arc<str>>,
    /// The claims that become headers.
    pub(crate) headers: Vec<Arc<str>>,
    /// The claim that names the consumer.
    pub(crate) consumer: Option<Arc<str>>,
}

/// The rules, ready to be applied.
#[derive(Debug)]
pub(crate) struct Verifier {
    issuers: Vec<Arc<Issuer>>,
    audiences: Vec<Arc<str>>,
    unexpiring: bool,
    leeway: u64,
    max_age: Option<u64>,
    types: Vec<Arc<str>>,
    required: Vec<ClaimPath>,
    headers: Vec<ClaimPath>,
    consumer: Option<ClaimPath>,
    /// Whether steps other than these rules read the claims.
    keeps_claims: bool,
    last_header: LastHeader,
    /// A digest of all rules. A verified token is remembered under it, and counts for no other rules.
    scope: [u8; 32],
}

/// A token that meets all rules, and whose signature is not checked yet.
#[derive(Debug)]
pub(crate) struct Pending {
    key: TokenKey,
    signed: usize,
    signature: Vec<u8>,
    algorithm: Algorithm,
    issuer: Arc<Issuer>,
    /// The indexes of the keys that may have made its signature.
    candidates: Vec<usize>,
    verified: Arc<Verified>,
}

/// Why a token is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is refused, for this reason.
    Refused(&'static str),
    /// The issuer's keys are not known.
    KeysUnavailable,
}

use Trouble::Refused;

impl From<Unreadable> for Trouble {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Malformed => Refused("token_malformed"),
            Unreadable::Algorithm => Refused("algorithm_refused"),
        }
    }
}

impl Verifier {
    pub(crate) fn new(rules: Rules) -> Result<Self, LoadError> {
        if rules.issuers.is_empty() {
            return Err(LoadError::Missing("issuers"));
        }
        if rules.types.is_empty() {
            return Err(LoadError::Missing("types"));
        }
        for (index, issuer) in rules.issuers.iter().enumerate() {
            if rules.issuers.iter().take(index).any(|other| other.issuer == issuer.issuer) {
                return Err(LoadError::Repeated { what: "issuer", name: Arc::clone(&issuer.issuer) });
            }
        }
        let paths = |names: &[Arc<str>]| names.iter().map(|name| ClaimPath::new(name)).collect();
        Ok(Self {
            scope: scope(&rules),
            required: paths(&rules.required),
            headers: paths(&rules.headers),
            consumer: rules.consumer.as_deref().map(ClaimPath::new),
            issuers: rules.issuers,
            audiences: rules.audiences,
            unexpiring: rules.unexpiring,
            leeway: rules.leeway,
            max_age: rules.max_age,
            types: rules.types,
            keeps_claims: true,
            last_header: LastHeader::default(),
        })
    }

    /// Tells the verifier that nobody reads the claims. Converting them is a large part of a token's cost.
    pub(crate) fn leave_out_claims(&mut self) {
        self.keeps_claims = false;
        let mut print = Fingerprint::default();
        print.add(self.scope);
        self.scope = print.finish();
    }

    /// The key under which this token is remembered if it is good.
    pub(crate) fn key(&self, token: Arc<[u8]>) -> TokenKey {
        TokenKey { scope: self.scope, token }
    }

    /// Checks everything but the signature.
    pub(crate) fn examine(&self, key: TokenKey, now: u64) -> Result<Pending, Trouble> {
        let token = Token::read(&key.token, &self.last_header)?;
        if !self.types.iter().any(|fits| **fits == *token.media_type) {
            return Err(Refused("type_refused"));
        }
        let claims = token.claims()?;
        let issuer = self.issuer(&claims)?;
        self.check_audience(&claims, issuer)?;
        let (from, until) = self.window(&claims)?;
        if now < from {
            return Err(Refused("token_premature"));
        }
        if now >= until {
            return Err(Refused("token_expired"));
        }
        if self.required.iter().any(|path| path.find_in(&claims).is_none()) {
            return Err(Refused("claim_missing"));
        }
        let (headers, consumer) = (self.header_values(&claims)?, self.consumer(&claims)?);
        if issuer.keys_unavailable {
            return Err(Trouble::KeysUnavailable);
        }
        let candidates = issuer.candidates(token.algorithm, token.key_id.as_deref());
        if candidates.is_empty() {
            return Err(Refused("key_unknown"));
        }
        let claims = if self.keeps_claims { claims::convert(claims) } else { Map::default() };
        let verified = Arc::new(Verified { claims: Arc::new(claims), headers, consumer, from, until });
        let Token { algorithm, signed, signature, .. } = token;
        Ok(Pending { key, signed, signature, algorithm, issuer: Arc::clone(issuer), candidates, verified })
    }

    /// The issuer of the claim `iss` (RFC 7519, section 4.1).
    fn issuer(&self, claims: &Object<'_>) -> Result<&Arc<Issuer>, Trouble> {
        let Some(Value::String(name)) = claims.get("iss") else {
            return Err(Refused("issuer_unknown"));
        };
        self.issuers.iter().find(|issuer| *issuer.issuer == **name).ok_or(Refused("issuer_unknown"))
    }

    fn check_audience(&self, claims: &Object<'_>, issuer: &Issuer) -> Result<(), Trouble> {
        let audience = claims.get("aud");
        for wanted in [&self.audiences, &issuer.audiences] {
            let named = match audience {
                None => false,
                Some(audience) => claims::names_one_of(audience, wanted).ok_or(Refused("token_malformed"))?,
            };
            if !named && !wanted.is_empty() {
                return Err(Refused("audience_wrong"));
            }
        }
        Ok(())
    }

    /// The times between which the token is good, with the leeway.
    fn window(&self, claims: &Object<'_>) -> Result<(u64, u64), Trouble> {
        let time = |name| match claims.get(name) {
            None => Ok(None),
            Some(value) => claims::time(value).map(Some).ok_or(Refused("token_malformed")),
        };
        let (expiry, not_before, issued) = (time("exp")?, time("nbf")?, time("iat")?);
        if expiry.is_none() && !self.unexpiring {
            return Err(Refused("claim_missing"));
        }
        let age_limit = match (self.max_age, issued) {
            (None, _) => None,
            (Some(_), None) => return Err(Refused("claim_missing")),
            (Some(max_age), Some(issued)) => Some(issued.saturating_add(max_age)),
        };
        let from = not_before.unwrap_or_default().max(issued.unwrap_or_default()).saturating_sub(self.leeway);
        let until = expiry.unwrap_or(u64::MAX).min(age_limit.unwrap_or(u64::MAX)).saturating_add(self.leeway);
        Ok((from, until))
    }

    fn header_values(&self, claims: &Object<'_>) -> Result<Vec<Option<header::Value>>, Trouble> {
        let value = |path: &ClaimPath| match path.find_in(claims) {
            None => Ok(None),
            Some(value) => header::Value::of_caller(&header_text(value)).map(Some).ok_or(Refused("claim_unfit")),
        };
        self.headers.iter().map(value).collect()
    }

    fn consumer(&self, claims: &Object<'_>) -> Result<Option<Arc<str>>, Trouble> {
        match self.consumer.as_ref().and_then(|path| path.find_in(claims)) {
            None => Ok(None),
            Some(Value::String(name)) => Ok(Some(name.as_ref().into())),
            Some(_) => Err(Refused("claim_unfit")),
        }
    }
}

impl Pending {
    /// Whether one of the possible keys made the signature.
    ///
    /// One check is always allowed: it is what the step is for. Further keys, which are tried for a token that names
    /// none, are charged. `host` checks a signature; `None` if it cannot.
    pub(crate) fn is_signed(
        &self,
        mut host: impl FnMut(&SignatureCheck) -> Option<bool>,
        budget: &Budget,
    ) -> Result<bool, Exhausted> {
        let mut first = true;
        for key in self.candidates.iter().filter_map(|place| self.issuer.key(*place)) {
            let charge = |steps: u64| {
                if !first {
                    return budget.spend(steps);
                }
                budget.declare(steps);
                Ok(())
            };
            if self.is_signed_by(key, &mut host, charge)? {
                return Ok(true);
            }
            first = false;
        }
        Ok(false)
    }

    /// Checks the signature by one key. The host is asked first, since it is faster.
    fn is_signed_by(
        &self,
        key: &Key,
        mut host: impl FnMut(&SignatureCheck) -> Option<bool>,
        charge: impl Fn(u64) -> Result<(), Exhausted>,
    ) -> Result<bool, Exhausted> {
        let text = SignedText::new(&self.key.token, self.signed);
        let mut cost = key.cost(text.len());
        if let Some(check) = key.check(self.algorithm, &text, &self.signature) {
            charge(cost.host)?;
            if let Some(word) = host(&check) {
                return Ok(word);
            }
            // It was no check: only the rest is to be paid for ours.
            cost.own = cost.own.saturating_sub(cost.host);
        }
        charge(cost.own)?;
        Ok(key.verify(self.algorithm, &text, &self.signature))
    }

    /// The entry to remember once the signature is good.
    pub(crate) fn entry(&self) -> Entry {
        let weight = self.key.token.len().saturating_add(claims::weight(&self.verified.claims));
        Entry { key: self.key.clone(), verified: Arc::clone(&self.verified), weight }
    }

    /// The verified token. Call it once the signature is good.
    pub(crate) fn into_verified(self) -> Arc<Verified> {
        self.verified
    }
}

fn scope(rules: &Rules) -> [u8; 32] {
    let mut print = Fingerprint::default();
    print.number(rules.issuers.len() as u64);
    rules.issuers.iter().for_each(|issuer| print.add(issuer.fingerprint));
    print.add_all(&rules.audiences);
    print.number(u64::from(rules.unexpiring));
    print.number(rules.leeway);
    print.number(rules.max_age.map_or(0, |age| age.saturating_add(1)));
    print.add_all(&rules.types);
    print.add_all(&rules.required);
    print.add_all(&rules.headers);
    print.add_all(rules.consumer.as_slice());
    print.finish()
}
