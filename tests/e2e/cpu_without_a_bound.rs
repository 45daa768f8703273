//! Requests that cause much work: each exhausts its budget, is answered by the step in which that happens, and has the
//! reason in the access log. On generated listeners (whole) and on listeners of Envoy's own (overlay), by HTTP/1.1 and
//! HTTP/2. The tests check the answer, not the time that it took; `engine/tests/budget.rs` counts steps.

use std::net::SocketAddr;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, site::free_port, wait};
use serde_json::json;
use tempfile::TempDir;

use crate::{chains::PROTOCOLS, world::assert_no_vm_failure};

/// The route `users` with a chain, on an Envoy.
struct Stage {
    envoy: Envoy,
    address: SocketAddr,
    _control_plane: ControlPlane,
    _upstream: Upstream,
    _directory: TempDir,
}

impl Stage {
    /// One stage on listeners that we generate, and one on a listener of Envoy's own.
    fn both(chain: &str, others: &str) -> [Self; 2] {
        [Self::start(chain, others, true), Self::start(chain, others, false)]
    }

    fn start(chain: &str, others: &str, whole: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
        let policy = "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: { name: users-api }\nspec:\n  targetRef: { kind: HTTPRoute, name: users }\n";
        site.write("policies.yaml", &[policy, "  request:\n", chain, others].concat()).unwrap();
        if !whole {
            std::fs::remove_file(site.path("gateway.yaml")).unwrap();
        }
        let control_plane = ControlPlane::start(site.directory()).unwrap();
        let (envoy, address) = if whole {
            (Envoy::start("whole.yaml", control_plane.xds(), &[]).unwrap(), site.listener())
        } else {
            let (port, backend) = (free_port().unwrap(), format!("port_value: {}", upstream.address().port()));
            let listener = format!("port_value: {port}");
            let replace = [("port_value: 10001", backend.as_str()), ("port_value: 10000", listener.as_str())];
            (Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap(), ([127, 0, 0, 1], port).into())
        };
        let mut client = Client::new(address);
        wait::until_true("the listener to serve", || {
            Ok(client.get("/welcome").is_ok_and(|answer| answer.status == 200))
        })
        .unwrap();
        Self { envoy, address, _control_plane: control_plane, _upstream: upstream, _directory: directory }
    }

    /// Checks the status of the answer by either protocol, and the access log.
    fn check(&self, request: &Request, status: u16, account: &str) {
        for protocol in PROTOCOLS {
            let answer = protocol.send(self.address, request);
            assert_eq!(answer.status, status, "{protocol:?}: {}", answer.body);
        }
        wait::until_true(account, || {
            let log = self.envoy.access_log();
            let told = log.iter().filter_map(|line| line["decision"].as_str());
            Ok(told.filter(|decision| decision.starts_with(account)).count() >= PROTOCOLS.len())
        })
        .unwrap();
    }

    /// Checks that the request passes.
    fn passes(&self, request: &Request) {
        for protocol in PROTOCOLS {
            let answer = protocol.send(self.address, request);
            assert_eq!(answer.status, 200, "{protocol:?}: {}", answer.body);
        }
    }

    fn end(self) {
        assert_no_vm_failure(&self.envoy);
    }
}

#[test]
fn a_rewrite_does_not_search_a_path_that_is_too_long() {
    let chain = "    - { policy: rewrite, params: { regex: { pattern: '^/users/(a|b|ab)*c', substitution: / } } }\n";
    for stage in Stage::both(chain, "") {
        stage.passes(&Request::get("/users/ababc"));
        let path = |length: usize| ["/users/", &"ab".repeat(length / 2)].concat();
        stage.check(&Request::get(path(50_000)), 414, "verdict=deny step=rewrite reason=path_too_long ");
        stage.check(&Request::get(path(8_000)), 500, "verdict=deny step=rewrite reason=budget_exhausted ");
        stage.check(&Request::get("/users/x"), 404, "verdict=deny step=rewrite reason=path_unmatched ");
        stage.end();
    }
}

#[test]
fn ten_rules_share_one_budget() {
    let rule = "            - { rule: \"request.headers['x-a'].matches('^([a-y]+z?)+$')\", message: no }\n";
    let chain = ["    - policy: validate\n      params:\n        rules:\n", &rule.repeat(10)].concat();
    for stage in Stage::both(&chain, "") {
        stage.passes(&Request::get("/users/7").header("x-a", "a".repeat(100)));
        let long = Request::get("/users/7").header("x-a", "a".repeat(8_000));
        stage.check(&long, 500, "verdict=deny step=validate reason=budget_exhausted ");
        stage.end();
    }
}

#[test]
fn a_pattern_of_a_schema_is_not_searched_for_in_a_text_that_is_too_long() {
    let chain =
        "    - policy: jsonSchema\n      params: { schema: { type: string, pattern: '^([a-c]?[a-d]?){30}e?' } }\n";
    for stage in Stage::both(chain, "") {
        let text = |length: usize| {
            let body = format!("\"{}\"", "a".repeat(length));
            Request::new("POST", "/users/7").header("content-type", "application/json").body(body)
        };
        stage.passes(&text(100));
        stage.check(&text(250_000), 500, "verdict=deny step=jsonSchema reason=budget_exhausted ");
        stage.end();
    }
}

/// Keys that nobody has. Any odd number of 4096 bits will do, since no token is signed with them.
fn keys(algorithm: &str, count: u8) -> Vec<serde_json::Value> {
    let modulus = |seed: u8| URL_SAFE_NO_PAD.encode([&[0xf1][..], &[seed; 510], &[0x0f]].concat());
    (1..=count).map(|seed| json!({ "kty": "RSA", "alg": algorithm, "n": modulus(seed), "e": "AQAB" })).collect()
}

fn issuer(name: &str, keys: Vec<serde_json::Value>) -> String {
    let spec = json!({ "issuer": name, "jwks": { "keys": keys } });
    format!("---\napiVersion: postern/v1\nkind: Issuer\nmetadata: {{ name: {name} }}\nspec: {spec}\n")
}

fn token(algorithm: &str, issuer: &str) -> Request {
    let parts = [json!({ "alg": algorithm }), json!({ "iss": issuer, "exp": 4_102_444_800_u64 })];
    let parts = parts.map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let token = [&parts[0], &parts[1], &URL_SAFE_NO_PAD.encode([1; 512])].map(String::as_str).join(".");
    Request::get("/users/7").header("authorization", format!("Bearer {token}"))
}

/// RS256 is checked by Envoy, PS256 by the filter.
#[test]
fn one_slow_key_is_tried_and_eight_are_not() {
    let others = [
        issuer("one", [keys("RS256", 1), keys("PS256", 1)].concat()),
        issuer("many", [keys("RS256", 8), keys("PS256", 8)].concat()),
    ];
    let chain = "    - { policy: jwtValidation, params: { issuers: [one, many] } }\n";
    for stage in Stage::both(chain, &others.concat()) {
        for algorithm in ["RS256", "PS256"] {
            let (wrong, exhausted) = ("reason=signature_wrong ", "reason=budget_exhausted ");
            let account = |reason| ["verdict=deny step=jwtValidation ", reason].concat();
            stage.check(&token(algorithm, "one"), 401, &account(wrong));
            stage.check(&token(algorithm, "many"), 500, &account(exhausted));
        }
        stage.end();
    }
}

/// `onFailure: continue` lets a caller past one step. The next one still decides.
#[test]
fn a_step_behind_one_that_ran_out_still_denies() {
    let chain = "    - policy: validate\n      onFailure: continue\n      params: { rules: [{ rule: \"request.headers['x-a'].matches('(a?){200}b')\", message: no }] }\n    - { policy: apiKeyAuth, params: { header: x-api-key } }\n";
    for stage in Stage::both(chain, "") {
        let long = Request::get("/users/7").header("x-a", "a".repeat(8_000));
        stage.check(&long, 401, "verdict=deny step=apiKeyAuth reason=key_missing failed=validate:budget_exhausted ");
        stage.end();
    }
}
