//! Which CPUs the parts of a run may use: Envoy has one for itself, everything else shares the others. A process that
//! moves between CPUs, or takes turns with its own client, needs a different time in every round.

use anyhow::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The calling thread, and what it starts from then on.
const HERE: Option<rustix::thread::Pid> = None;

/// The CPUs that this process has been given, shared out.
pub(super) struct Places {
    envoy: CpuSet,
    others: CpuSet,
}

impl Places {
    /// Shares them out and moves the calling thread to the place of the others. With only one CPU, all stay on it.
    pub(super) fn share_out() -> Result<Self> {
        let given = sched_getaffinity(HERE)?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| given.is_set(*cpu));
        let (mut envoy, mut others) = (given, given);
        if let (Some(last), true) = (last, given.count() > 1) {
            envoy.clear();
            envoy.set(last);
            others.unset(last);
        }
        sched_setaffinity(HERE, &others)?;
        Ok(Self { envoy, others })
    }

    /// Starts something in Envoy's place.
    pub(super) fn start_envoy<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        sched_setaffinity(HERE, &self.envoy)?;
        let started = start();
        sched_setaffinity(HERE, &self.others)?;
        started
    }
}
