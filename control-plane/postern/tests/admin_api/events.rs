//! Following the journal, from now on or from an earlier event.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

use crate::server::{RESOURCES, Server};

/// The events of a stream that has ended: name, id and data.
fn events(body: &str) -> Vec<(String, String, Value)> {
    let field = |event: &str, name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    let whole = body.split("\n\n").filter(|event| event.contains("data: "));
    whole
        .map(|event| (field(event, "event"), field(event, "id"), serde_json::from_str(&field(event, "data")).unwrap()))
        .collect()
}

#[test]
fn remembers_what_happened() {
    let server = Server::running();
    let seen = events(&server.get("/api/v1/events?last=100&follow=false").body);
    let names: Vec<_> = seen.iter().map(|(name, ..)| name.as_str()).collect();
    let expect = ["revisionAccepted", "rollout", "nodeConnected", "nodeAcked", "nodeConnected", "nodeAcked", "rollout"];
    assert_eq!(names, expect);
    assert_eq!((&seen[0].2["revision"], &seen[0].2["author"]), (&1.into(), &"alice".into()));
    assert_eq!((&seen[3].2["node"], &seen[3].2["type"]), (&"edge-1".into(), &"extensionConfig".into()));
    assert_eq!((&seen[6].2["state"], &seen[6].2["event"]), (&"completed".into(), &"rollout".into()));
    assert_eq!(events(&server.get("/api/v1/events?last=2&follow=false").body).len(), 2);
    assert_eq!(events(&server.get("/api/v1/events?follow=false").body).len(), 0);
}

#[test]
fn goes_on_after_the_last_event_that_was_seen() {
    let server = Server::running();
    let seen = events(&server.get("/api/v1/events?last=100&follow=false").body);
    let resume =
        |id: &str| events(&server.send("get", "/api/v1/events?follow=false", &[("last-event-id", id)], None).body);
    let rest = resume(&seen[4].1);
    assert_eq!(rest.iter().map(|(_, id, _)| id).collect::<Vec<_>>(), [&seen[5].1, &seen[6].1]);
    // After an id of another process: all remembered events, and a notice that some may be missing.
    let all = resume("1-3");
    assert_eq!((all[0].0.as_str(), all.len()), ("missed", seen.len() + 1));
}

#[test]
fn tells_whoever_follows_at_once() {
    let server = Server::running();
    let address = server.address();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (&stream).write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(&stream).lines().map(|line| line.unwrap());
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    // Once the head has come, the client is a follower.
    let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert!(head.contains(&"content-type: text/event-stream".to_owned()), "{head:?}");
    assert_eq!(server.apply(&RESOURCES.replace("x-api-key", "x-key")).status, 200);
    let told = lines.find(|line| line.starts_with("data: ")).unwrap();
    assert!(told.contains(r#""event":"revisionAccepted","revision":2"#), "{told}");
}
