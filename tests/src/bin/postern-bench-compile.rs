//! `cargo xtask bench compile`. Everything is in [`postern_tests::bench::compile`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use postern_tests::bench::compile;

fn main() -> Result<ExitCode> {
    compile::run(&compile::Options::parse())
}
