//! Policies that ask who calls.

use postern_proto::plan::v1::{
    self as wire, api_key_auth::Source, jwt_validation, jwt_validation::Source as TokenSource, role_check, step::Policy,
};

use super::scope::{Scope, indexes, some};
use crate::Script;

pub(super) fn api_key_auth(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::ApiKeyAuth(wire::ApiKeyAuth {
        source: match script.below(4) {
            0 => Some(Source::Header(scope.string(script))),
            1 => Some(Source::Query(scope.string(script))),
            2 => Some(Source::Cookie(scope.string(script))),
            _ => None,
        },
        optional: script.flag(),
    })
}

pub(super) fn basic_auth(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::BasicAuth(wire::BasicAuth { realm: scope.string(script), remove: script.flag() })
}

pub(super) fn hmac_auth(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::HmacAuth(wire::HmacAuth {
        components: scope.strings(script),
        label: scope.string(script),
        window_ns: script.number(),
        skew_ns: script.number(),
        require_date: script.flag(),
        require_digest: script.flag(),
        replay_capacity: script.number() as u32,
    })
}

pub(super) fn jwt_validation(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::JwtValidation(wire::JwtValidation {
        issuers: indexes(script, 2),
        audiences: scope.strings(script),
        source: match script.below(4) {
            0 => Some(TokenSource::Header(scope.string(script))),
            1 => Some(TokenSource::Query(scope.string(script))),
            2 => Some(TokenSource::Cookie(scope.string(script))),
            _ => None,
        },
        scheme: scope.string(script),
        remove: script.flag(),
        optional: script.flag(),
        unexpiring: script.flag(),
        leeway_ms: script.number() as u32,
        max_age_ms: script.number(),
        required_claims: scope.strings(script),
        claim_headers: some(script, |script| jwt_validation::ClaimHeader {
            claim: scope.string(script),
            header: scope.string(script),
        }),
        consumer_claim: scope.string(script),
        max_size: script.number() as u32,
        realm: scope.string(script),
        types: scope.strings(script),
    })
}

pub(super) fn role_check(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::RoleCheck(wire::RoleCheck {
        groups: scope.strings(script),
        all: script.flag(),
        roles: scope.strings(script),
        roles_claim: scope.string(script),
        scopes: scope.strings(script),
        scopes_claim: scope.string(script),
        claims: some(script, |script| role_check::Claim { path: scope.string(script), values: scope.strings(script) }),
    })
}
