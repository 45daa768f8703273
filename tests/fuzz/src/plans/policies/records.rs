//! The policy that records.

use postern_proto::plan::v1::{self as wire, step::Policy};

use super::scope::{Scope, some};
use crate::Script;

pub(super) fn audit_log(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::AuditLog(wire::AuditLog {
        // All, some or none of a million, or more than that.
        sample: script.pick(&[1_000_000, 500_000, 0, 1_000_001], 1_000_000),
        sample_denials: script.flag(),
        at_request: script.flag(),
        fields: some(script, |script| wire::AuditField {
            name: scope.string(script),
            expression: scope.expression(script),
        }),
        headers: scope.strings(script),
        omit: scope.strings(script),
        redact_headers: scope.strings(script),
        redact_query: scope.strings(script),
        redact_claims: scope.strings(script),
        log: script.flag(),
        collector: script
            .flag()
            .then(|| wire::AuditCollector { service: scope.string(script), path: scope.string(script) }),
        grpc: script.flag().then(|| wire::AuditGrpcCollector { service: scope.string(script) }),
    })
}
