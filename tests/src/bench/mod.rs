//! `cargo xtask bench filter`: what policies cost inside Envoy, beside what the same costs elsewhere.
//!
//! Each case is an Envoy with one worker, on the same upstream and under the same load; what is measured is the CPU
//! time that Envoy, and the server that a case may need, spend on a request. No control plane takes part. The modules,
//! in the order of a run: [`cases`] → [`subject`] (what stands in an Envoy's filter chain) → [`stage`] (its processes)
//! → [`load`] (with [`tokens`]) on [`upstream`] → [`measure`] ([`cpu`], [`places`]) → [`report`]. [`server`] is the other side of ext_authz and
//! ext_proc.
//!
//! The others have nothing in common with it: [`xds`], what a fleet costs the control plane; [`gate`], how long a change
//! takes to the first Envoy; [`compile`], how long it takes from resources to what nodes are served.

mod bootstrap;
mod cases;
pub mod compile;
mod cpu;
mod decide;
mod figure;
mod filters;
pub mod gate;
mod load;
mod measure;
mod places;
mod policies;
mod quantile;
mod report;
mod server;
mod stage;
mod subject;
mod tokens;
mod upstream;
pub mod xds;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, ensure};
use clap::Parser;

use self::{cases::Case, measure::Measurement, policies::Policies, report::Report, server::Protocol};

/// Measures what the filter costs in Envoy, beside other ways to the same end
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench filter")]
pub struct Options {
    /// How often every case is measured; the cases take turns. Many short rounds are steadier than a few long ones
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(3..))]
    rounds: u32,
    /// How often everything is started anew in a run; the rounds are spread over the starts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// How many requests a case gets in a round
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(100..))]
    requests: u32,
    /// How many connections they come on: enough to keep Envoy from going to sleep between two
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Measure only these cases, and the references that they are compared with
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    cases: Vec<String>,
    /// Write the results as an array of `{case, metric, value, unit}`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Be the server of a case instead: the bench starts itself this way
    #[arg(long, hide = true, value_name = "PROTOCOL")]
    serve: Option<Protocol>,
    /// What that server decides by
    #[arg(long, hide = true, value_name = "POLICIES", default_value = "three")]
    policies: Policies,
}

/// Runs the bench. It succeeds when every case was measured and every target was reached.
pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(protocol) = options.serve {
        return server::serve(protocol, options.policies).map(|()| ExitCode::SUCCESS);
    }
    let cases = selected(&options.cases)?;
    let measurements: Vec<(Case, Measurement)> = measure::measure(cases, options)?;
    let report = Report::new(measurements);
    print!("{report}");
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cases of these names, all for none, with the references that they need in front.
fn selected(names: &[String]) -> Result<Vec<Case>> {
    let all = cases::all();
    let unknown: Vec<_> = names.iter().filter(|name| all.iter().all(|case| case.name != **name)).collect();
    let known = || all.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
    ensure!(unknown.is_empty(), "there are no such cases: {unknown:?}; there are: {}", known());
    let wanted = |case: &Case| names.is_empty() || names.iter().any(|name| name == case.name);
    let references: Vec<_> = all.iter().filter(|case| wanted(case)).filter_map(|case| case.reference).collect();
    Ok(all.into_iter().filter(|case| wanted(case) || references.contains(&case.name)).collect())
}
