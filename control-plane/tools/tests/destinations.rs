//! What `explain` says of calls of a route's services, with the place that each field comes from.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use postern_base::node::NodeIdentity;
use postern_model::{File, read};
use postern_tools::{
    explain::{Explanation, FieldLine, Subject, explain},
    simulate::Request,
};

const SITE: &str = "
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners: [{ name: http, port: 8080 }]
  routes:
    - { name: plain, match: { path: { prefix: /plain } }, service: one }
    - { name: own, service: two, retries: { on: [reset], perTryTimeout: 2s } }
---
apiVersion: postern/v1
kind: Service
metadata: { name: one }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
---
apiVersion: postern/v1
kind: Service
metadata: { name: two }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }], healthCheck: { http: { path: /own } } }
";

fn attached(kind: &str, name: &str, rest: &str) -> String {
    format!(
        "---\napiVersion: postern/v1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {{ targetRef: {{ kind: Mesh }}, {rest} }}\n"
    )
}

fn explained(route: &str, overriding: bool) -> Explanation {
    let to = |conf: &str| format!("override: {overriding}, to: [{{ targetRef: {{ kind: Mesh }}, {conf} }}]");
    let text = [
        SITE.to_owned(),
        attached("Timeout", "t", &to("connectTimeout: 1s")),
        attached("CircuitBreaker", "c", &to("connectionLimits: { maxRequests: 7 }")),
        attached("Retry", "low", "to: [{ targetRef: { kind: Mesh }, numRetries: 2 }]"),
        attached("Retry", "r", &to("numRetries: 3")),
        attached("HealthCheck", "h", &to("tcp: {}")),
        attached("Tracing", "x", "collector: { grpc: { address: 127.0.0.1, port: 1 } }, sampling: { random: 5 }"),
    ];
    let bundle = read(&[File { name: "f".to_owned(), bytes: text.concat().into_bytes() }]).unwrap();
    explain(&bundle, &NodeIdentity::default(), Subject { route: Some(route), ..Subject::default() }).unwrap()
}

fn lines(fields: &[FieldLine]) -> Vec<String> {
    let line = |field: &FieldLine| {
        format!("{}={} {}: {}", field.field, field.value, field.origin.resource, field.origin.field)
    };
    fields.iter().map(line).collect()
}

#[test]
fn says_where_every_field_of_a_call_comes_from() {
    let explanation = explained("plain", false);
    let one = &explanation.destinations[0];
    assert_eq!((explanation.destinations.len(), one.service.as_str()), (1, "one"));
    assert_eq!(lines(&one.timeout), [r#"connectTimeout="1s" Timeout `t`: spec.to[0].connectTimeout"#]);
    let limit = "connectionLimits.maxRequests=7 CircuitBreaker `c`: spec.to[0].connectionLimits.maxRequests";
    assert_eq!(lines(&one.circuit_breaker), [limit]);
    assert_eq!(lines(&one.retry), ["numRetries=3 Retry `r`: spec.to[0].numRetries"]);
    assert_eq!(
        (one.retry[0].over[0].origin.resource.as_str(), &one.retry[0].over[0].value),
        ("Retry `low`", &2.into())
    );
    assert_eq!(lines(&one.health_check), ["tcp={} HealthCheck `h`: spec.to[0].tcp"]);
    let collector = r#"collector.grpc.address="127.0.0.1" Tracing `x`: spec.collector.grpc.address"#;
    assert_eq!(lines(&explanation.tracing)[0], collector);
    let shown = anstream::adapter::strip_str(&explanation.to_string()).to_string();
    for text in
        ["calls of one\n    Timeout\n", "    CircuitBreaker\n", "    Retry\n", "    HealthCheck\n", "\ntracing\n"]
    {
        assert!(shown.contains(text), "{shown}");
    }
}

#[test]
fn says_that_a_route_and_a_service_say_it_themselves_unless_overridden() {
    let own = explained("own", false);
    assert_eq!(
        lines(&own.destinations[0].retry),
        [
            "attempts=1 Gateway `edge`: spec.routes[1].retries.attempts",
            r#"on=["reset"] Gateway `edge`: spec.routes[1].retries.on"#,
            r#"perTryTimeout="2000ms" Gateway `edge`: spec.routes[1].retries.perTryTimeout"#,
        ]
    );
    let check = lines(&own.destinations[0].health_check);
    assert!(check.contains(&r#"http.path="/own" Service `two`: spec.healthCheck.http.path"#.to_owned()), "{check:?}");
    let overridden = explained("own", true);
    assert_eq!(lines(&overridden.destinations[0].retry), ["numRetries=3 Retry `r`: spec.to[0].numRetries"]);
    assert_eq!(lines(&overridden.destinations[0].health_check), ["tcp={} HealthCheck `h`: spec.to[0].tcp"]);
}

#[test]
fn knows_outbound_routes_and_their_names() {
    let outbound = "to: [{ targetRef: { kind: Service, name: one }, host: '{service}.mesh' }]";
    let policy = attached("RoutePolicy", "p", "request: [{ policy: respond, params: { status: 418 } }]");
    let permission = attached("TrafficPermission", "q", "from: [{ targetRef: { kind: Mesh }, action: DENY }]");
    let text = [SITE.to_owned(), attached("VirtualOutbound", "v", outbound), policy, permission].concat();
    let bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]).unwrap();
    let at = |host: &str| {
        let request = Request { host: host.to_owned(), ..Request::default() };
        let subject =
            Subject { gateway: Some("outbound:127.0.0.1:15001"), request: Some(&request), ..Subject::default() };
        explain(&bundle, &NodeIdentity::default(), subject).unwrap()
    };
    let explained = at("ONE.mesh:80");
    assert_eq!(explained.reached.as_ref().unwrap().route.as_deref(), Some("outbound:one"));
    assert_eq!(explained.declared.as_ref().unwrap().gateway, "outbound:127.0.0.1:15001");
    let named = lines(&explained.destinations[0].virtual_outbound);
    assert_eq!(named, [r#"host="{service}.mesh" VirtualOutbound `v`: spec.to[0].host"#]);
    // The permission is for incoming requests.
    assert!(explained.permissions.is_empty() && explained.request.len() == 1);
    assert_eq!(explained.decision.as_ref().unwrap().status, Some(418));
    assert_eq!(at("two.mesh").reached.unwrap().answer.unwrap().status, 404);
    let subject = Subject { route: Some("outbound:two"), ..Subject::default() };
    let hint = explain(&bundle, &NodeIdentity::default(), subject).unwrap().hint.unwrap();
    assert!(hint.contains("did you mean `outbound:one`"), "{hint}");
}
