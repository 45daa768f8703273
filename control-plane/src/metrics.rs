//! What is counted while the control plane runs: numbers only, of bounded kinds. [`crate::admin`] shows them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    releases::{Applied, ApplyError, RolloutReport},
    rollout::State,
    snapshot::ResourceType,
    store::StoreError,
};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One counter for each type of resource.
#[derive(Debug, Default)]
pub(crate) struct PerType([Counter; ResourceType::ALL.len()]);

impl PerType {
    pub(crate) fn increment(&self, kind: ResourceType) {
        let place = ResourceType::ALL.iter().position(|other| *other == kind);
        if let Some(counter) = place.and_then(|place| self.0.get(place)) {
            counter.increment();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceType, u64)> {
        ResourceType::ALL.into_iter().zip(self.0.iter().map(Counter::get))
    }
}

/// How long something took, by upper bounds.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS.len()],
    count: Counter,
    /// In microseconds.
    sum: AtomicU64,
}

/// In milliseconds.
const BOUNDS: [u64; 12] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

impl Histogram {
    /// It took so long.
    pub(crate) fn observe(&self, took: Duration) {
        let place = BOUNDS.iter().position(|bound| took <= Duration::from_millis(*bound));
        if let Some(bucket) = place.and_then(|place| self.buckets.get(place)) {
            bucket.increment();
        }
        self.count.increment();
        self.sum.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The bounds in seconds, each with how many took no longer.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let seconds = |milliseconds: u64| Duration::from_millis(milliseconds).as_secs_f64();
        let mut sum = 0;
        BOUNDS.into_iter().zip(&self.buckets).map(move |(bound, bucket)| {
            sum += bucket.get();
            (seconds(bound), sum)
        })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// In seconds.
    pub(crate) fn sum(&self) -> f64 {
        Duration::from_micros(self.sum.load(Ordering::Relaxed)).as_secs_f64()
    }
}

/// What came of proposals.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    pub(crate) created: Counter,
    pub(crate) unchanged: Counter,
    pub(crate) invalid: Counter,
    pub(crate) conflict: Counter,
    pub(crate) failed: Counter,
}

/// What came of rollouts.
#[derive(Debug, Default)]
pub(crate) struct Rollouts {
    pub(crate) started: Counter,
    pub(crate) completed: Counter,
    pub(crate) rolled_back: Counter,
    pub(crate) aborted: Counter,
}

/// All that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) pushes: PerType,
    pub(crate) acks: PerType,
    pub(crate) nacks: PerType,
    pub(crate) proposals: Proposals,
    pub(crate) rollouts: Rollouts,
    /// How long it takes to take a proposal in: compiling, gate and store.
    pub(crate) applies: Histogram,
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl Metrics {
    /// A proposal was taken in, or was not.
    pub(crate) fn applied(&self, applied: &Result<Applied, ApplyError>, took: Duration) {
        let Proposals { created, unchanged, invalid, conflict, failed } = &self.proposals;
        let counter = match applied {
            Ok(Applied::Revision(_)) => created,
            Ok(Applied::Unchanged(_)) => unchanged,
            Err(ApplyError::Compile(_)) => invalid,
            Err(ApplyError::Store(StoreError::Conflict { .. })) => conflict,
            Err(_) => failed,
        };
        counter.increment();
        self.applies.observe(took);
    }

    /// A rollout is elsewhere than it was.
    pub(crate) fn rollout(&self, before: Option<&RolloutReport>, now: &RolloutReport) {
        let same = before.filter(|report| report.candidate == now.candidate);
        let under_way = |state: &State| matches!(state, State::Progressing | State::Paused);
        if same.is_none() && under_way(&now.state) {
            self.rollouts.started.increment();
        }
        // What a restart finds at its end has ended before.
        if !same.is_some_and(|report| under_way(&report.state)) {
            return;
        }
        match now.state {
            State::Completed => self.rollouts.completed.increment(),
            State::RolledBack { .. } => self.rollouts.rolled_back.increment(),
            State::Aborted => self.rollouts.aborted.increment(),
            State::Progressing | State::Paused => {}
        }
    }

    /// A request was answered. Operations are known, and statuses are those that we answer with.
    pub(crate) fn answered(&self, operation: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((operation, status)).or_default() += 1;
    }

    /// How many requests were answered, by operation and status.
    pub(crate) fn requests(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_times_by_their_upper_bounds() {
        let histogram = Histogram::default();
        for milliseconds in [1, 2, 5, 30, 60_000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        let found: Vec<_> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(found, [1, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 60.038));
    }
}
