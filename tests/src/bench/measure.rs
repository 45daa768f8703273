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

use super::{Options, cases::Case, places::Places, stage::Stage, upstream};

/// After a start: the Wasm runtime compiles hot code anew after some thousand calls.
const FIRST_WARM_UP: u32 = 3000;
/// Before each sample, as a part of its requests: another case has used the caches.
const WARM_UP: u32 = 8;

/// The result of a case.
#[derive(Debug)]
pub(super) enum Measurement {
    /// Microseconds of CPU a request, one for each round.
    Rounds(Vec<f64>),
    /// It could not be measured.
    Failed(String),
}

/// Measures all cases round by round. A case that fails stays failed; the others go on.
///
/// Two processes with the same configuration differ by some microseconds a request as long as they live, by where
/// their memory happens to lie. So all are started anew several times in a run.
pub(super) fn measure(cases: Vec<Case>, options: &Options) -> Result<Vec<(Case, Measurement)>> {
    let stop = stop_on_signals()?;
    let go_on = || {
        ensure!(!stop.load(Ordering::Relaxed), "stopped by a signal");
        Ok(())
    };
    let places = Places::share_out()?;
    let upstream = upstream::start()?;
    let mut runs: Vec<_> = cases.into_iter().map(Run::new).collect();
    for start in 1..=options.starts {
        eprintln!("bench: start {start} of {}", options.starts);
        for run in &mut runs {
            go_on()?;
            run.start(|case| Stage::start(case, &places, upstream, options.connections));
        }
        for round in 0..options.rounds.div_ceil(options.starts) {
            // Each round begins with another case, so that none always comes after the same amount of other work.
            let begin = usize::try_from(round)? % runs.len().max(1);
            let (later, first) = runs.split_at_mut(begin);
            for run in first.iter_mut().chain(later) {
                go_on()?;
                run.sample(options.requests);
            }
        }
        runs.iter_mut().for_each(Run::stop);
    }
    Ok(runs.into_iter().map(Run::end).collect())
}

struct Run {
    case: Case,
    state: State,
    rounds: Vec<f64>,
}

enum State {
    Stopped,
    Started(Box<Stage>),
    Failed(String),
}

impl Run {
    fn new(case: Case) -> Self {
        Self { case, state: State::Stopped, rounds: Vec::new() }
    }

    fn start(&mut self, start: impl FnOnce(&Case) -> Result<Stage>) {
        if let State::Failed(_) = self.state {
            return;
        }
        let started = start(&self.case).and_then(|mut stage| {
            stage.warm_up(FIRST_WARM_UP)?;
            Ok(stage)
        });
        self.state = match started {
            Ok(stage) => State::Started(Box::new(stage)),
            Err(error) => self.failed(&error),
        };
    }

    fn sample(&mut self, requests: u32) {
        let State::Started(stage) = &mut self.state else { return };
        match stage.warm_up(requests / WARM_UP).and_then(|()| stage.measure(requests)) {
            Ok(cpu) => self.rounds.push(cpu.as_secs_f64() * 1e6 / f64::from(requests)),
            Err(error) => self.state = self.failed(&error),
        }
    }

    fn stop(&mut self) {
        if let State::Started(_) = self.state {
            self.state = State::Stopped;
        }
    }

    fn failed(&self, error: &anyhow::Error) -> State {
        eprintln!("bench: {} cannot be measured: {error:#}", self.case.name);
        State::Failed(format!("{error:#}"))
    }

    fn end(self) -> (Case, Measurement) {
        match self.state {
            State::Failed(reason) => (self.case, Measurement::Failed(reason)),
            State::Started(_) | State::Stopped => (self.case, Measurement::Rounds(self.rounds)),
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
