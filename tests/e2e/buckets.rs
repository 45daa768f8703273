//! A bucket of a rate limit is never further ahead than its own limit allows.

use postern_tests::{Request, Upstream, wait};

use crate::chains::{Chains, policy};

fn limit(params: &str) -> String {
    policy("a", &format!("  request: [{{ policy: rateLimit, params: {{ {params} }} }}]"))
}

#[test]
fn nobody_waits_for_a_limit_that_was_raised() {
    let upstream = Upstream::start(0).unwrap();
    for key in ["", ", key: \"request.headers['x-tenant']\""] {
        let chains = Chains::start(upstream.address(), &["a"], &limit(&format!("requests: 2, per: 1h{key}")));
        let request = Request::get("/a/1").header("x-tenant", "t");
        let statuses = [(); 3].map(|()| chains.send(&request).status);
        assert_eq!(statuses, [200, 200, 429], "{key}");
        let denied = chains.send(&request);
        assert_eq!(denied.header("retry-after"), denied.header("ratelimit-reset"), "{denied:?}");
        assert!(denied.header("retry-after").is_some());
        chains.write(&limit(&format!("requests: 1000, per: 1s{key}")));
        // A token comes back every millisecond, and an hour would be far beyond what is waited for.
        for _ in 0..5 {
            wait::until_true("a token of the new limit", || Ok(chains.send(&request).status == 200)).unwrap();
        }
    }
}
