//! The store under a writer that is killed, and on a disk that is full.

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use postern_release::store::Database;
use postern_tests::{
    crash::{self, Numbers},
    process::Process,
    wait,
};

const ROUNDS: usize = 200;
/// The size of a revision on a small disk.
const PADDING: usize = 100_000;

fn writer(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postern-store-writer"));
    command.arg(state);
    command
}

/// The numbers that the writer has acknowledged so far.
fn acknowledged(writer: &Process) -> Vec<u64> {
    writer.stdout().iter().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn keeps_every_acknowledged_revision_through_200_kills() {
    let state = tempfile::tempdir().unwrap();
    let mut numbers = Numbers::new(0x5eed_0f90_57e4);
    let (mut latest, mut total, begin) = (0, 0, Instant::now());
    for round in 0..ROUNDS {
        let mut writer = Process::start("postern-store-writer", &mut writer(state.path())).unwrap();
        // Somewhere in the writing of one of the next revisions, or in the opening before it.
        let wanted = usize::try_from(numbers.below(4)).unwrap();
        wait::until_true("the writer", || Ok(writer.stdout_len() >= wanted || writer.exit_code()?.is_some())).unwrap();
        let moment = Instant::now() + Duration::from_micros(numbers.below(4_000));
        while Instant::now() < moment {
            thread::yield_now();
        }
        writer.kill();
        writer.wait_for_output().unwrap();
        let said = acknowledged(&writer);
        assert!(said.len() >= wanted, "round {round}: the writer gave up: {:?}", writer.stderr());
        total += said.len();
        let store = Database::open(state.path()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let last = said.last().copied().unwrap_or(latest);
        latest = crash::check(&store, last, 0).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    println!("{ROUNDS} kills, {total} revisions acknowledged, {:?}", begin.elapsed());
    assert!(total >= ROUNDS, "most kills must have hit a writer at work");
}

#[test]
fn says_when_the_disk_is_full_and_goes_on_when_there_is_space_again() {
    let state = tempfile::tempdir().unwrap();
    // A limit on the size of a file stands for the end of the disk; the signal that comes with it must not kill.
    let script = "trap '' XFSZ; exec \"$0\" \"$@\"";
    let mut command = Command::new("prlimit");
    command.args(["--fsize=2500000:unlimited", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_postern-store-writer")).arg(state.path()).arg(PADDING.to_string());
    let writer = Process::start("postern-store-writer", &mut command).unwrap();
    let full = |line: &String| line.starts_with("full: ");
    wait::until_true("the end of the disk", || Ok(writer.stdout().iter().any(full))).unwrap();
    let said = writer.stdout().into_iter().find(full).unwrap();
    assert!(said.contains("store.redb: no space is left for the store: "), "{said}");
    assert!(said.contains("free some, and apply again: nothing was changed"), "{said}");
    let before = acknowledged(&writer).len();
    assert!(before > 0, "there was space for some");

    let lifted = Command::new("prlimit")
        .args(["--pid", &writer.id().to_string(), "--fsize=unlimited:unlimited"])
        .status()
        .unwrap();
    assert!(lifted.success());
    wait::until_true("revisions after the end of the disk", || Ok(acknowledged(&writer).len() >= before + 5)).unwrap();
    let mut writer = writer;
    writer.kill();
    writer.wait_for_output().unwrap();
    let last = *acknowledged(&writer).last().unwrap();
    crash::check(&Database::open(state.path()).unwrap(), last, PADDING).unwrap();
}

#[test]
fn says_that_a_store_is_in_use() {
    let state = tempfile::tempdir().unwrap();
    let _store = Database::open(state.path()).unwrap();
    let error = Database::open(state.path()).unwrap_err().to_string();
    assert!(error.contains("in use by another `postern`"), "{error}");
}
