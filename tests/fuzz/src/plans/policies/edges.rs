//! Policies that edit what passes, or hold it up.

use postern_proto::plan::v1::{self as wire, rewrite::Path, rewrite_part::Part, step::Policy};

use super::scope::{Scope, some};
use crate::Script;

pub(super) fn cors(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::Cors(wire::Cors {
        origins: scope.strings(script),
        origin_patterns: scope.strings(script),
        allow_methods: scope.string(script),
        allow_headers: scope.string(script),
        expose_headers: scope.string(script),
        max_age: scope.string(script),
        allow_credentials: script.flag(),
        allow_private_network: script.flag(),
        enforce: script.flag(),
    })
}

pub(super) fn csrf(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::Csrf(wire::Csrf {
        allow_origins: if script.flag() { scope.strings(script) } else { vec![] },
        deny_missing: script.flag(),
        token_cookie: script.flag().then(|| scope.string(script)),
        token_header: script.flag().then(|| scope.string(script)),
    })
}

pub(super) fn fault_injection(script: &mut Script<'_>, scope: Scope) -> Policy {
    let delay = script
        .flag()
        .then(|| wire::InjectedDelay { milliseconds: script.number() as u32, percent: u32::from(script.byte() % 128) });
    let abort = script.flag().then(|| wire::InjectedAbort {
        status: 190 + 2 * u32::from(script.byte()),
        percent: u32::from(script.byte() % 128),
        body: script.flag().then(|| scope.string(script)),
    });
    Policy::FaultInjection(wire::FaultInjection { delay, abort })
}

pub(super) fn headers(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::Headers(wire::Headers {
        remove: scope.strings(script),
        set: scope.pairs(script),
        add: scope.pairs(script),
        default: scope.pairs(script),
    })
}

pub(super) fn request_id(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::RequestId(wire::RequestId {
        header: scope.string(script),
        trust_incoming: script.flag(),
        sortable: script.flag(),
        echo: script.flag(),
    })
}

pub(super) fn rewrite(script: &mut Script<'_>, scope: Scope) -> Policy {
    let path = match script.below(4) {
        0 => Some(Path::Prefix(prefix(script, scope))),
        1 => Some(Path::Template(wire::TemplateRewrite {
            segments: (0..script.below(4)).map(|_| script.index(scope.strings + 1)).collect(),
            rest: script.flag(),
            to: parts(script, scope),
        })),
        2 => Some(Path::Regex(wire::RegexRewrite { pattern: scope.string(script), to: parts(script, scope) })),
        _ => None,
    };
    Policy::Rewrite(wire::Rewrite { path, host: parts(script, scope), pass_unmatched: script.flag() })
}

pub(super) fn prefix(script: &mut Script<'_>, scope: Scope) -> wire::PrefixRewrite {
    wire::PrefixRewrite { from: scope.string(script), to: scope.string(script) }
}

fn parts(script: &mut Script<'_>, scope: Scope) -> Vec<wire::RewritePart> {
    some(script, |script| wire::RewritePart {
        part: match script.below(8) {
            0 => None,
            1..4 => Some(Part::Capture(u32::from(script.byte() % 4))),
            _ => Some(Part::Text(scope.string(script))),
        },
    })
}

pub(super) fn security_headers(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::SecurityHeaders(wire::SecurityHeaders {
        set: scope.pairs(script),
        remove: scope.strings(script),
        keep_upstream: script.flag(),
    })
}
