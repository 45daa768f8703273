//! Random sequences of requests, changes, refusals, streams and reconnects against a model that was written from the
//! document. A failure prints its seed: `XDS_MODEL_SEED=… cargo test --test xds_model` repeats it, step by step.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod driver;
mod model;

use driver::history;
use model::Variant;

/// How many sequences of each variant are tried, unless `XDS_MODEL_SEQUENCES` says otherwise.
const SEQUENCES: u64 = 1_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn check(variant: Variant) {
    if let Some(seed) = number("XDS_MODEL_SEED") {
        return history(variant, seed, true);
    }
    for seed in 0..number("XDS_MODEL_SEQUENCES").unwrap_or(SEQUENCES) {
        history(variant, seed, false);
    }
}

#[test]
fn every_sequence_in_the_state_of_the_world_is_as_the_document_says() {
    check(Variant::World);
}

#[test]
fn every_incremental_sequence_is_as_the_document_says() {
    check(Variant::Delta);
}
