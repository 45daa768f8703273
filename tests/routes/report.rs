//! A mismatch, with all that is needed to try it again.

use std::fmt;

use postern_tests::raw::RawRequest;

use crate::{observed::Observed, table::Table};

pub struct Mismatch {
    pub seed: u64,
    pub table: Table,
    pub request: RawRequest,
    pub expected: Observed,
    pub got: Observed,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, table, request, expected, got } = self;
        let routes = serde_json::to_string_pretty(&table.routes).unwrap_or_default();
        let chains: Vec<_> = table.chains.iter().filter(|chain| !chain.request.is_empty()).collect();
        writeln!(f, "POSTERN_ROUTES_SEED={seed}, table `{}`", table.name)?;
        writeln!(f, "  request:  {}", request.shown())?;
        writeln!(f, "  expected: {expected:?}")?;
        writeln!(f, "  got:      {got:?}")?;
        writeln!(f, "  http: {}\n  routes (YAML): {routes}\n  chains: {chains:?}", table.http)
    }
}
