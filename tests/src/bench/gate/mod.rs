//! `cargo xtask bench gate`: how long a change takes from a user's files to the first Envoy that runs it, and how much
//! of that is the gate.
//!
//! The control plane runs in this process, with the filter's compiled form from a cache, as after any start but the
//! first; the Envoys are real ones. [`measure`] changes every policy, [`change`] one, beside a [`stub`] that pushes the same
//! bytes; [`report`] is what is shown of them.

mod change;
mod measure;
mod report;
mod resources;
mod stub;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Parser;

use self::report::Report;

/// How many routes the cases have, each with a policy of its own.
const ROUTES: [usize; 3] = [10, 1_000, 10_000];

/// Measures the time from a change to the first ACK, and its parts
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench gate")]
pub struct Options {
    /// How many changes every case makes; the figures are medians
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only the changes of one route
    #[arg(long)]
    one_changed: bool,
    /// Write the results as an array of `{case, metric, value, unit}`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the bench. It succeeds when every case was measured and every target was reached.
pub fn run(options: &Options) -> Result<ExitCode> {
    let code = measure::code()?;
    let (mut rows, mut changes) = (Vec::new(), Vec::new());
    for routes in ROUTES {
        if !options.one_changed {
            rows.push((routes, measure::measure(&code, routes, options.rounds)?));
        }
        changes.push((routes, change::measure(&code, routes, options.rounds)?));
    }
    let report = Report::new(&rows, &changes);
    print!("{report}");
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
