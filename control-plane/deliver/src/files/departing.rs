//! Resources that are no longer in force but stay in the files for a while: Envoy may still have routes that use them,
//! and files give no acknowledgement.

use std::{collections::BTreeMap, sync::Arc};

use postern_compile::snapshot::{Resource, ResourceType, Selection, Snapshot};

/// The kept resources, by type and name.
#[derive(Debug, Clone, Default)]
pub struct Departing(BTreeMap<(ResourceType, String), Arc<Resource>>);

impl Departing {
    /// Adds the resources that one snapshot has and the next does not. Listeners are not kept: nothing refers to them.
    pub fn moved(&mut self, from: &Snapshot, to: &Snapshot) {
        for kind in ResourceType::ALL.into_iter().filter(|kind| *kind != ResourceType::Listener) {
            for resource in from.select(kind, &Selection::Everything).resources {
                self.0.insert((kind, resource.name.clone()), resource);
            }
            for resource in to.select(kind, &Selection::Everything).resources {
                self.0.remove(&(kind, resource.name.clone()));
            }
        }
    }

    /// The kept resources of a type.
    pub(super) fn of(&self, kind: ResourceType) -> impl Iterator<Item = &Arc<Resource>> {
        self.0.iter().filter(move |((of, _), _)| *of == kind).map(|(_, resource)| resource)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
