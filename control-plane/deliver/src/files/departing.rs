//! Resources that are gone from what is in force and stay in the files a little longer: routes that Envoy still has may
//! use them, and files bring no word of what Envoy has.

use std::{collections::BTreeMap, sync::Arc};

use postern_compile::snapshot::{Resource, ResourceType, Selection, Snapshot};

/// The resources that are kept, by type and name.
#[derive(Debug, Clone, Default)]
pub struct Departing(BTreeMap<(ResourceType, String), Arc<Resource>>);

impl Departing {
    /// Keeps, besides what is kept already, what one snapshot has and the next has not. Listeners go at once: nothing
    /// refers to them.
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

    /// Those of a type.
    pub(super) fn of(&self, kind: ResourceType) -> impl Iterator<Item = &Arc<Resource>> {
        self.0.iter().filter(move |((of, _), _)| *of == kind).map(|(_, resource)| resource)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
