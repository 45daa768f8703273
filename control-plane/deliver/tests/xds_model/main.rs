//! Random sequences of requests, changes, refusals, streams and reconnects, checked by a model that was written from
//! the protocol document. A failure prints its seed: `XDS_MODEL_SEED=… cargo test --test xds_model` repeats it, step by
//! step.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod driver;
mod hosts;
mod model;
mod truth;
mod wire;

use std::panic::catch_unwind;

use driver::history;
use wire::Variant;

/// The number of sequences of each variant, unless `XDS_MODEL_SEQUENCES` sets it.
const SEQUENCES: u64 = 2_000;

/// The number of failures after which no more sequences are run.
const MOST_FAILURES: usize = 10;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn check(variant: Variant) {
    if let Some(seed) = number("XDS_MODEL_SEED") {
        return history(variant, seed, true);
    }
    let seeds = 0..number("XDS_MODEL_SEQUENCES").unwrap_or(SEQUENCES);
    let fails = |seed: &u64| catch_unwind(|| history(variant, *seed, false)).is_err();
    let failed: Vec<_> = seeds.filter(fails).take(MOST_FAILURES).collect();
    assert!(failed.is_empty(), "{variant:?}: these sequences fail: {failed:?}");
}

#[test]
fn every_sequence_in_the_state_of_the_world_is_as_the_document_says() {
    check(Variant::World);
}

#[test]
fn every_incremental_sequence_is_as_the_document_says() {
    check(Variant::Delta);
}
