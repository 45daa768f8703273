//! A place for the protocol's memory of a node, shared by its streams. Its content belongs to the protocol; the fleet
//! keeps it as long as the node, and asks it the two questions of [`StreamMemory`].

use std::{
    any::Any,
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use postern_compile::snapshot::ResourceType;

/// What streams remember of their node, as far as the fleet needs it.
pub trait StreamMemory: Any + Debug + Send + Sync {
    /// Whether a stream's refusal of something of this type still counts.
    fn is_outstanding(&self, kind: ResourceType, stream: u64) -> bool;

    /// Called when the node runs all that it subscribed to on its open streams. What ended streams had accepted or
    /// refused is forgotten.
    fn settle(&self, is_open: &dyn Fn(u64) -> bool);
}

/// The memory of one node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Remembered(Arc<OnceLock<Box<dyn StreamMemory>>>);

impl Remembered {
    /// The memory of the node; its first stream creates it. All streams of a node must use one type of memory: a caller
    /// with another type gets a default value that is not shared.
    pub fn recall<M: StreamMemory + Clone + Default>(&self) -> M {
        let memory: &dyn Any = &**self.0.get_or_init(|| Box::<M>::default());
        memory.downcast_ref::<M>().cloned().unwrap_or_default()
    }

    pub(super) fn is_outstanding(&self, kind: ResourceType, stream: u64) -> bool {
        self.0.get().is_some_and(|memory| memory.is_outstanding(kind, stream))
    }

    pub(super) fn settle(&self, is_open: impl Fn(u64) -> bool) {
        if let Some(memory) = self.0.get() {
            memory.settle(&is_open);
        }
    }
}
