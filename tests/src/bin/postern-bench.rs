//! `cargo xtask bench filter`. Everything is in [`postern_tests::bench`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use postern_tests::bench;

fn main() -> Result<ExitCode> {
    bench::run(&bench::Options::parse())
}
