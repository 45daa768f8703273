//! A rate limit with a burst, as a token bucket. Its state is one point in time.

use std::time::{Duration, Instant};

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Rate {
    /// The time at which the bucket is full again.
    even: Instant,
}

impl Rate {
    /// A full bucket.
    pub(crate) fn new(now: Instant) -> Self {
        Self { even: now }
    }

    /// Takes a token, of `per_second` new ones a second and at most `burst`. Returns false if there is none.
    pub(crate) fn take(&mut self, per_second: u32, burst: u32, now: Instant) -> bool {
        let each = Duration::from_secs(1) / per_second.max(1);
        let even = self.even.max(now) + each;
        let allowed = even.duration_since(now) <= each * burst.max(1);
        if allowed {
            self.even = even;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let taken = |rate: &mut Rate, now| (0..100).filter(|_| rate.take(10, 20, now)).count();
        assert_eq!(taken(&mut rate, start), 20);
        assert_eq!(taken(&mut rate, start + Duration::from_secs(1)), 10);
        assert_eq!(taken(&mut rate, start + Duration::from_secs(60)), 20);
    }
}
