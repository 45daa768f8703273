//! A signature passes once in the whole Envoy, whatever the route, the worker or the revision, and however many others
//! come.

use std::{
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use postern_tests::{Client, Request, Upstream, wait};
use ring::hmac;

use crate::chains::{Chains, MODES, Mode, PROTOCOLS, Protocol, policy};

const CONSUMERS: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: victim }
spec: { hmac: [{ keyId: victim, secret: the victim's secret of many bytes }] }
---
apiVersion: postern/v1
kind: Consumer
metadata: { name: other }
spec: { hmac: [{ keyId: other, secret: another secret of many bytes }] }
";

/// Routes `a` and `b` admit the same signatures; `small` can remember only a few.
fn resources(extra: &str) -> String {
    let chain =
        format!("  request: [{{ policy: hmacAuth, params: {{ components: ['@method'], window: 10m{extra} }} }}]");
    [CONSUMERS, &policy("a", &chain), &policy("b", &chain)].concat()
}

/// A signed request, whose signature no other has.
fn signed(path: &str, key: &str, nonce: usize) -> Request {
    let secret = if key == "victim" { "the victim's secret of many bytes" } else { "another secret of many bytes" };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let listed = format!(r#"("@method");created={now};nonce="{nonce}";keyid="{key}""#);
    let base = format!("\"@method\": GET\n\"@signature-params\": {listed}");
    let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), base.as_bytes());
    Request::get(path)
        .header("signature-input", format!("sig1={listed}"))
        .header("signature", format!("sig1=:{}:", STANDARD.encode(code)))
}

#[test]
fn a_signature_passes_once_whatever_comes_in_between() {
    for mode in MODES {
        check_that_a_signature_passes_once(mode);
    }
}

fn check_that_a_signature_passes_once(mode: Mode) {
    let upstream = Upstream::start(0).unwrap();
    let chains = Chains::start_as(mode, upstream.address(), &["a", "b"], &resources(""));
    let nonce = 1_000_000;
    let now = signed("/a/1", "victim", nonce);
    assert_eq!(chains.send(&now).status, 200);
    assert_eq!(chains.send(&now).status, 401, "the same again");
    let elsewhere = now.clone().at("/b/1");
    assert_eq!(chains.send(&elsewhere).status, 401, "on another route");
    assert_eq!(chains.send_by(Protocol::Http2, &now).status, 401, "by HTTP/2");
    let first_by_http2 = signed("/b/1", "victim", nonce + 100_000);
    assert_eq!(chains.send_by(Protocol::Http2, &first_by_http2).status, 200);
    assert_eq!(PROTOCOLS.map(|protocol| chains.send_by(protocol, &first_by_http2).status), [401, 401]);
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let mut client = Client::new(chains.gateway);
            thread::spawn(move || {
                (0..1000).all(|n| client.send(&signed("/a/1", "other", worker * 1000 + n)).unwrap().status == 200)
            })
        })
        .collect();
    assert!(workers.into_iter().all(|worker| worker.join().unwrap()), "another consumer's own requests pass");
    assert_eq!(chains.send(&now).status, 401, "after many of another consumer");
    // A new revision, with another rate and a longer window.
    chains.write(&resources(", replayRate: 200, clockSkew: 1m, label: sig1").replace("window: 10m", "window: 15m"));
    let fresh = std::cell::Cell::new(nonce);
    wait::until_true("the new revision", || {
        fresh.set(fresh.get() + 1);
        let answer = chains.send(
            &signed("/a/1", "victim", fresh.get())
                .header("signature", "sig2=:AAAA:")
                .header("signature-input", "sig2=(\"@method\")"),
        );
        Ok(answer.status == 200)
    })
    .unwrap();
    assert_eq!(chains.send(&now).status, 401, "after an update");
    assert_eq!(chains.send(&elsewhere).status, 401, "after an update, on another route");
}

#[test]
fn of_many_at_once_on_two_workers_one_passes() {
    let upstream = Upstream::start(0).unwrap();
    let chains = Chains::start(upstream.address(), &["a", "b"], &resources(""));
    for round in 0..20 {
        let request = signed("/a/1", "victim", round);
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let request = if caller % 2 == 0 { request.clone() } else { request.clone().at("/b/1") };
                let protocol = if caller < 4 { Protocol::Http1 } else { Protocol::Http2 };
                let gateway = chains.gateway;
                thread::spawn(move || protocol.send(gateway, &request).status)
            })
            .collect();
        let statuses: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 401].contains(status)), "{statuses:?}");
    }
    let workers = chains.envoy.stats("downstream_cx_total").unwrap();
    let busy = workers.iter().filter(|(name, value)| name.contains("worker_") && *value > 0).count();
    assert_eq!(busy, 2, "both workers must have taken part: {workers:?}");
}

#[test]
fn a_full_memory_fails_and_forgets_nothing() {
    let upstream = Upstream::start(0).unwrap();
    let small = resources(", replayRate: 1, clockSkew: 1s").replace("window: 10m", "window: 5m");
    let chains = Chains::start(upstream.address(), &["a", "b"], &small);
    let first = signed("/a/1", "victim", 0);
    assert_eq!(chains.send(&first).status, 200);
    let mut client = Client::new(chains.gateway);
    let mut statuses = (1..5000).map(|nonce| client.send(&signed("/a/1", "victim", nonce)).unwrap().status);
    assert_eq!(statuses.find(|status| *status != 200), Some(500));
    assert_eq!(chains.send(&first).status, 401, "what was seen is still known");
    assert_eq!(chains.send(&signed("/a/1", "other", 0)).status, 200, "another key has room of its own");
    let told = || Ok(chains.envoy.access_log().iter().any(|line| line.to_string().contains("replay_memory_full")));
    wait::until_true("the reason in the access log", told).unwrap();
}
