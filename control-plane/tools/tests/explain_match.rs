//! `explain` finds the route of a request by its `match`, where the route has no name.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests")]

use postern_base::node::NodeIdentity;
use postern_model::{File, read};
use postern_tools::{
    explain::{Subject, explain},
    simulate::Request,
};

const POLICY: &str = "apiVersion: postern/v1
kind: RoutePolicy
metadata: {name: admin}
spec:
  targetRef: {kind: HTTPRoute, name: admin}
  match: {path: {prefix: /admin}}
  request: [{policy: respond, params: {status: 403}}]
";

fn check(route: Option<&str>, path: &str, expect: &str, hint: &str) {
    let bundle = read(&[File { name: "f".to_owned(), bytes: POLICY.into() }]).unwrap();
    let request = Request { path: path.to_owned(), ..Request::default() };
    let subject = Subject { route, gateway: None, request: Some(&request) };
    let said = explain(&bundle, &NodeIdentity::default(), subject).unwrap();
    assert_eq!(said.route, expect, "{path}");
    assert_eq!(said.decision.is_some(), expect == "admin", "{path}");
    let found = said.hint.unwrap_or_default();
    assert!(found.contains(hint) && found.is_empty() == hint.is_empty(), "{path}: {found}");
}

#[test]
fn finds_the_route_of_a_request() {
    check(None, "/admin/x", "admin", "");
    check(Some("admin"), "/elsewhere", "admin", "");
    check(None, "/elsewhere", "", "");
    check(None, "/x/../admin", "", "refused with 400");
    check(Some("unknown"), "/elsewhere", "unknown", "no resource names route `unknown`");
}
