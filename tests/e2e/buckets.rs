//! A bucket of a rate limit is never further ahead than its own limit allows.

use postern_tests::{Request, Upstream, wait};

use crate::chains::{
    Chains, MODES, PROTOCOLS,
    Protocol::{Http1, Http2},
    policy,
};

fn limit(params: &str) -> String {
    policy("a", &format!("  request: [{{ policy: rateLimit, params: {{ {params} }} }}]"))
}

#[test]
fn nobody_waits_for_a_limit_that_was_raised() {
    let upstream = Upstream::start(0).unwrap();
    for (mode, key) in
        MODES.into_iter().flat_map(|mode| ["", ", key: \"request.headers['x-tenant']\""].map(|key| (mode, key)))
    {
        let limits = limit(&format!("requests: 2, per: 1h{key}"));
        let chains = Chains::start_as(mode, upstream.address(), &["a"], &limits);
        let request = Request::get("/a/1").header("x-tenant", "t");
        // One bucket, whatever a caller speaks.
        let statuses = [Http1, Http2, Http1, Http2].map(|protocol| chains.send_by(protocol, &request).status);
        assert_eq!(statuses, [200, 200, 429, 429], "{mode:?} {key}");
        for protocol in PROTOCOLS {
            let denied = chains.send_by(protocol, &request);
            assert_eq!(denied.header("retry-after"), denied.header("ratelimit-reset"), "{denied:?}");
            assert!(denied.header("retry-after").is_some());
        }
        chains.write(&limit(&format!("requests: 1000, per: 1s{key}")));
        // A token comes back every millisecond, and an hour would be far beyond what is waited for.
        for protocol in [Http1, Http2, Http1, Http2, Http1] {
            let passes = || Ok(chains.send_by(protocol, &request).status == 200);
            wait::until_true("a token of the new limit", passes).unwrap();
        }
    }
}
