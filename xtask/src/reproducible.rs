//! Owns the check that the filter is the same wherever it is built: equal sources give equal bytes.

use std::fs;

use anyhow::Result;

use crate::copy;
use crate::filter::{self, Filter};
use crate::paths::Paths;
use crate::run::say;
use crate::tally::Counts;

/// Builds the filter from a copy of the source, with an empty target directory, and compares it with the one given.
pub(crate) fn check(paths: &Paths, filter: &Filter) -> Result<Counts> {
    let directory = paths.reproducible();
    let elsewhere = Paths { root: directory.join("a-copy-of-the-source"), target: directory.join("target") };
    if elsewhere.target.exists() {
        fs::remove_dir_all(&elsewhere.target)?;
    }
    copy::sources(paths, &elsewhere.root)?;
    let second = filter::build(&elsewhere)?;
    let equal = second.digest() == filter.digest();
    if !equal {
        say(format_args!(
            "error: the filter depends on where it is built: sha256 {} and {}",
            filter.digest(),
            second.digest()
        ));
    }
    Ok(Counts { passed: u64::from(equal), failed: u64::from(!equal), skipped: 0 })
}
