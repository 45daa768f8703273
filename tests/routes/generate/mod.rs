//! Tables and requests by chance, biased towards the borders between routes.

mod matching;
mod path;
mod request;

use serde_json::{Value, json};

pub use request::request;

use crate::{
    random::Random,
    table::{Chain, Table},
};

/// The most routes of a table; each has a service of its own, which tells the route that Envoy took.
pub const SERVICES: usize = 7;

const HOSTS: [&str; 8] = ["a.test", "b.test", "x.a.test", "*.a.test", "*.test", "*.x.a.test", "*", "1.2.3.4"];

pub fn service(index: usize) -> String {
    format!("s{index}")
}

/// A table by its place in a batch: the same places have the same names, so that Envoy keeps their listeners.
pub fn table(random: &mut Random, index: usize) -> Table {
    let count = 2 + random.below(SERVICES - 1);
    let mut table = Table { name: format!("t{index}"), http: http(random), routes: vec![], chains: vec![] };
    for place in 0..count {
        let name = format!("t{index}-r{place}");
        let mut route = json!({ "name": name, "service": service(place), "match": matching::generate(random) });
        if !random.once_in(3) {
            let hosts: Vec<_> = (0..=random.below(2)).map(|_| *random.pick(&HOSTS)).collect();
            route["hosts"] = hosts.into();
        }
        table.routes.push(route);
        table.chains.push(Chain { route: name, request: harmless_edits(random) });
    }
    table
}

fn http(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!({ "escapedSlashes": *random.pick(&["redirect", "unescape", "keep"]) }),
        1 | 2 => json!({ "pathParameters": "keep" }),
        3 => json!({ "headersWithUnderscores": *random.pick(&["drop", "allow"]) }),
        _ => Value::Null,
    }
}

/// Edits of headers that no route matches on. They make Envoy choose the route anew, which must be the same.
fn harmless_edits(random: &mut Random) -> Vec<Value> {
    match random.below(3) {
        0 => vec![json!({ "policy": "headers", "params": { "set": { "x-other": "1" }, "remove": ["x-gone"] } })],
        1 => vec![json!({ "policy": "requestId", "params": { "header": "x-request-id" } })],
        _ => vec![],
    }
}
