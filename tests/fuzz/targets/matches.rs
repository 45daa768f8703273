//! Routes without names: any host, method and path. No request passes as open that an upstream, by any of the usual
//! readings of a path, takes for one of a guarded route; and no lookup costs more than its budget.

#![cfg_attr(fuzzing, no_main)]

use std::sync::{Arc, LazyLock};

use postern_engine::{Plan, matching::Requested};
use postern_fuzz::{common::Writer, cost};
use postern_proto::plan::v1 as wire;

postern_fuzz::target!(run: run, seeds: seeds);

/// `/admin` and the host `inner.test` are guarded, `GET /admin/{x}/docs` is open, and so is all else but `/users/7/keys`.
static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
    let mut writer = Writer::new();
    for route in ["admin", "inner", "keys"] {
        let step = writer.key_step();
        writer.route(route, vec![step], vec![]);
    }
    let names = ["admin", "inner", "keys", "docs", "*", "inner.test", "GET", "/users/[0-9]+/keys"];
    let [admin, inner, keys, docs, any, host, get, regex] = names.map(|text| writer.string(text));
    let admin_segment = admin + 1;
    let matching = |route, rank| wire::Match { route, host: any, rank, ..Default::default() };
    writer.plan.matches = vec![
        wire::Match { segments: vec![admin_segment], is_start: true, ..matching(admin, 1) },
        wire::Match { segments: vec![admin_segment, 0, docs + 1], method: get + 1, ..matching(docs, 3) },
        wire::Match { regex: regex + 1, ..matching(keys, 2) },
        wire::Match { host, is_start: true, ..matching(inner, 4) },
    ];
    writer.load()
});

fn run(input: &[u8]) {
    let mut lines = input.splitn(3, |byte| *byte == b'\n');
    let [host, method, path] = [(); 3].map(|()| lines.next().unwrap_or_default());
    cost::start();
    let found = PLAN.matched_route(&Requested { host, path, method });
    cost::check(1, PLAN.steps(), 0);
    // What is refused reaches nobody.
    let Ok(route) = found.map(|route| route.map(|route| route.to_string())) else { return };
    let route = route.as_deref();
    let shown = || format!("{} {} {}: {route:?}", host.escape_ascii(), method.escape_ascii(), path.escape_ascii());
    assert!(!is_inner(host) || route == Some("inner"), "{}", shown());
    if matches!(route, Some("admin" | "inner" | "keys")) || path.len() > 2048 {
        return;
    }
    let is_get = method.eq_ignore_ascii_case(b"GET");
    for reading in 0..128_u8 {
        let read = as_upstream(path, reading);
        assert!(!is_guarded(&read, is_get), "{}, read as {}", shown(), read.escape_ascii());
    }
}

/// Whether an upstream takes a host for `inner.test`.
fn is_inner(host: &[u8]) -> bool {
    let lower = host.to_ascii_lowercase();
    let digits = lower.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, port) = lower.split_at(lower.len() - digits);
    let name = name.strip_suffix(b":").unwrap_or(if port.is_empty() { name } else { &lower });
    name.strip_suffix(b".").unwrap_or(name) == b"inner.test"
}

fn is_guarded(path: &[u8], is_get: bool) -> bool {
    let segments: Vec<_> = path.split(|byte| *byte == b'/').skip(1).collect();
    let is_docs = match segments.as_slice() {
        [b"admin", x, b"docs"] | [b"admin", x, b"docs", b""] => is_get && !x.is_empty(),
        _ => false,
    };
    segments.first() == Some(&b"admin".as_slice()) && !is_docs
}

/// What an upstream may do, each bit for one thing, in the order in which servers do it.
fn as_upstream(path: &[u8], reading: u8) -> Vec<u8> {
    let has = |bit: u8| reading & (1 << bit) != 0;
    let mut path = path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default().to_vec();
    if has(0) {
        let bare = |segment: &[u8]| segment.split(|byte| *byte == b';').next().unwrap_or_default().to_vec();
        path = path.split(|byte| *byte == b'/').map(bare).collect::<Vec<_>>().join(&b'/');
    }
    for bit in [1, 2] {
        if has(bit) {
            path = unescaped(&path);
        }
    }
    if has(3) {
        path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    }
    if has(4) {
        path.dedup_by(|next, before| *next == b'/' && *before == b'/');
    }
    if has(6) {
        let mut kept: Vec<&[u8]> = Vec::new();
        for segment in path.split(|byte| *byte == b'/').skip(1) {
            match segment {
                b"." => {}
                b".." => drop(kept.pop()),
                _ => kept.push(segment),
            }
        }
        path = kept.iter().flat_map(|segment| [b"/", *segment].concat()).collect();
    }
    if has(5) {
        path.dedup_by(|next, before| *next == b'/' && *before == b'/');
    }
    path
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    out
}

fn seeds() -> Vec<Vec<u8>> {
    let paths = [
        "/",
        "/admin",
        "/admin/x/docs",
        "/admin/x/docs/../y",
        "/x/..%2fadmin",
        "/x/..%252fadmin",
        "/x\\..\\admin",
        "//admin",
        "/%61dmin;a=b/x",
        "/x/..;/admin",
        "/users/7/keys/",
        "/x?/../admin",
        "/x/%2e%2E/./admin#",
    ];
    let mut seeds = vec![b"a\nPOST\n/admin/x/docs".to_vec(), Vec::new()];
    for host in ["a.test", "inner.test", "INNER.test.:80", "x@inner.test", "inner.test:"] {
        seeds.extend(paths.iter().map(|path| format!("{host}\nGET\n{path}").into_bytes()));
    }
    seeds
}
