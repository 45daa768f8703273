//! The corpus' fourth face: routes and raw requests, where a real Envoy chooses the route. A pure matcher of our routes
//! says which it must be; for the cases of `tests/cases/routes`, and for generated tables and requests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    missing_docs,
    reason = "test code"
)]

mod case;
mod differential;
mod edits;
mod face;
mod generate;
mod observed;
mod random;
mod report;
mod site;
mod table;
