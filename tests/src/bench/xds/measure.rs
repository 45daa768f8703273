//! One case, from the start of its server to its figures.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::sync::Semaphore;

use super::{
    case::Case,
    progress::StreamsProgress,
    server::Server,
    site,
    stream::{CONNECTING, Load},
};

/// The figures of a case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    /// The server's memory with idle streams less that without, in KiB a stream.
    pub(super) memory: f64,
    /// The server's CPU time for a change, to the last acceptance: the mean.
    pub(super) cpu: Duration,
    /// From the first connection until every stream has everything.
    pub(super) first_sync: Duration,
    /// From the write of the file until a stream has the change: every stream's time for every change.
    pub(super) delays: Vec<Duration>,
    /// From the write of the file until the last stream has the change, for every change.
    pub(super) until_all: Vec<Duration>,
}

/// Measures a case.
pub(super) async fn measure(case: Case, changes: u32) -> Result<Figures> {
    let directory = tempfile::tempdir()?;
    site::write(directory.path())?;
    let server = Server::start(directory.path())?;
    server.rest().await?;
    let memory_before = server.memory()?;

    let (load, first_sync) = open(case, &server).await?;
    server.rest().await?;
    let memory = server.memory()?.saturating_sub(memory_before) as f64 / f64::from(case.streams);
    eprintln!("bench: {case}: in sync after {first_sync:.1?}, {memory:.1} kB a stream");

    let streams = usize::try_from(case.streams)?;
    let (mut cpu, mut delays, mut until_all) = (Duration::ZERO, Vec::new(), Vec::new());
    for number in 1..=changes {
        let before = server.cpu()?;
        let start = Instant::now();
        site::change(directory.path(), number)?;
        let arrivals = load.progress.all_have(usize::try_from(number)?, streams).await?;
        // Acceptances are on their way still, and what else the change gave rise to.
        server.rest().await?;
        let spent = server.cpu()?.saturating_sub(before);
        let took: Vec<_> = arrivals.iter().map(|arrival| arrival.saturating_duration_since(start)).collect();
        let last = took.iter().max().copied().unwrap_or_default();
        eprintln!("bench: {case}: change {number} of {changes}: {spent:.2?} of CPU, all have it after {last:.0?}");
        cpu += spent;
        delays.extend(took);
        until_all.push(last);
    }
    Ok(Figures { memory, cpu: cpu / changes, first_sync, delays, until_all })
}

/// Opens all streams. Returns how long it took until all had everything. The first is opened alone: if the server
/// refuses it, it would refuse the others too.
async fn open(case: Case, server: &Server) -> Result<(Arc<Load>, Duration)> {
    eprintln!("bench: {case}: opening the streams");
    let (connecting, progress) = (Semaphore::new(CONNECTING), StreamsProgress::default());
    let load = Arc::new(Load { address: server.address(), variant: case.variant, connecting, progress });
    let start = Instant::now();
    load.open(0);
    load.progress.all_synced(1).await?;
    for number in 1..case.streams {
        load.open(number);
    }
    load.progress.all_synced(usize::try_from(case.streams)?).await?;
    Ok((load, start.elapsed()))
}
