//! Metrics that the module defines. In Envoy they are one set for all workers; here each VM has its own.

use std::collections::BTreeMap;

use super::abi::Status;

/// What a metric counts (`proxy_metric_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricKind {
    /// Goes up.
    Counter = 0,
    /// Goes up and down.
    Gauge = 1,
    /// Takes samples.
    Histogram = 2,
}

/// A metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Its name, as the module defined it.
    pub name: String,
    /// What it counts.
    pub kind: MetricKind,
    /// The value of a counter or gauge.
    pub value: u64,
    /// The samples of a histogram, in order.
    pub samples: Vec<u64>,
}

/// The metrics of a VM. As in Envoy a number's lowest two bits say the kind, and a name that is defined twice has two
/// numbers for one metric.
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
            // Envoy adds here instead of setting, since its counters know nothing else.
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
