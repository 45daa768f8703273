//! Metrics that a module defines. In Envoy all workers share them; here each VM has its own.

use std::collections::BTreeMap;

use super::abi::Status;

/// The kind of a metric (`proxy_metric_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricKind {
    /// Only increases.
    Counter = 0,
    /// Increases and decreases.
    Gauge = 1,
    /// Records samples.
    Histogram = 2,
}

/// A metric and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// The name that the module defined.
    pub name: String,
    /// The kind.
    pub kind: MetricKind,
    /// The value of a counter or gauge.
    pub value: u64,
    /// The samples of a histogram, in order.
    pub samples: Vec<u64>,
}

/// The metrics of a VM. As in Envoy, the two lowest bits of a number are the kind, and defining a name again gives a
/// second number for the same metric.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    metrics: BTreeMap<(MetricKind, String), Metric>,
    keys: BTreeMap<u32, (MetricKind, String)>,
}

impl Metrics {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Metric> {
        self.metrics.values()
    }

    pub(super) fn define(&mut self, kind: MetricKind, name: String) -> Result<u32, Status> {
        let count = u32::try_from(self.keys.len()).map_err(|_| Status::InternalFailure)?;
        let number = count.checked_mul(4).ok_or(Status::InternalFailure)? | kind as u32;
        let metric = Metric { name: name.clone(), kind, value: 0, samples: Vec::new() };
        self.metrics.entry((kind, name.clone())).or_insert(metric);
        self.keys.insert(number, (kind, name));
        Ok(number)
    }

    fn find(&mut self, number: u32) -> Result<&mut Metric, Status> {
        let key = self.keys.get(&number).ok_or(Status::NotFound)?;
        self.metrics.get_mut(key).ok_or(Status::NotFound)
    }

    pub(super) fn increment(&mut self, number: u32, by: i64) -> Result<(), Status> {
        let metric = self.find(number)?;
        match metric.kind {
            MetricKind::Counter if by > 0 => metric.value = metric.value.wrapping_add(by.unsigned_abs()),
            MetricKind::Gauge => metric.value = metric.value.wrapping_add_signed(by),
            MetricKind::Counter | MetricKind::Histogram => return Err(Status::BadArgument),
        }
        Ok(())
    }

    pub(super) fn record(&mut self, number: u32, value: u64) -> Result<(), Status> {
        let metric = self.find(number)?;
        match metric.kind {
            // Envoy's counters cannot be set, so recording a value adds it.
            MetricKind::Counter => metric.value = metric.value.wrapping_add(value),
            MetricKind::Gauge => metric.value = value,
            MetricKind::Histogram => metric.samples.push(value),
        }
        Ok(())
    }

    pub(super) fn value(&mut self, number: u32) -> Result<u64, Status> {
        let metric = self.find(number)?;
        if metric.kind == MetricKind::Histogram { Err(Status::BadArgument) } else { Ok(metric.value) }
    }
}
