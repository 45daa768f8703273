//! The example of RFC 9421, appendix B.2.5: a request signed with a shared secret.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::Arc;

use postern_compile::{pipeline::compile, snapshot::FilterCode};
use postern_engine::{Ask, Inputs, Plan, Run, Turn, Verdict, agent::Health, host::Alone};
use postern_model::File;

const RESOURCES: &str = r#"
apiVersion: postern/v1
kind: Consumer
metadata: { name: rfc }
spec:
  hmac:
    - keyId: test-shared-secret
      secretBase64: uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: p }
spec:
  targetRef: { kind: HTTPRoute, name: r }
  request:
    - policy: hmacAuth
      params: { components: [date, "@authority", content-type], label: sig-b25, requireDigest: false, refuseReplays: false }
"#;

fn decide(host: &str) -> Result<(), &'static str> {
    let file = File { name: "rfc".into(), bytes: RESOURCES.into() };
    let snapshot = compile(&[file], &FilterCode::new(Vec::new(), None)).unwrap_or_else(|error| panic!("{error}"));
    let plan = Arc::new(Plan::load(snapshot.plan().bytes()).unwrap());
    let mut run = Run::request(&plan, "r", &Health::default()).unwrap();
    loop {
        match run.advance(&mut Alone::default()) {
            Turn::Ask(Ask::Inputs(_)) => {
                let mut inputs = Inputs::default();
                inputs.now = 1_618_884_480_000_000_000;
                inputs.request_headers = [
                    (":method", "POST"),
                    (":scheme", "https"),
                    (":authority", host),
                    (":path", "/foo?param=Value&Pet=dog"),
                    ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
                    ("content-type", "application/json"),
                    (
                        "signature-input",
                        r#"sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#,
                    ),
                    ("signature", "sig-b25=:pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=:"),
                ]
                .into_iter()
                .collect();
                run.give(inputs);
            }
            Turn::Ask(other) => panic!("{other:?}"),
            Turn::Done => {
                let decision = run.take_decision();
                return match decision.verdict {
                    Verdict::Continue(_) => Ok(()),
                    _ => Err(decision.reason.unwrap()),
                };
            }
        }
    }
}

#[test]
fn admits_the_example_of_the_standard() {
    assert_eq!(decide("example.com"), Ok(()));
    assert_eq!(decide("EXAMPLE.com:443"), Ok(()), "an authority has a normal form");
    assert_eq!(decide("example.org"), Err("signature_wrong"));
}
