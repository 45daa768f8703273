//! Generated tables and requests, compared between the matcher and a real Envoy: the route that Envoy takes, the chain
//! that runs and the path that the service gets must be those that the matcher says.
//!
//! `POSTERN_ROUTES_TABLES` sets how many tables, `POSTERN_ROUTES_SEED` the seed of the first batch.

use std::{env, time::Duration};

use postern::route_match::Matcher;
use postern_tests::{raw::RawRequest, wait};

use crate::{
    generate::{self, SERVICES},
    observed::Observed,
    random::Random,
    report::Mismatch,
    site::Site,
    table::Table,
};

/// Gateways that one Envoy has at a time.
const BATCH: usize = 100;
const TABLES: usize = 2000;
const REQUESTS: usize = 6;
/// How long a worker may have older routes than another.
const SETTLES: Duration = Duration::from_secs(2);
/// More would not be read.
const MOST_REPORTS: usize = 5;

pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[test]
fn an_envoy_takes_the_routes_that_the_matcher_says() {
    let tables = number("POSTERN_ROUTES_TABLES").map_or(TABLES, |tables| usize::try_from(tables).unwrap());
    let first = number("POSTERN_ROUTES_SEED").unwrap_or(1);
    let services: Vec<_> = (0..SERVICES).map(generate::service).collect();
    let mut site = Site::new(&services, &[], BATCH.min(tables));
    let (mut requests, mut taken, mut mismatches) = (0, 0, Vec::new());
    for batch in 0..tables.div_ceil(BATCH) {
        let seed = first + u64::try_from(batch).unwrap();
        let mut random = Random::new(seed);
        let count = BATCH.min(tables - batch * BATCH);
        let batch: Vec<Table> = (0..count).map(|index| generate::table(&mut random, index)).collect();
        site.publish(&batch);
        for (index, table) in batch.iter().enumerate() {
            let bundle = table.bundle();
            let matcher = Matcher::new(&bundle.gateways[0].spec).unwrap();
            for _ in 0..REQUESTS {
                let request = generate::request(&mut random, table);
                let expected = Observed::expected(&matcher, &request);
                requests += 1;
                taken += usize::from(expected.chain.is_some());
                if let Some(got) = difference(&site, index, &request, &expected) {
                    mismatches.push(Mismatch { seed, table: table.clone(), request, expected, got });
                }
            }
            if mismatches.len() >= MOST_REPORTS {
                break;
            }
        }
        if !mismatches.is_empty() {
            break;
        }
    }
    println!("{tables} tables, {requests} requests, {taken} of them took a route");
    let reports: Vec<_> = mismatches.iter().map(ToString::to_string).collect();
    assert!(reports.is_empty(), "the matcher and Envoy differ:\n{}\n{}", reports.join("\n"), site.log());
    assert!(taken * 3 > requests, "too few requests took a route: {taken} of {requests}");
    assert_eq!(site.unknown_fields(), 0, "Envoy ignores fields that we emit");
}

/// What Envoy does with a request, if it is not what was expected.
pub fn difference(site: &Site, index: usize, request: &RawRequest, expected: &Observed) -> Option<Observed> {
    let mut got = None;
    let same = wait::until_within(SETTLES, || {
        let observed = Observed::of(&request.send(site.address(index)).unwrap());
        let same = observed == *expected;
        got = Some(observed);
        same
    });
    if same { None } else { got }
}
