//! Lowers `jwtValidation`, and the claims that `roleCheck` reads.

use std::collections::BTreeMap;

use postern_proto::plan::v1::{
    JwtValidation, RoleCheck,
    jwt_validation::{ClaimHeader, Source},
    role_check,
    step::Policy,
};

use super::{Lowering, Place, policies::LowerError};
use crate::params::{JwtValidationParams, RoleCheckParams, Size, Time};

const MOST_MAX_SIZE: u32 = 64 << 10;
const MOST_LEEWAY_MS: u32 = 600_000;

impl Lowering {
    pub(super) fn jwt_validation(
        &mut self,
        place: &Place<'_>,
        params: &JwtValidationParams,
    ) -> Result<Policy, LowerError> {
        let source = self.token_source(params)?;
        let remove = !params.forward;
        if remove && params.query.is_some() {
            return Err(LowerError::Value(
                "`forward: false` cannot be had with `query`: the path that Envoy routes by stays as it is",
            ));
        }
        Ok(Policy::JwtValidation(JwtValidation {
            issuers: self.step_issuers(place, params.issuers.as_deref())?,
            audiences: self.all_texts(&params.audiences)?,
            scheme: self.string(scheme(params)?),
            source: Some(source),
            remove,
            optional: params.allow_missing,
            unexpiring: !params.require_expiry,
            leeway_ms: leeway(params.leeway)?,
            max_age_ms: params.max_age.map_or(0, milliseconds),
            required_claims: self.all_texts(&params.required_claims)?,
            claim_headers: self.claim_headers(&params.claims_to_headers)?,
            consumer_claim: self.claim(params.consumer.as_deref())?,
            max_size: max_size(params.max_token_size)?,
            realm: self.realm(&params.realm)?,
            types: self.types(&params.typ)?,
        }))
    }

    /// The accepted values of `typ`, as the engine compares them: lower case, without `application/`.
    fn types(&mut self, types: &[String]) -> Result<Vec<u32>, LowerError> {
        let mut lowered = Vec::with_capacity(types.len());
        for written in types {
            let lower = written.to_ascii_lowercase();
            let short = lower.strip_prefix("application/").unwrap_or(&lower);
            let is_type = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            if short.is_empty() || !short.bytes().all(is_type) {
                return Err(LowerError::Value("`typ`: expected media types such as `at+jwt`, or `none`"));
            }
            lowered.push(self.string(if lower == "none" { "" } else { short }));
        }
        Ok(lowered)
    }

    pub(super) fn role_check(&mut self, params: &RoleCheckParams) -> Result<Policy, LowerError> {
        let RoleCheckParams { groups, roles, scopes, claims, .. } = params;
        if groups.is_empty() && roles.is_empty() && scopes.is_empty() && claims.is_empty() {
            return Err(LowerError::Value("expected at least one of `groups`, `roles`, `scopes` and `claims`"));
        }
        for (unused, name) in [(roles.is_empty(), &params.roles_claim), (scopes.is_empty(), &params.scopes_claim)] {
            if unused && name.is_some() {
                return Err(LowerError::Value("`rolesClaim` goes with `roles`, `scopesClaim` with `scopes`"));
            }
        }
        // A scope with a space cannot occur in a list that is separated by spaces.
        if scopes.iter().any(|scope| scope.contains(' ')) {
            return Err(LowerError::Value("a scope has no spaces: expected a list of scopes"));
        }
        let mut rules = Vec::with_capacity(claims.len());
        for (path, values) in claims {
            let values = values.iter().map(|value| self.string(value)).collect();
            rules.push(role_check::Claim { path: self.claim(Some(path))?, values });
        }
        Ok(Policy::RoleCheck(RoleCheck {
            groups: groups.iter().map(|group| self.string(group)).collect(),
            all: params.matching == "all",
            roles: self.all_texts(roles)?,
            roles_claim: self.claim(params.roles_claim.as_deref())?,
            scopes: self.all_texts(scopes)?,
            scopes_claim: self.claim(params.scopes_claim.as_deref())?,
            claims: rules,
        }))
    }

    /// The named issuers, or the only one. With several issuers the names are required, so that a new issuer does not
    /// open existing routes.
    fn step_issuers(&mut self, place: &Place<'_>, names: Option<&[String]>) -> Result<Vec<u32>, LowerError> {
        let Some(names) = names else {
            return match self.issuers.len() {
                0 => Err(LowerError::Value("there is no Issuer whose tokens could count")),
                1 => Ok(vec![0]),
                _ => Err(LowerError::Value("there are several Issuers: `issuers` must say whose tokens count")),
            };
        };
        let mut issuers = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            issuers.push(self.issuer(place, &format!("params.issuers[{index}]"), name));
        }
        let iss = |index: &u32| {
            usize::try_from(*index).ok().and_then(|index| self.plan.issuers.get(index)).map(|issuer| issuer.issuer)
        };
        for (index, issuer) in issuers.iter().enumerate() {
            if iss(issuer).is_some() && issuers.iter().take(index).any(|other| iss(other) == iss(issuer)) {
                return Err(LowerError::Value("two of `issuers` are of the same `issuer`: a token could be of either"));
            }
        }
        Ok(issuers)
    }

    fn token_source(&mut self, params: &JwtValidationParams) -> Result<Source, LowerError> {
        match (&params.header, &params.query, &params.cookie) {
            (Some(header), None, None) => Ok(Source::Header(self.header_name(header))),
            (None, Some(query), None) if !query.is_empty() => Ok(Source::Query(self.string(query))),
            (None, None, Some(cookie)) => Ok(Source::Cookie(self.string(cookie))),
            (None, Some(_), None) => Err(LowerError::Value("`query` must not be empty")),
            _ => Err(LowerError::Value("expected at most one of `header`, `query` and `cookie`")),
        }
    }

    fn claim_headers(&mut self, headers: &BTreeMap<String, String>) -> Result<Vec<ClaimHeader>, LowerError> {
        let mut lowered: Vec<ClaimHeader> = Vec::with_capacity(headers.len());
        for (claim, header) in headers {
            let header = self.header_name(header);
            if lowered.iter().any(|other| other.header == header) {
                return Err(LowerError::Value("two of `claimsToHeaders` go to the same header"));
            }
            lowered.push(ClaimHeader { claim: self.claim(Some(claim))?, header });
        }
        Ok(lowered)
    }

    /// The string of a claim's name or path; that of an empty name if there is none. An explicit empty name is an
    /// error.
    fn claim(&mut self, name: Option<&str>) -> Result<u32, LowerError> {
        match name {
            Some("") => Err(LowerError::Value("a claim's name must not be empty")),
            name => Ok(self.string(name.unwrap_or_default())),
        }
    }

    fn all_texts(&mut self, texts: &[String]) -> Result<Vec<u32>, LowerError> {
        if texts.iter().any(String::is_empty) {
            return Err(LowerError::Value("an entry of a list must not be empty"));
        }
        Ok(texts.iter().map(|text| self.string(text)).collect())
    }

    fn realm(&mut self, realm: &str) -> Result<u32, LowerError> {
        match realm.contains(['"', '\\']) {
            false => Ok(self.string(realm)),
            true => Err(LowerError::Value("`realm` must have no quotes and no backslashes")),
        }
    }
}

fn scheme(params: &JwtValidationParams) -> Result<&str, LowerError> {
    let in_header = params.query.is_none() && params.cookie.is_none();
    match (&params.scheme, &params.header) {
        (Some(_), _) if !in_header => Err(LowerError::Value("`scheme` goes with `header`")),
        (Some(scheme), _) => Ok(scheme),
        (None, Some(header)) if header.eq_ignore_ascii_case("authorization") => Ok("Bearer"),
        (None, _) => Ok(""),
    }
}

fn leeway(leeway: Option<Time>) -> Result<u32, LowerError> {
    let leeway = u32::try_from(leeway.map_or(0, milliseconds)).ok().filter(|leeway| *leeway <= MOST_LEEWAY_MS);
    leeway.ok_or(LowerError::Value("`leeway` must be at most `10m`"))
}

fn milliseconds(Time(time): Time) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or_default()
}

fn max_size(Size(bytes): Size) -> Result<u32, LowerError> {
    let size = u32::try_from(bytes).ok().filter(|size| (1..=MOST_MAX_SIZE).contains(size));
    size.ok_or(LowerError::Value("`maxTokenSize` must be 1 byte to `64KiB`"))
}
