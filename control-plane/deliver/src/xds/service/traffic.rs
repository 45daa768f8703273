//! What is counted of streams, by type of resource.

use postern_base::counter::Counter;
use postern_compile::snapshot::ResourceType;

/// One counter for each type of resource.
#[derive(Debug, Default)]
pub struct PerType([Counter; ResourceType::ALL.len()]);

impl PerType {
    /// Counts one more of a type.
    pub fn increment(&self, kind: ResourceType) {
        let place = ResourceType::ALL.iter().position(|other| *other == kind);
        if let Some(counter) = place.and_then(|place| self.0.get(place)) {
            counter.increment();
        }
    }

    /// How many there were of each type.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceType, u64)> {
        ResourceType::ALL.into_iter().zip(self.0.iter().map(Counter::get))
    }
}

/// What went over all streams.
#[derive(Debug, Default)]
pub struct Traffic {
    /// What was sent to nodes.
    pub pushes: PerType,
    /// What nodes accepted.
    pub acks: PerType,
    /// What nodes refused.
    pub nacks: PerType,
}
