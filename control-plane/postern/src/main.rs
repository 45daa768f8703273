//! The binary `postern`.

use std::process::ExitCode;

use postern::cli::Cli;

fn main() -> ExitCode {
    Cli::from_environment().run()
}
