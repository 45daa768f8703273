//! Policies that look at where a request comes from, and the one that somebody else evaluates.

use postern_proto::plan::v1::{self as wire, step::Policy, traffic_permission};

use super::scope::{Scope, indexes, some};
use crate::Script;

pub(super) fn agent(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::Agent(wire::AgentPolicy {
        agents: indexes(script, 2),
        policy: scope.string(script),
        params: scope.pairs(script),
    })
}

pub(super) fn ip_filter(script: &mut Script<'_>, _scope: Scope) -> Policy {
    Policy::IpFilter(wire::IpFilter {
        allow: some(script, network),
        deny: some(script, network),
        trusted_hops: u32::from(script.byte() % 40),
    })
}

/// A network that is one, or any bytes.
fn network(script: &mut Script<'_>) -> Vec<u8> {
    match script.below(8) {
        0..4 => vec![script.byte(), 0, 0, 0, 8],
        4 => vec![10, script.byte(), 0, 0, 16],
        5 | 6 => [&[0x20, 1, 0x0d, 0xb8][..], &[0; 12], &[32]].concat(),
        _ => script.chunk().to_vec(),
    }
}

pub(super) fn rate_limit(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::RateLimit(wire::RateLimit {
        id: scope.string(script),
        interval_ns: script.number(),
        burst: script.number() as u32,
        key: scope.expression(script),
        most_keys: script.number() as u32,
        limit: script.byte().into(),
        report: i32::from(script.byte() % 4),
    })
}

pub(super) fn traffic_permission(script: &mut Script<'_>, scope: Scope) -> Policy {
    let rule = |script: &mut Script<'_>| traffic_permission::Rule {
        services: scope.strings(script),
        anyone: script.flag(),
        allow: script.flag(),
        source: script.flag().then(|| scope.source(script)),
    };
    let rules = (0..script.below(4)).map(|_| rule(script)).collect();
    Policy::TrafficPermission(wire::TrafficPermission { rules })
}
