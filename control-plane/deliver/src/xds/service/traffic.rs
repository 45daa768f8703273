//! Counters of streams, by type of resource.

use postern_compile::snapshot::ResourceType;
use prometheus_client::metrics::counter::Counter;

/// One counter for each type of resource.
#[derive(Debug, Default)]
pub struct PerType([Counter; ResourceType::ALL.len()]);

impl PerType {
    /// Increments the counter of a type.
    pub fn increment(&self, kind: ResourceType) {
        let place = ResourceType::ALL.iter().position(|other| *other == kind);
        if let Some(counter) = place.and_then(|place| self.0.get(place)) {
            counter.inc();
        }
    }

    /// The counters of all types.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceType, u64)> {
        ResourceType::ALL.into_iter().zip(self.0.iter().map(|counter| counter.get()))
    }
}

/// The counters of all streams.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Responses that were sent.
    pub pushes: PerType,
    /// Responses that were accepted.
    pub acks: PerType,
    /// Responses that were refused.
    pub nacks: PerType,
}
