//! The binary `postern`.

use std::process::ExitCode;

use clap::Parser;
use postern::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
