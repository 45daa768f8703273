//! Adds revisions to a store for ever, and prints a line for each acknowledged revision. For tests that kill it, or
//! fill its disk.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeSet,
    env,
    io::{self, Write as _},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use postern_release::store::{Database, Parent, Store, StoreError};
use postern_tests::crash::{KEPT, draft};

fn main() -> Result<()> {
    let state = env::args_os().nth(1).map(PathBuf::from).context("usage: postern-store-writer STATE [PADDING]")?;
    let padding = env::args().nth(2).map_or(Ok(0), |padding| padding.parse())?;
    let store = Database::open(&state)?;
    let mut out = io::stdout().lock();
    loop {
        match next(&store, padding) {
            Ok(number) => writeln!(out, "{number}")?,
            Err(error @ StoreError::Full { .. }) => {
                writeln!(out, "full: {error}")?;
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
        out.flush()?;
    }
}

fn next(store: &Database, padding: usize) -> Result<u64, StoreError> {
    let latest = store.latest()?.map(|revision| revision.number);
    let number = latest.unwrap_or_default() + 1;
    if number % 10 == 0 {
        store.collect(KEPT, &BTreeSet::new())?;
    }
    Ok(store.append(draft(number, padding), Parent::Exactly(latest))?.number)
}
