//! A limit on how often something may happen: on average so often, with so much in advance. One point in time is all that
//! it needs to know.

use std::time::{Duration, Instant};

/// A bucket that fills with time.
#[derive(Debug)]
pub(super) struct Rate {
    /// When all that was taken has been made up for.
    even: Instant,
}

impl Rate {
    /// Nothing was taken yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { even: now }
    }

    /// Takes one of `per_second` a second and `burst` in advance, or says that there is none.
    pub(super) fn take(&mut self, per_second: u32, burst: u32, now: Instant) -> bool {
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
