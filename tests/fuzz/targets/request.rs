//! Requests: any headers, paths, query strings and cookies against a plan that reads all of them. What passes is what a
//! second, simpler reading says may pass.

#![cfg_attr(fuzzing, no_main)]

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use postern_engine::{Decision, Plan, Verdict};
use postern_fuzz::{
    common::{Driver, Writer},
    cost, decision, plans,
};
use postern_proto::plan::v1::api_key_auth::Source;

postern_fuzz::target!(run: run, seeds: seeds);

const KEYS: [&str; 3] = ["k1", "a b", "x=&;\"%"];
const BURST: usize = 2;

static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
    let mut writer = Writer::new();
    for (name, key) in ["alice", "bob", "carol"].into_iter().zip(KEYS) {
        writer.consumer(name, plans::digest(key), &[]);
    }
    writer.plan.expressions =
        vec![plans::path_starts_with("/a"), plans::query_contains("b=1"), plans::has_kind(), plans::user()];
    let sources = [
        ("header", Source::Header(writer.string("x-api-key"))),
        ("query", Source::Query(writer.string("key"))),
        ("cookie", Source::Cookie(writer.string("key"))),
    ];
    for (route, source) in sources {
        let steps = vec![plans::key_from(&mut writer, source)];
        writer.route(route, steps, vec![]);
    }
    let validate = vec![plans::validate(&mut writer, &[1, 2, 3])];
    writer.route("validate", validate, vec![]);
    let limit = vec![plans::limit(&mut writer, BURST as u32, 4)];
    writer.route("limit", limit, vec![]);
    writer.load()
});

/// An input is at most eight requests, apart by empty lines; a request is a header a line.
fn run(input: &[u8]) {
    let mut driver = Driver { now: 1_800_000_000_000_000_000, ..Driver::default() };
    let mut admitted: HashMap<Vec<u8>, usize> = HashMap::new();
    for request in requests(input).into_iter().take(8) {
        driver.headers = request;
        check_key(&mut driver, "header", |headers| values(headers, "x-api-key"));
        check_key(&mut driver, "query", query_keys);
        check_key(&mut driver, "cookie", cookie_keys);
        check_validate(&mut driver);
        check_limit(&mut driver, &mut admitted);
    }
}

type Headers = [(String, Vec<u8>)];

/// A name that is not UTF-8 cannot come from Envoy; such a line is left out.
fn requests(input: &[u8]) -> Vec<Vec<(String, Vec<u8>)>> {
    let mut requests = vec![vec![]];
    for line in input.split(|byte| *byte == b'\n') {
        let end = line.iter().skip(1).position(|byte| *byte == b':');
        let header = end.and_then(|end| line.split_at_checked(end + 1));
        match (header, requests.last_mut()) {
            (Some((name, value)), Some(last)) => {
                if let Ok(name) = str::from_utf8(name) {
                    last.push((name.to_ascii_lowercase(), value.get(1..).unwrap_or_default().to_vec()));
                }
            }
            _ => requests.push(vec![]),
        }
    }
    requests
}

fn decide(driver: &mut Driver, route: &str) -> Option<(Decision, bool)> {
    cost::start();
    let decided = driver.run(&PLAN, route)?;
    cost::check(1, PLAN.steps(), 0);
    decision::check(&decided);
    let allowed = matches!(decided.verdict, Verdict::Continue(_));
    let consumer: &[&str] = if decided.consumer.is_some() { &["consumer"] } else { &[] };
    let ended: &[&str] = if allowed { &[] } else { &["step", "reason"] };
    let expected = [&["verdict"], ended, consumer, &["route", "plan"]].concat();
    let account = decided.account(PLAN.label(), route);
    assert_eq!(decision::check_account(&account), expected, "{account:?}");
    assert!(account.ends_with(&format!(" route={route} plan=r1")), "{account:?}");
    Some((decided, allowed))
}

/// A request passes with exactly one key where one is expected, and that a known one.
fn check_key(driver: &mut Driver, route: &str, keys: fn(&Headers) -> Vec<Vec<u8>>) {
    let Some((decided, allowed)) = decide(driver, route) else { return };
    let keys = keys(&driver.headers);
    let consumer = match keys.as_slice() {
        [key] => KEYS.iter().position(|known| known.as_bytes() == key).and_then(|at| ["alice", "bob", "carol"].get(at)),
        _ => None,
    };
    assert_eq!(decided.consumer.as_deref(), consumer.copied(), "{route}: {keys:?} in {:?}", driver.headers);
    assert_eq!(allowed, consumer.is_some(), "{route}: {keys:?} in {:?}", driver.headers);
}

fn check_validate(driver: &mut Driver) {
    let Some((_, allowed)) = decide(driver, "validate") else { return };
    let path = values(&driver.headers, ":path");
    let kind = values(&driver.headers, "x-kind").join(&b","[..]);
    let kind = String::from_utf8(kind).ok().filter(|_| !values(&driver.headers, "x-kind").is_empty());
    let good_path = path.first().is_some_and(|path| {
        let (path, query) = split(path);
        let is_text = str::from_utf8(path).is_ok() && str::from_utf8(query).is_ok();
        is_text && path.starts_with(b"/a") && query.windows(3).any(|part| part == b"b=1")
    });
    let expected = good_path && kind.is_some_and(|kind| kind.chars().count() < 8);
    assert_eq!(allowed, expected, "{:?}", driver.headers);
}

/// At one time, every user gets as many requests through as a bucket holds.
fn check_limit(driver: &mut Driver, admitted: &mut HashMap<Vec<u8>, usize>) {
    let Some((_, allowed)) = decide(driver, "limit") else { return };
    let users = values(&driver.headers, "x-user");
    let user = users.join(&b","[..]);
    if users.is_empty() || str::from_utf8(&user).is_err() {
        assert!(!allowed, "without a key nothing passes: {:?}", driver.headers);
        return;
    }
    let count = admitted.entry(user).or_default();
    *count += 1;
    assert_eq!(allowed, *count <= BURST, "request {count} of {:?}", driver.headers);
}

fn values(headers: &Headers, name: &str) -> Vec<Vec<u8>> {
    headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
}

/// A path and its query, without the fragment.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().position(|byte| *byte == b'#').unwrap_or(path.len());
    let path = path.get(..end).unwrap_or_default();
    let mut parts = path.splitn(2, |byte| *byte == b'?');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

fn query_keys(headers: &Headers) -> Vec<Vec<u8>> {
    let path = values(headers, ":path").into_iter().next().unwrap_or_default();
    let pairs = form_urlencoded::parse(split(&path).1);
    pairs.filter(|(name, _)| name == "key").map(|(_, value)| value.into_owned().into_bytes()).collect()
}

fn cookie_keys(headers: &Headers) -> Vec<Vec<u8>> {
    let lossless = |header: &Vec<u8>| header.iter().copied().map(char::from).collect::<String>();
    let headers: Vec<String> = values(headers, "cookie").iter().map(lossless).collect();
    let is_space = |character: char| character.is_ascii_whitespace();
    let pairs = headers.iter().flat_map(|header| header.split(';')).filter_map(|pair| pair.split_once('='));
    let keys = pairs.filter(|(name, _)| name.trim_matches(is_space) == "key").map(|(_, value)| {
        let value = value.trim_matches(is_space);
        value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
    });
    keys.map(|key| key.chars().filter_map(|character| u8::try_from(character).ok()).collect()).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let requests: [&[u8]; 10] = [
        b"",
        b":path:/a?b=1\n:method:GET\nx-kind:plain\nx-user:me",
        b"x-api-key:k1\n\nx-api-key:k1\nx-api-key:k1\n\nx-api-key:\n\nx-api-key:a b",
        b":path:/?key=k1\n\n:path:/?key=a+b&x\n\n:path:/?k%65y=a%20b#key=k1\n\n:path:?key=x%3D%26%3b%22%25",
        b":path:/?key=k1&key=k1\n\n:path:/#?key=k1\n\n:path:/a?b=1&key=%zz%4",
        b"cookie:key=k1\n\ncookie:a=b; key=\"a b\"\ncookie:c\n\ncookie:key=k1;key=k1\n\ncookie: key = k1 ;",
        b"cookie:key=\"\n\ncookie:key=\"\"\n\ncookie:=k1;key\n\ncookie:Key=k1",
        b"x-user:me\n\nx-user:me\n\nx-user:me\n\nx-user:you\n\nx-user:\xff",
        b":path:/\xff?b=1\nx-kind:\xc3\xa9\n\n:path:/a?b=1\nx-kind:1\nx-kind:2",
        b"x-api-key:k1 route=forged\nx-user:a\rb\n\n:path:/a?b=1\nx-kind:much too long",
    ];
    requests.iter().map(|request| request.to_vec()).collect()
}
