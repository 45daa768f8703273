//! No spelling of a guarded path leads past its route. The tests try every byte, raw and escaped, in every position,
//! for every kind of path match, beside an open catch-all.
//!
//! The upstream of the catch-all stands for one that decodes escapes, as nearly all do: a path that it then takes for a
//! guarded one must not have come by the catch-all.

use std::collections::BTreeMap;

use postern_tests::{Client, Received, Request, http2::H2};

use crate::{edge::Edge, world::KEY};

/// A guarded route, and whether it is for a path after decoding.
struct Guarded {
    route: &'static str,
    is_for: fn(&[u8]) -> bool,
}

const ROUTES: [Guarded; 8] = [
    Guarded {
        route: "name: template, match: { path: { template: '/t/{id}/keys' } }",
        is_for: |path| between(path, b"/t/", b"/keys"),
    },
    Guarded {
        route: "name: rest, match: { path: { template: '/r/{rest=**}' } }",
        is_for: |path| path.starts_with(b"/r/"),
    },
    Guarded {
        route: "name: literal, match: { path: { template: '/l@x/{id}' } }",
        is_for: |path| between(path, b"/l@x/", b""),
    },
    Guarded { route: "name: exact, match: { path: { exact: /e/plain } }", is_for: |path| path == b"/e/plain" },
    Guarded {
        route: "name: special, match: { path: { exact: \"/s/@!$&'()*+,;=:[]{}|^é%\" } }",
        is_for: |path| path == "/s/@!$&'()*+,;=:[]{}|^é%".as_bytes(),
    },
    Guarded {
        route: "name: prefix, match: { path: { prefix: /p } }",
        is_for: |path| path == b"/p" || path.starts_with(b"/p/"),
    },
    Guarded {
        route: "name: prefixed, match: { path: { prefix: '/@admin' } }",
        is_for: |path| path == b"/@admin" || path.starts_with(b"/@admin/"),
    },
    Guarded {
        route: "name: regex, match: { path: { regex: '/x/[^/]+/keys' } }",
        is_for: |path| between(path, b"/x/", b"/keys"),
    },
];

/// Whether one segment, which is not empty, is all between two texts.
fn between(path: &[u8], before: &[u8], after: &[u8]) -> bool {
    let inside = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    inside.is_some_and(|inside| !inside.is_empty() && !inside.contains(&b'/'))
}

/// Where a byte is put: `_` stands for it.
const PLACES: [&str; 16] = [
    "/t/_/keys",
    "/t/_a/keys",
    "/t/a_b/keys",
    "/t/a_/keys",
    "/t/a/_keys",
    "/t/a/keys_",
    "/t/a/keys?_",
    "/r/_",
    "/r/a/_/b",
    "/x/_/keys",
    "/x/a_b/keys",
    "/_p",
    "/p_",
    "/p/_",
    "/l_x/a",
    "/_admin",
];

fn undone(path: &str) -> Vec<u8> {
    let path = path.split('?').next().unwrap().as_bytes();
    let mut bytes = Vec::new();
    let mut index = 0;
    while index < path.len() {
        let escape = path
            .get(index + 1..index + 3)
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match escape.filter(|_| path[index] == b'%') {
            Some(byte) => {
                bytes.push(byte);
                index += 3;
            }
            None => {
                bytes.push(path[index]);
                index += 1;
            }
        }
    }
    bytes
}

/// The route that is for a path, by what its upstream saw.
fn expected(seen: &str) -> &'static str {
    let path = undone(seen);
    let guarded = ROUTES.iter().find(|guarded| (guarded.is_for)(&path));
    guarded.map_or("open", |guarded| guarded.route.split_once("name: ").unwrap().1.split(',').next().unwrap())
}

fn check(answer: &Received, what: &[u8], counts: &mut BTreeMap<String, usize>) {
    let route = answer.header("x-route").unwrap_or("none").to_owned();
    if answer.status == 200 {
        let echo: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let seen = echo["path"].as_str().unwrap();
        assert_eq!(route, expected(seen), "{} is {seen} upstream", String::from_utf8_lossy(what));
    } else {
        assert!(matches!(answer.status, 400 | 404), "{}: {answer:?}", String::from_utf8_lossy(what));
    }
    *counts.entry(if answer.status == 200 { route } else { answer.status.to_string() }).or_default() += 1;
}

fn edge() -> Edge {
    Edge::start_with("{ pathParameters: keep }", &ROUTES.map(|guarded| guarded.route), &["name: open"], "")
}

fn get(path: impl AsRef<[u8]>) -> Request {
    Request::get(path).header("x-api-key", KEY)
}

#[test]
fn every_byte_in_every_place_takes_the_route_that_its_upstream_would() {
    let edge = edge();
    let (mut client, mut counts) = (Client::new(edge.address), BTreeMap::new());
    for place in PLACES {
        let (before, after) = place.split_once('_').unwrap();
        for byte in 0..=255_u8 {
            let spellings = [vec![byte], format!("%{byte:02X}").into_bytes(), format!("%{byte:02x}").into_bytes()];
            for spelling in spellings {
                // These end the line, or the target in it, and what follows is not this request any more.
                if matches!(spelling[..], [b'\n' | b'\r' | b' ']) {
                    continue;
                }
                let path = [before.as_bytes(), &spelling, after.as_bytes()].concat();
                check(&client.send(&get(&path)).unwrap(), &path, &mut counts);
            }
        }
    }
    for route in ["template", "rest", "literal", "prefix", "prefixed", "regex", "open", "400"] {
        assert!(counts.get(route).is_some_and(|count| *count > 0), "nothing took {route}: {counts:?}");
    }
}

#[test]
fn every_spelling_of_a_path_with_reserved_characters_takes_its_route() {
    let edge = edge();
    let (mut client, mut counts) = (Client::new(edge.address), BTreeMap::new());
    let path = "/s/@!$&'()*+,;=:[]{}|^é%".as_bytes();
    for chosen in 3..path.len() {
        for escaped in [true, false] {
            let spell = |(index, byte): (usize, &u8)| {
                let escape = index >= 3 && (*byte == b'%' || !byte.is_ascii() || (index == chosen) == escaped);
                if escape { format!("%{byte:02x}") } else { char::from(*byte).to_string() }
            };
            let text: String = path.iter().enumerate().map(spell).collect();
            check(&client.send(&get(&text)).unwrap(), text.as_bytes(), &mut counts);
        }
    }
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["special"], "{counts:?}");
    for text in [
        "/e/plain",
        "/e/%70lain",
        "/%65/plain",
        "/e//plain",
        "/e/./plain",
        "/q/../e/plain",
        "/q/%2e%2e/e/plain",
        "/e\\plain",
    ] {
        assert_eq!(client.send(&get(text)).unwrap().header("x-route"), Some("exact"), "{text}");
    }
}

#[test]
fn the_same_holds_for_http2() {
    let edge = edge();
    let mut counts = BTreeMap::<Option<u16>, usize>::new();
    for place in ["/t/_/keys", "/t/a_b/keys", "/r/_", "/p/_", "/x/a_/keys"] {
        let (before, after) = place.split_once('_').unwrap();
        for byte in 0..=127_u8 {
            for spelling in [char::from(byte).to_string(), format!("%{byte:02x}")] {
                let path = [before, &spelling, after].concat();
                let mut client = H2::connect(edge.address).unwrap();
                let headers = [(":method", "GET"), (":path", path.as_str()), (":scheme", "http"), (":authority", "a")];
                let outcome = client.request(&headers).unwrap();
                if let postern_tests::http2::StreamEnd::Answered { status: 200, body } = &outcome {
                    let echo: serde_json::Value = serde_json::from_str(body).unwrap();
                    assert_eq!(expected(echo["path"].as_str().unwrap()), "open", "{path:?}: {body}");
                }
                *counts.entry(outcome.status()).or_default() += 1;
            }
        }
    }
    assert!(counts.get(&Some(401)).is_some_and(|count| *count > 500), "{counts:?}");
}
