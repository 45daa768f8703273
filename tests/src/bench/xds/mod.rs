//! `cargo xtask bench xds`: what a fleet costs the control plane.
//!
//! Each case is a `postern serve` of its own and a load of so many streams, one connection each, that want all clusters
//! and the filter's configuration. What is measured is the server's memory a stream, its CPU time a change, and how long
//! a change takes from the write of a file to every stream. The modules, in the order of a run: [`case`] → [`open_files`] →
//! [`site`] → [`server`] → [`stream`] (with [`message`]), which tells [`progress`] → [`measure`] → [`report`].

mod case;
mod measure;
mod message;
mod open_files;
mod progress;
mod report;
mod server;
mod site;
mod stream;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

use self::{
    case::{Case, Variant},
    measure::Figures,
    report::Report,
};

/// Measures what streams of Envoys cost the control plane
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench xds")]
pub struct Options {
    /// How many streams: a case for each number
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [100, 1000, 5000, 10_000],
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    streams: Vec<u32>,
    /// Only this variant of the protocol; both by default
    #[arg(long, value_enum)]
    variant: Option<Variant>,
    /// How many changes every case gets
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    changes: u32,
    /// Write the results as an array of `{case, metric, value, unit}`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the bench. It succeeds when every case was measured and every target was reached.
pub fn run(options: &Options) -> Result<ExitCode> {
    let cases = case::all(&options.streams, options.variant);
    open_files::allow(cases.iter().map(|case| case.streams).max().unwrap_or_default())?;
    let mut results = Vec::new();
    for case in cases {
        let figures = measured(case, options.changes)?;
        if let Err(reason) = &figures {
            eprintln!("bench: {case} cannot be measured: {reason}");
        }
        results.push((case, figures));
    }
    let report = Report::new(results);
    print!("{report}");
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One case, or why it could not be measured; an error only when nothing more shall be. The load is one thread: the
/// server shall have the rest of the machine.
fn measured(case: Case, changes: u32) -> Result<Result<Figures, String>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Guards must be dropped for what was started to end.
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
        tokio::select! {
            figures = measure::measure(case, changes) => Ok(figures.map_err(|error| format!("{error:#}"))),
            _ = tokio::signal::ctrl_c() => anyhow::bail!("stopped by a signal"),
            _ = terminate.recv() => anyhow::bail!("stopped by a signal"),
        }
    })
}
