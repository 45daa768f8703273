//! Records on a real Envoy and a real collector: they come for every request, and delay none.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use postern_tests::{Collector, GrpcCollector, site::free_port, wait};
use serde_json::Value;

use crate::world::{KEY, World, users, users_with};

const SERVICE: &str = "---\napiVersion: postern/v1\nkind: Service\nmetadata: { name: collector }\nspec:\n  endpoints:\n    - address: 127.0.0.1\n      port: ";

/// How records reach the collector.
const HTTP: &str = "http: { service: collector, path: /records }";
const GRPC: &str = "grpc: { service: collector }";

/// A world whose chain of `users` has an audit log that posts to this port.
fn world(port: u16, params: &str) -> World {
    world_with(port, "http1", HTTP, params)
}

/// Like [`world`], with an audit log that calls this port by gRPC.
fn grpc_world(port: u16, params: &str) -> World {
    world_with(port, "grpc", GRPC, params)
}

fn world_with(port: u16, protocol: &str, to: &str, params: &str) -> World {
    let world = World::start();
    let gateway = world.site.read("gateway.yaml").unwrap();
    world.site.write("gateway.yaml", &format!("{gateway}{SERVICE}{port}\n  protocol: {protocol}\n")).unwrap();
    let step = format!("  request:\n    - policy: auditLog\n      params: {{ to: {{ log: true, {to} }}, {params} }}\n");
    world.site.replace("policies.yaml", "  request:\n", &step).unwrap();
    let mut client = world.client();
    // Denials are always recorded.
    wait::until_true("the audit log", || {
        assert_eq!(client.send(&users())?.status, 401);
        Ok(world.envoy.log().iter().any(|line| line.contains(r#"{"audit":"auditLog""#)))
    })
    .unwrap();
    world
}

/// The records that the collector has of requests to a path.
fn collected(collector: &Collector, path: &str) -> Vec<Value> {
    let posts = collector.posts().into_iter().inspect(|post| {
        assert_eq!((post.path.as_str(), post.content_type.as_str()), ("/records", "application/x-ndjson"));
        assert_eq!(post.body.matches('\n').count(), 1, "{post:?}");
    });
    let records = posts.map(|post| serde_json::from_str::<Value>(&post.body).unwrap());
    records.filter(|record| record["path"] == path).collect()
}

fn get(path: &str) -> postern_tests::Request {
    postern_tests::Request::get(path)
}

#[test]
fn posts_and_logs_admitted_and_denied_requests() {
    let collector = Collector::start(0).unwrap();
    let world = world(collector.address().port(), "headers: [x-api-key, user-agent]");
    assert_eq!(
        world.send(&get("/users/admitted?token=t").header("x-api-key", KEY).header("user-agent", "a")).status,
        200
    );
    assert_eq!(world.send(&get("/users/denied").header("x-api-key", "wrong-key")).status, 401);
    for (path, verdict, status, reason) in
        [("/users/admitted", "allow", 200, Value::Null), ("/users/denied", "deny", 401, "key_unknown".into())]
    {
        let (records, _) =
            wait::until("the record", || Ok(Some(collected(&collector, path)).filter(|records| !records.is_empty())))
                .unwrap();
        assert_eq!(records.len(), 1, "{records:?}");
        let record = &records[0];
        assert_eq!(
            (&record["verdict"], &record["status"], &record["reason"]),
            (&verdict.into(), &status.into(), &reason)
        );
        assert_eq!((&record["route"], &record["headers"]["x-api-key"]), (&"users".into(), &"[redacted]".into()));
        let line = format!(r#""path":"{path}""#);
        // A post and a line go two ways out of Envoy, and either may be here first.
        let logged = || -> Vec<_> { world.envoy.log().into_iter().filter(|entry| entry.contains(&line)).collect() };
        wait::until_true("the record's line", || Ok(!logged().is_empty())).unwrap();
        let logged = logged();
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].contains("[info]"), "{logged:?}");
    }
    assert_eq!(collected(&collector, "/users/admitted")[0]["consumer"], "mobile-app");
    let shown = |text: &str| ["wrong-key", KEY, "token=t"].iter().any(|secret| text.contains(secret));
    assert!(
        !collector.posts().iter().any(|post| shown(&post.body)) && !world.envoy.log().iter().any(|line| shown(line))
    );
    world.assert_no_vm_failure();
}

#[test]
fn calls_a_collector_by_grpc_with_admitted_and_denied_requests() {
    let collector = GrpcCollector::start().unwrap();
    let world = grpc_world(collector.address().port(), "headers: [x-api-key], fields: { tenant: 'consumer.name' }");
    let mut client = world.client();
    // The plan may be there before the collector's cluster.
    wait::until_true("the first record", || {
        assert_eq!(client.send(&get("/users/probe"))?.status, 401);
        Ok(!collector.records().is_empty())
    })
    .unwrap();
    assert_eq!(world.send(&get("/users/admitted?token=t").header("x-api-key", KEY)).status, 200);
    assert_eq!(world.send(&get("/users/denied").header("x-api-key", "wrong-key")).status, 401);
    let records = |path: &str| -> Vec<Value> {
        collector.records().into_iter().filter(|record| record["path"] == path).collect()
    };
    for (path, verdict, status, reason, tenant) in [
        ("/users/admitted", "allow", 200, Value::Null, Value::from("mobile-app")),
        ("/users/denied", "deny", 401, "key_unknown".into(), Value::Null),
    ] {
        let (records, _) =
            wait::until("the record", || Ok(Some(records(path)).filter(|records| !records.is_empty()))).unwrap();
        assert_eq!(records.len(), 1, "{records:?}");
        let record = &records[0];
        assert_eq!(
            (&record["verdict"], &record["status"], &record["reason"], &record["tenant"]),
            (&verdict.into(), &status.into(), &reason, &tenant)
        );
        assert_eq!((&record["route"], &record["headers"]["x-api-key"]), (&"users".into(), &"[redacted]".into()));
        assert!(record["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{record}");
    }
    let shown = |text: &str| ["wrong-key", KEY, "token=t"].iter().any(|secret| text.contains(secret));
    assert!(!collector.records().iter().any(|record| shown(&record.to_string())));
    world.assert_no_vm_failure();
}

#[test]
fn leaves_out_what_is_not_in_the_sample_but_no_denial() {
    let collector = Collector::start(0).unwrap();
    let world = world(collector.address().port(), "sample: 20");
    let mut client = world.client();
    for _ in 0..500 {
        assert_eq!(client.send(&get("/users/sampled").header("x-api-key", KEY)).unwrap().status, 200);
    }
    for _ in 0..50 {
        assert_eq!(client.send(&get("/users/refused")).unwrap().status, 401);
    }
    wait::until_true("every denial", || Ok(collected(&collector, "/users/refused").len() == 50)).unwrap();
    // 100 of 500, and seven standard deviations to either side.
    let sampled = collected(&collector, "/users/sampled").len();
    assert!((37..=163).contains(&sampled), "{sampled} of 500");
    world.assert_no_vm_failure();
}

#[test]
fn a_collector_that_is_dead_or_silent_neither_slows_nor_fails_requests() {
    // It takes connections and says nothing on them.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().port();
    let makers: [fn(u16, &str) -> World; 2] = [world, grpc_world];
    for (port, make) in [free_port().unwrap(), silent].into_iter().flat_map(|port| makers.map(|make| (port, make))) {
        let world = make(port, "sample: 100");
        let mut client = world.client();
        let start = Instant::now();
        for _ in 0..200 {
            assert_eq!(client.send(&users_with(KEY)).unwrap().status, 200);
        }
        let took = start.elapsed();
        // Each would wait 5 s, one after the other, if one waited at all.
        assert!(took < Duration::from_secs(60), "200 requests took {took:?}");
        world.assert_no_vm_failure();
    }
}

#[test]
fn records_an_admitted_request_whose_caller_went_away() {
    let collector = Collector::start(0).unwrap();
    let world = world(collector.address().port(), "sample: 100");
    let mut stream = TcpStream::connect(world.site.listener()).unwrap();
    // The upstream waits for a body that never comes.
    let head = format!("POST /users/gone HTTP/1.1\r\nhost: a\r\nx-api-key: {KEY}\r\ncontent-length: 9\r\n\r\nabc");
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(stream.read(&mut [0; 16]).is_err(), "there was an answer");
    drop(stream);
    let (records, _) = wait::until("the record", || {
        Ok(Some(collected(&collector, "/users/gone")).filter(|records| !records.is_empty()))
    })
    .unwrap();
    assert_eq!((&records[0]["verdict"], &records[0]["status"]), (&"allow".into(), &Value::Null), "{records:?}");
    world.assert_no_vm_failure();
}
