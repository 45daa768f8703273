//! The histogram that measures durations.

use prometheus_client::metrics::histogram::Histogram;

/// The upper bounds, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// An empty histogram of durations in seconds, with fixed upper bounds from 1 ms to 10 s.
pub fn histogram() -> Histogram {
    Histogram::new(BOUNDS)
}
