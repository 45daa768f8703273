//! A place for what all streams of a node remember of it. Who delivers decides what that is; the fleet keeps it as long as
//! the node, and asks for two things.

use std::{
    any::Any,
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use postern_compile::snapshot::ResourceType;

/// What the streams of a node remember of it, as far as the fleet needs it.
pub trait StreamMemory: Any + Debug + Send + Sync {
    /// Whether a stream's refusal of something of a type still counts.
    fn is_outstanding(&self, kind: ResourceType, stream: u64) -> bool;

    /// The node runs all that it subscribed to on the open streams, which are all that it has: what others had accepted or
    /// refused no longer counts.
    fn settle(&self, is_open: &dyn Fn(u64) -> bool);
}

/// The place for the memory of one node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Remembered(Arc<OnceLock<Box<dyn StreamMemory>>>);

impl Remembered {
    /// The memory of the node, which its first stream makes. All streams of a node have one type of memory; one of another
    /// type starts with nothing.
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
