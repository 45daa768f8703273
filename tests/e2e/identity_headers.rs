//! What a step sets for the upstream never comes from the caller, also where the step does not run.

use postern_tests::{Request, Upstream};

use crate::chains::{Chains, policy};

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
    let chains = Chains::start(upstream.address(), &routes, &[ISSUER, &resources].concat());
    for route in routes {
        let path = format!("/{route}/x");
        let forged =
            Request::get(&path).header("x-user-id", "root").header("X-User-Id", "again").header("x-other", "mine");
        let answer = chains.send(&forged);
        assert_eq!((answer.status, answer.echoed("x-user-id")), (200, vec![]), "{route}: {answer:?}");
        assert_eq!(answer.echoed("x-other"), ["mine"], "{route}");
        let answer = chains.send_h2("POST", &path, &[("x-user-id", "root"), ("x-user-id", "again")], b"body");
        assert_eq!((answer.status, answer.echoed("x-user-id")), (200, vec![]), "{route}: {answer:?}");
    }
}
