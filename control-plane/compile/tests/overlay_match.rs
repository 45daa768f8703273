//! No path leads past a guarded match, however Envoy and the upstream behind it normalize paths.
//!
//! The plan is compiled from resources. Envoy's normalization is that of `route_match`, which is compared with a real Envoy
//! elsewhere; the upstream's is written here, and knows nothing of the engine's rewrites.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    missing_docs,
    reason = "tests"
)]

use postern_compile::{
    pipeline,
    route_match::{Matcher, Request, RouteDecision},
    snapshot::FilterCode,
};
use postern_engine::{Plan, matching::Requested};
use postern_model::{Bundle, File, read};
use proptest::prelude::*;

fn file(text: String) -> File {
    File { name: "f".to_owned(), bytes: text.into_bytes() }
}

/// `/admin` is guarded, `/admin/{x}/docs` is open, and so is everything else.
fn plan() -> Plan {
    let document = |route: &str, path: &str, rest: &str| {
        format!(
            "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{name: {route}}}\nspec: {{targetRef: {{kind: HTTPRoute, \
             name: {route}}}, match: {{path: {path}}}, {rest}}}\n"
        )
    };
    let text = document("admin", "{prefix: /admin}", "request: [{policy: respond, params: {status: 403}}]")
        + &document("docs", "{template: '/admin/{x}/docs'}", "public: {reason: docs}");
    let snapshot = pipeline::compile(&[file(text)], &FilterCode::new(Vec::new(), None)).unwrap();
    Plan::load(snapshot.plan().bytes()).unwrap()
}

/// A gateway that takes every path, for each way of Envoy's to treat escaped slashes.
fn envoys() -> Vec<Bundle> {
    let gateway = |escaped: &str| {
        let text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{name: g}}\nspec:\n  listeners: [{{name: http, port: 80}}]\n  http: \
             {{escapedSlashes: {escaped}, pathParameters: keep}}\n  routes: [{{name: r, service: s}}]\n---\napiVersion: \
             postern/v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{endpoints: [{{address: x, port: 1}}]}}\n"
        );
        read(&[file(text)]).unwrap()
    };
    ["keep", "unescape"].map(gateway).into()
}

/// Whether a request passes, or `None` if it is refused as unclear.
fn passes(plan: &Plan, path: &[u8]) -> Option<bool> {
    let route = plan.matched_route(&Requested { host: b"h", path, method: b"GET" }).ok()?;
    Some(route.is_none_or(|route| **route != *"admin"))
}

/// What an upstream may do, each bit for one thing, in the order in which servers do it.
fn as_upstream(path: &str, bits: u8) -> String {
    let has = |bit: u8| bits & (1 << bit) != 0;
    let mut path = path.split(['?', '#']).next().unwrap().to_owned();
    let cut = |segment: &str| segment.split(';').next().unwrap().to_owned();
    if has(0) {
        path = path.split('/').map(cut).collect::<Vec<_>>().join("/");
    }
    for bit in [1, 2] {
        if has(bit) {
            path = percent_decoded(&path);
        }
    }
    if has(3) {
        path = path.replace('\\', "/");
    }
    if has(4) {
        while path.contains("//") {
            path = path.replace("//", "/");
        }
    }
    let mut kept = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let path = format!("/{}", kept.join("/"));
    if has(5) { path.replace("//", "/") } else { path }
}

fn percent_decoded(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        let digits = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits.filter(u8::is_ascii) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 3..];
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

fn is_guarded(path: &str) -> bool {
    let segments: Vec<_> = path.split('/').skip(1).collect();
    let docs = matches!(segments.as_slice(), ["admin", x, "docs"] | ["admin", x, "docs", ""] if !x.is_empty());
    segments.first() == Some(&"admin") && !docs
}

fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "admin", "x", "docs", "/", "/", "/", "..", ".", "%2e", "%2E", "%2f", "%2F", "%5c", "\\", ";", ";a=b", "%3b",
        "%61dmin", "%25", "2e", "2f", "?", "%3f", "%23", "#", "adm", "in", "%64", "%00", "%", "%2",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// A path that passes is no guarded one for any Envoy, nor for any upstream behind it.
    #[test]
    fn no_path_leads_past_a_guarded_match(pieces in prop::collection::vec(piece(), 0..9)) {
        let (plan, envoys) = (plan(), envoys());
        let path = format!("/{}", pieces.concat());
        let mut forwarded = vec![path.clone()];
        for bundle in &envoys {
            let matcher = Matcher::new(&bundle.gateways[0].spec).unwrap();
            let request = Request {
                method: b"GET".to_vec(), authority: b"h".to_vec(), path: path.clone().into_bytes(), headers: Vec::new(),
            };
            if let RouteDecision::Taken(taken) = matcher.decide(&request) {
                forwarded.push(String::from_utf8(taken.path).unwrap());
            }
        }
        // The filter sees what Envoy forwards, and where Envoy normalizes nothing, what came.
        for seen in &forwarded {
            if passes(&plan, seen.as_bytes()) == Some(true) {
                for bits in 0..64 {
                    let taken = as_upstream(seen, bits);
                    prop_assert!(!is_guarded(&taken), "{path} is {seen} to the filter and {taken} upstream ({bits})");
                }
            }
        }
        // What came decides as well as what Envoy makes of it.
        if passes(&plan, path.as_bytes()) == Some(true) {
            for seen in &forwarded {
                prop_assert_eq!(passes(&plan, seen.as_bytes()), Some(true), "{} of {}", seen, path);
            }
        }
    }
}

#[test]
fn these_paths_are_tried() {
    let plan = plan();
    assert_eq!(passes(&plan, b"/admin/x"), Some(false));
    assert_eq!(passes(&plan, b"/admin/x/docs"), Some(true));
    assert_eq!(passes(&plan, b"/x"), Some(true));
    assert_eq!(passes(&plan, b"/x/..%2fadmin"), None);
    assert!(is_guarded(&as_upstream("/x/..%252fadmin;y", 0b111)));
}
