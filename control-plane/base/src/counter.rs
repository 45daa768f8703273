//! Counters and histograms of durations, updated from any thread. They know neither names nor labels.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A monotonic counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The current count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations with fixed upper bounds, from 1 ms to 10 s.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS.len()],
    count: Counter,
    /// The sum of all durations, in microseconds.
    sum: AtomicU64,
}

/// The upper bounds, in milliseconds.
const BOUNDS: [u64; 12] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

impl Histogram {
    /// Records one duration.
    pub fn observe(&self, took: Duration) {
        let place = BOUNDS.iter().position(|bound| took <= Duration::from_millis(*bound));
        if let Some(bucket) = place.and_then(|place| self.buckets.get(place)) {
            bucket.increment();
        }
        self.count.increment();
        self.sum.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The upper bounds in seconds, each with the number of durations that were not longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let seconds = |milliseconds: u64| Duration::from_millis(milliseconds).as_secs_f64();
        let mut sum = 0;
        BOUNDS.into_iter().zip(&self.buckets).map(move |(bound, bucket)| {
            sum += bucket.get();
            (seconds(bound), sum)
        })
    }

    /// The number of recorded durations.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The sum of all recorded durations, in seconds.
    pub fn sum(&self) -> f64 {
        Duration::from_micros(self.sum.load(Ordering::Relaxed)).as_secs_f64()
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
