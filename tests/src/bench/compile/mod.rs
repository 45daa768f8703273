//! `cargo xtask bench compile`: how long it takes from resources to what every group of nodes is served, whole and after
//! one change.
//!
//! As many routes as policies, spread over 20 gateways that a service each serves, and 1,000 nodes of these services: 20
//! groups. Plans go through the gate in the filter's own bytes. [`resources`] is what a user would have written,
//! [`measure`] owns the runs, [`report`] what is shown of them.

mod measure;
mod report;
mod resources;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Parser;

use self::report::Report;

/// How many policies the cases have.
const POLICIES: [usize; 3] = [100, 1_000, 10_000];
/// How many gateways share their routes.
const GATEWAYS: usize = 20;
const NODES: usize = 1_000;

/// Measures the time from resources to what nodes get, whole and after one change
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench compile")]
pub struct Options {
    /// How often every case is measured; the figures are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the results as an array of `{case, metric, value, unit}`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the bench. It succeeds when the time grows linearly and one change compiles one group.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for policies in POLICIES {
        rows.push((policies, measure::measure(policies, options.rounds)?));
    }
    let report = Report::new(&rows);
    print!("{report}");
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
