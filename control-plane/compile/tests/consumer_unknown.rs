//! Steps that ask for a consumer where there may be none: a finding at admission, since such requests get a 403.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use postern_compile::review::review;
use postern_model::{File, read};

const SITE: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes: [{ name: orders, service: backend }]
---
apiVersion: postern/v1
kind: Service
metadata: { name: backend }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
---
apiVersion: postern/v1
kind: Issuer
metadata: { name: accounts }
spec: { issuer: https://accounts.test, jwksUri: https://accounts.test/keys }
---
";
const ALICE: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: alice }
spec: { apiKeys: [{ key: a }], groups: [staff] }
---
";
const TOKEN: &str = "{ policy: jwtValidation, params: { consumer: sub } }";
const LIMIT: &str = "{ policy: rateLimit, params: { requests: 1, per: 1s, key: consumer.name } }";
const KEY: &str = "{ policy: apiKeyAuth, params: { header: x-key } }";

/// Compares the findings of this code for a chain, without their resource.
#[track_caller]
fn check(consumers: &str, request: &[&str], response: &[&str], expect: &[&str]) {
    let policy = format!(
        "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p }}\nspec: {{ targetRef: {{ kind: HTTPRoute, name: \
         orders }}, request: [{}], response: [{}] }}\n",
        request.join(", "),
        response.join(", ")
    );
    let text = format!("{SITE}{consumers}{policy}").replace(", response: []", "");
    let bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]).unwrap_or_else(|it| panic!("{it}"));
    let found = review(&bundle).unwrap_or_else(|errors| panic!("{errors}"));
    let found = found.into_iter().filter(|finding| finding.code == "consumer-unknown").map(|finding| {
        let text = finding.at.to_string();
        text.split_once("RoutePolicy `p`: ").unwrap().1.to_owned()
    });
    assert_eq!(found.collect::<Vec<_>>(), expect);
}

#[test]
fn warns_where_a_token_may_name_no_consumer() {
    let message = "spec.request[1].params.key: `consumer.name` may have no value, because step `jwtValidation` lets tokens \
                   pass whose `sub` names no Consumer: such a request gets 403. Add a `roleCheck` with `groups` before \
                   this step, or write `has(consumer.name) ? … : …`";
    check(ALICE, &[TOKEN, LIMIT], &[], &[message]);
    // One finding a chain: what follows is not reached without a consumer.
    check(ALICE, &[TOKEN, LIMIT, "{ policy: headers, when: \"consumer.name == 'a'\" }"], &[], &[message]);
}

#[test]
fn warns_where_no_consumer_is_declared() {
    let message = "spec.request[1].params.key: `consumer.name` has no value, because step `jwtValidation` lets tokens pass \
                   whose `sub` names no Consumer, and no Consumer is declared: every request gets 403";
    check("", &[TOKEN, LIMIT], &[], &[message]);
}

#[test]
fn warns_where_no_step_looks_for_a_consumer() {
    let limit = "spec.request[0].params.key: `consumer.name` has no value, because no step before it identifies a \
                 consumer: every request gets 403";
    // The order counts.
    check(ALICE, &[LIMIT, KEY], &[], &[limit]);
    let token = "spec.request[1].when: `consumer.groups` has no value, because step `jwtValidation` has no `consumer`, \
                 the claim that names one: every request gets 403";
    check(
        ALICE,
        &["{ policy: jwtValidation }", "{ policy: headers, when: \"'a' in consumer.groups\" }"],
        &[],
        &[token],
    );
    let rule = "{ policy: validate, onFailure: continue, params: { rules: [{ rule: \"true\", message: a }, { rule: \
                \"consumer.name != 'bob'\", message: b }] } }";
    let message = "spec.request[0].params.rules[1].rule: `consumer.name` has no value, because no step before it identifies \
                   a consumer: every request passes as `onFailure` says";
    check(ALICE, &[rule], &[], &[message]);
    let response = "spec.response[0].when: `consumer.name` has no value, because no step before it identifies a consumer: \
                    every request gets 403";
    check(ALICE, &["{ policy: cors }"], &["{ policy: headers, when: \"consumer.name == 'a'\" }"], &[response]);
}

#[test]
fn warns_where_an_authentication_step_can_be_passed_without_a_consumer() {
    let message = "spec.request[1].params.key: `consumer.name` may have no value, because step `apiKeyAuth` lets some requests \
                   pass without one: such a request gets 403. Add a `roleCheck` with `groups` before this step, or write \
                   `has(consumer.name) ? … : …`";
    for open in
        ["required: false } }", " }, mode: shadow }", " }, onFailure: continue }", " }, when: request.path != '/' }"]
    {
        let step = format!("{{ policy: apiKeyAuth, params: {{ header: x-key, {open}");
        check(ALICE, &[&step, LIMIT], &[], &[message]);
    }
}

#[test]
fn is_silent_where_there_is_always_a_consumer_or_somebody_asks_first() {
    let limit = |key: &str, rest: &str| {
        format!("{{ policy: rateLimit, params: {{ requests: 1, per: 1s, key: \"{key}\" }}{rest} }}")
    };
    check(ALICE, &[KEY, LIMIT], &["{ policy: headers, when: \"consumer.name == 'a'\" }"], &[]);
    check(ALICE, &[TOKEN, "{ policy: roleCheck, params: { groups: [staff] } }", LIMIT], &[], &[]);
    check(ALICE, &[TOKEN, &limit("has(consumer.name) ? consumer.name : jwt.claims.sub", "")], &[], &[]);
    check(ALICE, &[TOKEN, &limit("consumer.name", ", when: has(consumer.name)")], &[], &[]);
    check(ALICE, &[TOKEN, &limit("jwt.claims.sub", "")], &[], &[]);
    check(ALICE, &["{ policy: auditLog, when: \"consumer.name == 'a'\" }"], &[], &[]);
}
