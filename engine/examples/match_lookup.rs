//! What a lookup by `match` costs: prints the time of one, for a plan of so many matches. Under callgrind, the difference
//! between two numbers of lookups is what one of them takes in instructions:
//!
//! ```text
//! cargo build --release -p postern-engine --example match_lookup
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/match_lookup 1000 2000
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for developers")]

use std::{env, hint::black_box, time::Instant};

use postern_engine::{Plan, matching::Requested};
use postern_proto::plan::v1 as wire;
use prost::Message as _;

/// The host, method and path that are looked up: a plain path, one with escapes, and one that no match fits.
const PATHS: [&str; 3] = ["/api/s7/42?x=y", "/api/s7/a%20b%20c/", "/elsewhere/and/far/away"];

/// A plan with this number of matches, each for the paths below a start of its own.
fn plan(matches: u32) -> Plan {
    let mut plan = wire::Plan {
        format: wire::FORMAT,
        label: "r1".into(),
        strings: vec!["*".into(), "api".into()],
        ..Default::default()
    };
    for number in 0..matches {
        let route = u32::try_from(plan.strings.len()).unwrap();
        plan.strings.push(format!("s{number}"));
        plan.chains.push(wire::Chain::default());
        plan.routes.push(wire::Route { name: route, chain: number });
        let segments = vec![2, route + 1];
        plan.matches.push(wire::Match { route, host: 0, segments, is_start: true, rank: 1, ..Default::default() });
    }
    Plan::load(&plan.encode_to_vec()).unwrap()
}

fn main() {
    let number = |index| env::args().nth(index).map_or(1000, |text: String| text.parse::<u32>().unwrap());
    let (matches, lookups) = (number(1), number(2));
    let plan = plan(matches);
    for path in PATHS {
        let start = Instant::now();
        for _ in 0..lookups {
            let requested = Requested { host: b"api.example.com", path: path.as_bytes(), method: b"GET" };
            black_box(plan.matched_route(&black_box(requested)).unwrap());
        }
        println!("{matches} matches, {path}: {} ns", start.elapsed().as_nanos() / u128::from(lookups.max(1)));
    }
}
