//! `cargo xtask bench xds`. Everything is in [`postern_tests::bench::xds`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use postern_tests::bench::xds;

fn main() -> Result<ExitCode> {
    xds::run(&xds::Options::parse())
}
