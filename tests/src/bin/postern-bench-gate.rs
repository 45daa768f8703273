//! `cargo xtask bench gate`. Everything is in [`postern_tests::bench::gate`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use postern_tests::bench::gate;

fn main() -> Result<ExitCode> {
    gate::run(&gate::Options::parse())
}
