//! Generated tables and requests, compared between the matcher and a real Envoy: the route that Envoy takes, the chain
//! that runs and the path that the service gets must be those that the matcher says.
//!
//! `POSTERN_ROUTES_TABLES` sets how many tables, `POSTERN_ROUTES_SEED` the seed of the first batch.

use std::{
    env,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use postern_compile::route_match::Matcher;
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
/// Requests under way: after a refusal over HTTP/2, Envoy keeps the connection for a second.
const CALLERS: usize = 24;
/// How long a worker may have older routes than another.
const SETTLES: Duration = Duration::from_secs(2);
/// More would not be read.
const MOST_REPORTS: usize = 5;

pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// A request to a table of a batch, and what must come of it.
struct Probe {
    table: usize,
    request: RawRequest,
    expected: Observed,
}

#[test]
fn an_envoy_takes_the_routes_that_the_matcher_says() {
    let tables = number("POSTERN_ROUTES_TABLES").map_or(TABLES, |tables| usize::try_from(tables).unwrap());
    let first = number("POSTERN_ROUTES_SEED").unwrap_or(1);
    let services: Vec<_> = (0..SERVICES).map(generate::service).collect();
    let mut site = Site::new(&services, &[], BATCH.min(tables));
    let (mut requests, mut taken) = (0, 0);
    for batch in 0..tables.div_ceil(BATCH) {
        let seed = first + u64::try_from(batch).unwrap();
        let mut random = Random::new(seed);
        let count = BATCH.min(tables - batch * BATCH);
        let batch: Vec<Table> = (0..count).map(|index| generate::table(&mut random, index)).collect();
        let probes = probes(&mut random, &batch);
        requests += probes.len();
        taken += probes.iter().filter(|probe| probe.expected.chain.is_some()).count();
        site.publish(&batch);
        let reports: Vec<_> = mismatches(&site, seed, &batch, &probes).iter().map(ToString::to_string).collect();
        let shown = reports.iter().take(MOST_REPORTS).cloned().collect::<Vec<_>>().join("\n");
        assert!(reports.is_empty(), "{} times the matcher and Envoy differ:\n{shown}\n{}", reports.len(), site.log());
    }
    println!("{tables} tables, {requests} requests, {taken} of them took a route");
    assert!(taken * 3 > requests, "too few requests took a route: {taken} of {requests}");
    assert_eq!(site.unknown_fields(), 0, "Envoy ignores fields that we emit");
}

fn probes(random: &mut Random, batch: &[Table]) -> Vec<Probe> {
    let mut probes = Vec::new();
    for (table, of) in batch.iter().enumerate() {
        let bundle = of.bundle();
        let matcher = Matcher::new(&bundle.gateways[0].spec).unwrap();
        for _ in 0..REQUESTS {
            let request = generate::request(random, of);
            let expected = Observed::expected(&matcher, &request);
            probes.push(Probe { table, request, expected });
        }
    }
    probes
}

fn mismatches(site: &Site, seed: u64, batch: &[Table], probes: &[Probe]) -> Vec<Mismatch> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                while let Some(probe) = probes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(got) = difference(site, probe) else { continue };
                    let Probe { table, request, expected } = probe;
                    let (table, request, expected) = (batch[*table].clone(), request.clone(), expected.clone());
                    found.lock().unwrap().push(Mismatch { seed, table, request, expected, got });
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// What Envoy does with a request, if it is not what was expected.
fn difference(site: &Site, probe: &Probe) -> Option<Observed> {
    let mut got = None;
    let same = wait::until_within(SETTLES, || {
        let observed = Observed::of(&probe.request.send(site.address(probe.table)).unwrap());
        let same = observed == probe.expected;
        got = Some(observed);
        same
    });
    if same { None } else { got }
}
