//! `match` of a route.

use serde_json::{Map, Value, json};

use super::path;
use crate::random::Random;

pub const HEADERS: [&str; 4] = ["x-a", "X-B", "x-mode", "accept"];
pub const QUERY: [&str; 3] = ["q", "v", "a%20b"];
pub const COOKIES: [&str; 3] = ["c", "sid", "b.x"];
pub const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "OPTIONS"];
/// Values, and expressions that some of them fit.
pub const VALUES: [&str; 7] = ["1", "2", "12", "a", "ab", "", "a-b"];
const PATTERNS: [&str; 7] = ["[0-9]+", "a|b", ".*", "a.?", "(?i)A", "[^1]*", "1{1,2}"];

pub fn generate(random: &mut Random) -> Value {
    let mut matching = Map::new();
    if !random.once_in(5) {
        matching.insert("path".into(), path::generate(random));
    }
    if random.once_in(4) {
        let mut methods: Vec<_> = (0..=random.below(2)).map(|_| *random.pick(&METHODS)).collect();
        methods.dedup();
        matching.insert("methods".into(), methods.into());
    }
    for (field, names) in [("headers", &HEADERS[..]), ("query", &QUERY), ("cookies", &COOKIES)] {
        if random.once_in(4) {
            let mut list: Vec<_> = (0..=random.below(2)).map(|_| condition(random, names)).collect();
            list.dedup();
            matching.insert(field.into(), list.into());
        }
    }
    matching.into()
}

fn condition(random: &mut Random, names: &[&str]) -> Value {
    let name = *random.pick(names);
    match random.below(4) {
        0 => json!({ "name": name, "present": true }),
        1 => json!({ "name": name, "present": false }),
        2 => json!({ "name": name, "exact": *random.pick(&VALUES) }),
        _ => json!({ "name": name, "regex": *random.pick(&PATTERNS) }),
    }
}
