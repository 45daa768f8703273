//! The rounds: in each, every case gets its turn, so that what disturbs the machine for a while disturbs all of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, ensure};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

use super::{Options, cases::Case, stage::Stage, upstream};

/// Before the first round: the Wasm runtime compiles hot code anew after some thousand calls.
const FIRST_WARM_UP: u32 = 5000;
/// Before each sample: another case has used the caches.
const WARM_UP: u32 = 200;

/// What came of a case.
#[derive(Debug)]
pub(super) enum Measurement {
    /// Microseconds of CPU a request, one for each round.
    Rounds(Vec<f64>),
    /// It could not be measured.
    Failed(String),
}

/// Starts all cases and measures them round by round. A case that fails stays failed; the others go on.
pub(super) fn measure(cases: Vec<Case>, options: &Options) -> Result<Vec<(Case, Measurement)>> {
    let stop = stop_on_signals()?;
    let upstream = upstream::start()?;
    let mut runs = Vec::new();
    for case in cases {
        ensure!(!stop.load(Ordering::Relaxed), "stopped by a signal");
        eprintln!("bench: starting {}", case.name);
        let stage = Stage::start(&case, upstream, options.connections).and_then(|mut stage| {
            stage.warm_up(FIRST_WARM_UP)?;
            Ok(stage)
        });
        runs.push(Run { case, stage: stage.map_err(|error| format!("{error:#}")), rounds: Vec::new() });
    }
    for round in 1..=options.rounds {
        eprintln!("bench: round {round} of {}", options.rounds);
        for run in &mut runs {
            ensure!(!stop.load(Ordering::Relaxed), "stopped by a signal");
            run.sample(options.requests);
        }
    }
    Ok(runs.into_iter().map(Run::end).collect())
}

struct Run {
    case: Case,
    stage: Result<Stage, String>,
    rounds: Vec<f64>,
}

impl Run {
    fn sample(&mut self, requests: u32) {
        let Ok(stage) = &mut self.stage else { return };
        match stage.warm_up(WARM_UP).and_then(|()| stage.measure(requests)) {
            Ok(cpu) => self.rounds.push(cpu.as_secs_f64() * 1e6 / f64::from(requests)),
            Err(error) => self.stage = Err(format!("{error:#}")),
        }
    }

    fn end(self) -> (Case, Measurement) {
        match self.stage {
            Ok(_) => (self.case, Measurement::Rounds(self.rounds)),
            Err(reason) => (self.case, Measurement::Failed(reason)),
        }
    }
}

/// Becomes true on Ctrl-C or SIGTERM: guards must be dropped for what was started to end.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt()).context("SIGINT")?, signal(SignalKind::terminate()).context("SIGTERM")?)
    };
    let flag = Arc::clone(&stop);
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
