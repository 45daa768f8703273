//! The handle to what is in force, and the way to what takes its time to make of it.

use std::sync::Arc;

use tokio::{
    sync::{Semaphore, watch},
    task,
};

use super::Publication;

/// How many threads make something of one publication at a time. Who asks for what is being made waits as a future, and
/// finds it made.
const THREADS: usize = 2;

/// What is in force, now and later. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Publications(watch::Receiver<Option<Arc<Publication>>>);

impl Publications {
    /// What is in force now; nothing before the first revision is.
    pub fn latest(&self) -> Option<Arc<Publication>> {
        self.0.borrow().clone()
    }

    /// What is in force, and a bell for what comes after it.
    pub fn follow(&self) -> watch::Receiver<Option<Arc<Publication>>> {
        let mut receiver = self.0.clone();
        receiver.mark_unchanged();
        receiver
    }
}

impl From<watch::Receiver<Option<Arc<Publication>>>> for Publications {
    fn from(receiver: watch::Receiver<Option<Arc<Publication>>>) -> Self {
        Self(receiver)
    }
}

/// Turns for those who make something of a publication.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS)))
    }
}

impl Publication {
    /// Makes something of this publication that may take its time, such as the snapshot of a group that nobody foresaw, on
    /// a thread that may block. The work ends even if nobody waits for it any more. `None` if it panicked.
    pub fn prepare<T: Send + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send + 'static {
        let (publication, Turns(turns)) = (Arc::clone(self), self.turns.clone());
        async move {
            // Nobody closes the semaphore.
            let turn = turns.acquire_owned().await.ok();
            let made = task::spawn_blocking(move || {
                let made = make(&publication);
                drop(turn);
                made
            });
            made.await.inspect_err(|error| tracing::error!("what a node asked for was not made: {error}")).ok()
        }
    }
}
