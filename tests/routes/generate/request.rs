//! Requests near the routes of a table.

use postern_tests::raw::{Protocol, RawRequest};
use serde_json::Value;

use super::{
    HOSTS,
    matching::{COOKIES, HEADERS, METHODS, QUERY, VALUES},
    path,
};
use crate::{random::Random, table::Table};

pub fn request(random: &mut Random, table: &Table) -> RawRequest {
    let route = random.pick(&table.routes);
    let matching = &route["match"];
    let protocol = if random.once_in(3) { Protocol::Http2 } else { Protocol::Http1 };
    let mut request = RawRequest {
        protocol,
        method: method(random, &matching["methods"]),
        target: path::near(random, &matching["path"]),
        hosts: vec![host(random, &route["hosts"]).into_bytes()],
        scheme: b"http".to_vec(),
        headers: vec![],
        body: None,
    };
    headers(random, &matching["headers"], &mut request);
    cookies(random, &matching["cookies"], &mut request);
    for _ in 0..random.below(3) {
        change(random, &mut request);
    }
    query(random, &matching["query"], &mut request.target);
    if protocol == Protocol::Http1 && random.once_in(12) {
        absolute(random, &mut request);
    }
    request
}

/// Bytes that can stand in a target without ending it.
fn in_http1(byte: u8) -> bool {
    !matches!(byte, 0 | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | b' ')
}

fn in_http2(_: u8) -> bool {
    true
}

fn method(random: &mut Random, methods: &Value) -> Vec<u8> {
    let listed = methods.as_array().map(|methods| random.pick(methods).as_str().unwrap().to_owned());
    let any = (*random.pick(&METHODS)).to_owned();
    let method = listed.filter(|_| !random.once_in(5)).unwrap_or(any);
    if random.once_in(20) { method.to_lowercase().into_bytes() } else { method.into_bytes() }
}

fn host(random: &mut Random, hosts: &Value) -> String {
    let pattern = match hosts.as_array() {
        Some(hosts) if !random.once_in(6) => random.pick(hosts).as_str().unwrap().to_owned(),
        _ => (*random.pick(&HOSTS)).to_owned(),
    };
    match pattern.strip_prefix('*') {
        None => pattern,
        Some("") => (*random.pick(&["other", "a.test", "[::1]", "x.a.test"])).to_owned(),
        Some(suffix) => format!("{}{suffix}", random.pick(&["z", "x", "x.y", "a"])),
    }
}

/// A value that fits a condition, mostly; none for what must be absent.
fn value(random: &mut Random, condition: &Value) -> Option<String> {
    let any = (*random.pick(&VALUES)).to_owned();
    match condition["exact"].as_str() {
        _ if random.once_in(8) => Some(any),
        Some(exact) => Some(exact.to_owned()),
        None if condition["present"] == false => None,
        None => Some(any),
    }
}

fn conditions(list: &Value) -> impl Iterator<Item = (&str, &Value)> {
    list.as_array().into_iter().flatten().map(|item| (item["name"].as_str().unwrap(), item))
}

fn headers(random: &mut Random, list: &Value, request: &mut RawRequest) {
    for (name, condition) in conditions(list) {
        if let Some(value) = value(random, condition) {
            request.headers.push((name.as_bytes().to_vec(), value.into_bytes()));
        }
    }
}

fn cookies(random: &mut Random, list: &Value, request: &mut RawRequest) {
    let mut pairs = Vec::new();
    for (name, condition) in conditions(list) {
        pairs.extend(value(random, condition).map(|value| format!("{name}={value}")));
    }
    if random.once_in(6) {
        pairs.insert(0, format!("{}={}", random.pick(&COOKIES), random.pick(&VALUES)));
    }
    if pairs.is_empty() {
        return;
    }
    if random.once_in(5) {
        let headers = pairs.into_iter().map(|pair| (b"cookie".to_vec(), pair.into_bytes()));
        request.headers.extend(headers);
    } else {
        let between = *random.pick(&["; ", ";", " ;\t", ", ", ";;"]);
        request.headers.push((b"Cookie".to_vec(), pairs.join(between).into_bytes()));
    }
}

fn query(random: &mut Random, list: &Value, target: &mut Vec<u8>) {
    let mut pairs = Vec::new();
    for (name, condition) in conditions(list) {
        let Some(value) = value(random, condition) else { continue };
        let name = if random.once_in(10) { name.replacen('q', "%71", 1) } else { name.to_owned() };
        pairs.push(if value.is_empty() && random.once_in(2) { name } else { format!("{name}={value}") });
    }
    if random.once_in(6) {
        let extra = format!("{}={}", random.pick(&QUERY), random.pick(&VALUES));
        let place = random.below(pairs.len() + 1);
        pairs.insert(place, extra);
    }
    if !pairs.is_empty() {
        let between = *random.pick(&["&", "&", "&", "&&", ";"]);
        target.extend(format!("?{}", pairs.join(between)).bytes());
    }
}

/// Changes one thing about a request.
fn change(random: &mut Random, request: &mut RawRequest) {
    match random.below(4) {
        0 | 1 => {
            let bytes = if request.protocol == Protocol::Http1 { in_http1 } else { in_http2 };
            request.target = path::changed(random, request.target.clone(), bytes);
        }
        2 => change_host(random, &mut request.hosts),
        _ => change_headers(random, &mut request.headers),
    }
}

fn change_host(random: &mut Random, hosts: &mut Vec<Vec<u8>>) {
    let host = String::from_utf8_lossy(&hosts[0]).into_owned();
    let changed = match random.below(12) {
        0 => format!("{host}:80"),
        1 => format!("{host}:"),
        2 => format!("{host}."),
        3 => format!("{host}.:8080"),
        4 => format!("x@{host}"),
        5 => host.to_uppercase(),
        6 => format!("{host}:abc"),
        7 => format!("{host},b.test"),
        8 => format!(".{host}"),
        9 => format!("{host}.."),
        10 => String::new(),
        _ => {
            hosts.push((*random.pick(&HOSTS)).replace('*', "y").into_bytes());
            return;
        }
    };
    hosts[0] = changed.into_bytes();
}

fn change_headers(random: &mut Random, headers: &mut Vec<(Vec<u8>, Vec<u8>)>) {
    let name = random.pick(&HEADERS).as_bytes().to_vec();
    let value = random.pick(&VALUES).as_bytes().to_vec();
    match random.below(6) {
        0 => headers.push((name, value)),
        1 => headers.insert(0, (name, value)),
        2 => headers.push((name, [b" ", value.as_slice(), b"\t"].concat())),
        3 => headers.push((name.to_ascii_uppercase(), vec![b'a', 0xe9, 0xff])),
        4 => headers.push((name.iter().map(|byte| if *byte == b'-' { b'_' } else { *byte }).collect(), value)),
        _ => {
            headers.pop();
        }
    }
}

/// The absolute form, of which the authority counts and not Host.
fn absolute(random: &mut Random, request: &mut RawRequest) {
    let authority = std::mem::replace(&mut request.hosts, vec![host(random, &Value::Null).into_bytes()]);
    if request.target.starts_with(b"/") && !authority[0].is_empty() {
        request.target = [b"http://", authority[0].as_slice(), &request.target].concat();
    }
}
