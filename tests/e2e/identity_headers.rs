//! Headers that a step sets for the upstream never come from the caller, even if the step does not run.

use postern_tests::{Request, Upstream};

use crate::chains::{Chains, MODES, PROTOCOLS, policy};

const ISSUER: &str = "
apiVersion: postern/v1
kind: Issuer
metadata: { name: accounts }
spec: { issuer: accounts, jwks: { keys: [{ kty: oct, k: YSBzaGFyZWQgc2VjcmV0IG9mIG1vcmUgdGhhbiAzMiBieXRlcywgZm9yIHRlc3Rz }] } }
";

/// Each way for a step not to run, on a route of its own. All of them promise `x-user-id`.
const CHAINS: [(&str, &str); 7] = [
    (
        "optional",
        "  request: [{ policy: jwtValidation, params: { allowMissing: true, claimsToHeaders: { sub: x-user-id } } }]",
    ),
    (
        "when",
        "  request: [{ policy: jwtValidation, params: { claimsToHeaders: { sub: x-user-id } }, when: \"request.method == 'PUT'\" }]",
    ),
    ("shadow", "  request: [{ policy: jwtValidation, mode: shadow, params: { claimsToHeaders: { sub: x-user-id } } }]"),
    (
        "chain",
        "  mode: shadow\n  request: [{ policy: jwtValidation, params: { claimsToHeaders: { sub: x-user-id } } }]",
    ),
    (
        "continue",
        "  request: [{ policy: headers, params: { set: { x-user-id: me } }, when: \"request.headers['none'] == 'a'\", onFailure: continue }]",
    ),
    (
        "skip",
        "  request:\n    - { policy: validate, params: { rules: [{ rule: \"request.headers['none'] == 'a'\", message: m }] }, onFailure: \
         skipRemaining }\n    - { policy: headers, params: { set: { x-user-id: me } } }",
    ),
    (
        "from",
        "  request: [{ policy: headers, params: { set: { x-tag: all } } }]\n  from: [{ targetRef: { kind: Service, name: web }, request: \
         [{ policy: headers, name: who, params: { set: { x-user-id: web } } }] }]",
    ),
];

#[test]
fn no_caller_says_who_it_is_where_a_step_did_not_run() {
    let upstream = Upstream::start(0).unwrap();
    let routes = CHAINS.map(|(route, _)| route);
    let resources: String = CHAINS.iter().map(|(route, chain)| policy(route, chain)).collect();
    for mode in MODES {
        let chains = Chains::start_as(mode, upstream.address(), &routes, &[ISSUER, &resources].concat());
        for (route, protocol) in routes.iter().flat_map(|route| PROTOCOLS.map(|protocol| (route, protocol))) {
            let what = format!("{route}, {mode:?}, {protocol:?}");
            let forged = Request::get(format!("/{route}/x")).header("x-user-id", "root").header("X-User-Id", "again");
            let answer = chains.send_by(protocol, &forged.clone().header("x-other", "mine"));
            assert_eq!((answer.status, answer.echoed("x-user-id")), (200, vec![]), "{what}: {answer:?}");
            assert_eq!(answer.echoed("x-other"), ["mine"], "{what}");
            let answer = chains.send_by(protocol, &forged.body("body"));
            assert_eq!((answer.status, answer.echoed("x-user-id")), (200, vec![]), "{what}: {answer:?}");
        }
    }
}
