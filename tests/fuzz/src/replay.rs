//! Inputs that are known: seeds for a fuzzer to start from, and files to run once more.

use std::{env, fs, path::Path, process::ExitCode};

/// Names the directory that a target writes its seeds to before it starts.
pub const SEEDS: &str = "POSTERN_FUZZ_SEEDS";

/// Writes seeds where the environment says so; without a word from it, nowhere.
///
/// # Panics
/// If they cannot be written: fuzzing without them would look like fuzzing, and find little.
pub fn write_seeds(seeds: &[Vec<u8>]) {
    let Some(directory) = env::var_os(SEEDS) else { return };
    for (number, seed) in seeds.iter().enumerate() {
        let path = Path::new(&directory).join(format!("seed-{number:02}"));
        let written = fs::write(&path, seed);
        assert!(written.is_ok(), "cannot write `{}`: {written:?}", path.display());
    }
}

/// Runs every file that the command line names, or the seeds if it names none; a finding panics.
pub fn files(run: fn(&[u8]), seeds: &[Vec<u8>]) -> ExitCode {
    let mut paths = env::args_os().skip(1).peekable();
    if paths.peek().is_none() {
        seeds.iter().for_each(|seed| run(seed));
        eprintln!("{} seeds: no finding (to fuzz: cargo xtask fuzz)", seeds.len());
    }
    for path in paths {
        match fs::read(&path) {
            Ok(bytes) => run(&bytes),
            Err(error) => {
                eprintln!("cannot read `{}`: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
        eprintln!("{}: no finding", path.display());
    }
    ExitCode::SUCCESS
}
