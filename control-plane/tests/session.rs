//! The xDS session: requests and snapshots in, responses and events out, without a socket.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use postern::{
    model::File,
    pipeline::compile,
    snapshot::{FilterCode, ResourceType, Snapshot},
    xds::session::{Memory, Outcome, Reaction, Request, Response, Session},
};

/// A gateway, a consumer and a policy that sets `header`, over the services that `services` names.
fn snapshot(header: &str, services: &[&str]) -> Snapshot {
    let mut text = format!(
        "
apiVersion: postern/v1
kind: Consumer
metadata: {{ name: mobile }}
spec: {{ apiKeys: [{{ key: secret }}] }}
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: {{ name: guard }}
spec:
  targetRef: {{ kind: HTTPRoute, name: r }}
  request:
    - {{ policy: headers, params: {{ set: {{ x-test: {header} }} }} }}
"
    );
    for (index, service) in services.iter().enumerate() {
        let port = 9000 + index;
        text.push_str(&format!(
            "
---
apiVersion: postern/v1
kind: Service
metadata: {{ name: {service} }}
spec: {{ endpoints: [{{ address: 127.0.0.1, port: {port} }}] }}
"
        ));
    }
    compile(&[File { name: "test.yaml".into(), bytes: text.into() }], &FilterCode::new(vec![1], None)).unwrap()
}

fn names(response: &Response) -> Vec<&str> {
    response.set.resources.iter().map(|resource| resource.name.as_str()).collect()
}

fn subscribe(names: &[&str]) -> Request {
    Request { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Request::default() }
}

fn answer(response: &Response, names: &[&str]) -> Request {
    let version = response.set.version.to_string();
    Request { version, nonce: response.nonce.clone(), ..subscribe(names) }
}

fn refuse(response: &Response, names: &[&str]) -> Request {
    Request { error: Some("bad".into()), version: String::new(), ..answer(response, names) }
}

fn only(reaction: Reaction) -> Response {
    assert_eq!(reaction.responses.len(), 1, "{reaction:?}");
    reaction.responses.into_iter().next().unwrap()
}

fn silent(reaction: &Reaction) {
    assert_eq!(reaction.responses, [], "{reaction:?}");
}

fn outcomes(reaction: &Reaction) -> Vec<&Outcome> {
    reaction.events.iter().map(|event| &event.outcome).collect()
}

use ResourceType::{Cluster, Endpoints, ExtensionConfig};

#[test]
fn sends_everything_for_a_wildcard_and_is_silent_after_its_ack() {
    let snapshot = snapshot("a", &["x", "y"]);
    for wildcard in [&[][..], &["*"]] {
        let mut session = Session::default();
        let response = only(session.on_request(Cluster, subscribe(wildcard), Some(&snapshot)));
        assert_eq!(names(&response), ["x", "y"]);
        let acked = session.on_request(Cluster, answer(&response, wildcard), Some(&snapshot));
        silent(&acked);
        assert_eq!(outcomes(&acked), [&Outcome::Acked]);
    }
}

#[test]
fn sends_the_full_set_when_a_cluster_goes_and_an_empty_one_when_all_go() {
    let mut session = Session::default();
    let first = only(session.on_request(Cluster, subscribe(&[]), Some(&snapshot("a", &["x", "y"]))));
    session.on_request(Cluster, answer(&first, &[]), Some(&snapshot("a", &["x", "y"])));
    assert_eq!(names(&only(session.on_snapshot(&snapshot("a", &["x"])))), ["x"]);
    assert_eq!(names(&only(session.on_snapshot(&snapshot("a", &[])))), Vec::<&str>::new());
}

#[test]
fn sends_only_the_names_that_were_asked_for_and_new_ones_when_they_are() {
    let snapshot = snapshot("a", &["x", "y"]);
    let mut session = Session::default();
    let response = only(session.on_request(Endpoints, subscribe(&["x"]), Some(&snapshot)));
    assert_eq!(names(&response), ["x"]);
    let response = only(session.on_request(Endpoints, answer(&response, &["x", "y"]), Some(&snapshot)));
    assert_eq!(names(&response), ["x", "y"]);
    silent(&session.on_request(Endpoints, answer(&response, &["x"]), Some(&snapshot)));
    let again = Request { nonce: response.nonce.clone(), ..subscribe(&["x", "y"]) };
    assert_eq!(names(&only(session.on_request(Endpoints, again, Some(&snapshot)))), ["x", "y"]);
}

#[test]
fn pushes_a_name_that_is_created_later() {
    let mut session = Session::default();
    let response = only(session.on_request(Endpoints, subscribe(&["x", "z"]), Some(&snapshot("a", &["x"]))));
    assert_eq!(names(&response), ["x"]);
    silent(&session.on_request(Endpoints, answer(&response, &["x", "z"]), Some(&snapshot("a", &["x"]))));
    assert_eq!(names(&only(session.on_snapshot(&snapshot("a", &["x", "z"])))), ["x", "z"]);
}

#[test]
fn holds_a_subscription_until_there_is_a_snapshot() {
    let mut session = Session::default();
    silent(&session.on_request(Cluster, subscribe(&[]), None));
    assert_eq!(names(&only(session.on_snapshot(&snapshot("a", &["x"])))), ["x"]);
}

#[test]
fn is_silent_when_a_snapshot_has_equal_content() {
    let mut session = Session::default();
    session.on_request(Cluster, subscribe(&[]), Some(&snapshot("a", &["x"])));
    session.on_request(ExtensionConfig, subscribe(&["postern"]), Some(&snapshot("a", &["x"])));
    silent(&session.on_snapshot(&snapshot("a", &["x"])));
}

#[test]
fn ignores_nonces_that_are_stale_or_were_never_issued() {
    let mut session = Session::default();
    let first = only(session.on_request(Cluster, subscribe(&[]), Some(&snapshot("a", &["x"]))));
    let second = only(session.on_snapshot(&snapshot("a", &["y"])));
    let current = snapshot("a", &["y"]);
    for nonce in [first.nonce.as_str(), "never", ""] {
        let stale = Request { nonce: nonce.to_owned(), error: Some("stale".into()), ..subscribe(&["z"]) };
        assert_eq!(session.on_request(Cluster, stale, Some(&current)), Reaction::default());
    }
    assert_eq!(outcomes(&session.on_request(Cluster, answer(&second, &[]), Some(&current))), [&Outcome::Acked]);
}

#[test]
fn takes_a_nonce_of_another_stream_for_a_first_request() {
    let mut session = Session::default();
    let request = Request { nonce: "17".into(), ..subscribe(&[]) };
    assert_eq!(names(&only(session.on_request(Cluster, request, Some(&snapshot("a", &["x"]))))), ["x"]);
}

#[test]
fn sends_nothing_to_a_client_that_comes_back_up_to_date() {
    let snapshot = snapshot("a", &["x"]);
    let before = only(Session::default().on_request(Cluster, subscribe(&[]), Some(&snapshot)));
    let request = Request { version: before.set.version.to_string(), ..subscribe(&[]) };
    let reaction = Session::default().on_request(Cluster, request, Some(&snapshot));
    silent(&reaction);
    assert_eq!(outcomes(&reaction), [&Outcome::Acked]);
}

#[test]
fn returns_a_node_to_its_last_good_version_after_a_nack_and_never_sends_the_bad_one_again() {
    let (good, bad) = (snapshot("good", &[]), snapshot("bad", &[]));
    let name = &["postern"];
    let mut session = Session::default();
    let first = only(session.on_request(ExtensionConfig, subscribe(name), Some(&good)));
    session.on_request(ExtensionConfig, answer(&first, name), Some(&good));
    let rejected = only(session.on_snapshot(&bad));
    let nacked = session.on_request(ExtensionConfig, refuse(&rejected, name), Some(&bad));
    assert_eq!(outcomes(&nacked), [&Outcome::Nacked("bad".into())]);
    let restored = only(nacked);
    assert_eq!(restored.set, first.set);
    let reaction = session.on_request(ExtensionConfig, answer(&restored, name), Some(&bad));
    silent(&reaction);
    assert_eq!(outcomes(&reaction), [&Outcome::Restored]);
    silent(&session.on_snapshot(&bad));
    // Back to what it runs: nothing to send, and its status clears.
    let reaction = session.on_snapshot(&good);
    silent(&reaction);
    assert_eq!(outcomes(&reaction), [&Outcome::Acked]);
    // Another version is another chance.
    assert_ne!(only(session.on_snapshot(&snapshot("other", &[]))).set, rejected.set);
}

#[test]
fn remembers_a_nack_on_the_nodes_next_stream() {
    let (good, bad) = (snapshot("good", &[]), snapshot("bad", &[]));
    let name = &["postern"];
    let mut session = Session::new(Memory::default());
    let first = only(session.on_request(ExtensionConfig, subscribe(name), Some(&good)));
    session.on_request(ExtensionConfig, answer(&first, name), Some(&good));
    let rejected = only(session.on_snapshot(&bad));
    session.on_request(ExtensionConfig, refuse(&rejected, name), Some(&bad));
    let mut next = Session::new(session.into_memory());
    let response = only(next.on_request(ExtensionConfig, subscribe(name), Some(&bad)));
    assert_eq!(response.set, first.set);
}

#[test]
fn answers_a_client_that_refuses_everything_once_a_version() {
    let mut session = Session::default();
    let mut sent = Vec::new();
    for version in ["a", "b", "c"] {
        let snapshot = snapshot(version, &["x"]);
        let mut reaction = match version {
            "a" => session.on_request(ExtensionConfig, subscribe(&["postern"]), Some(&snapshot)),
            _ => session.on_snapshot(&snapshot),
        };
        for _ in 0..10 {
            let Some(response) = reaction.responses.pop() else { break };
            sent.push(response.set.version.clone());
            reaction = session.on_request(ExtensionConfig, refuse(&response, &["postern"]), Some(&snapshot));
        }
    }
    assert_eq!(sent.len(), 3);
}

#[test]
fn pushes_in_the_order_in_which_resources_need_each_other() {
    let text = |port: u16| {
        format!(
            "
apiVersion: postern/v1
kind: Gateway
metadata: {{ name: edge }}
spec:
  listeners: [{{ name: http, port: {port} }}]
  routes: [{{ name: r{port}, service: s }}]
---
apiVersion: postern/v1
kind: Service
metadata: {{ name: s }}
spec: {{ endpoints: [{{ address: 127.0.0.1, port: {port} }}] }}
"
        )
    };
    let compiled = |port| {
        let file = File { name: "test.yaml".into(), bytes: text(port).into() };
        compile(&[file], &FilterCode::new(vec![1], None)).unwrap()
    };
    let mut session = Session::default();
    let before = compiled(1);
    for (kind, names) in [
        (ResourceType::RouteConfiguration, &["edge"][..]),
        (ResourceType::Listener, &[]),
        (ResourceType::ExtensionConfig, &["postern"]),
        (ResourceType::Endpoints, &["s"]),
        (ResourceType::Cluster, &[]),
    ] {
        session.on_request(kind, subscribe(names), Some(&before));
    }
    let after = session.on_snapshot(&compiled(2));
    let kinds: Vec<_> = after.responses.iter().map(|response| response.kind).collect();
    // The cluster itself did not change: it says only that its endpoints come by EDS.
    assert_eq!(
        kinds,
        [
            ResourceType::Endpoints,
            ResourceType::ExtensionConfig,
            ResourceType::Listener,
            ResourceType::RouteConfiguration
        ]
    );
    let mut nonces: Vec<_> = after.responses.iter().map(|response| response.nonce.as_str()).collect();
    nonces.dedup();
    assert_eq!(nonces.len(), 4, "nonces are unique");
}
