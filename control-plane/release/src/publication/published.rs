//! The readers' handle to what is in force, and slow work on it.

use std::sync::Arc;

use tokio::{
    sync::{Semaphore, watch},
    task,
};

use super::Publication;

/// The maximum number of threads that work on one publication. Others wait asynchronously, and usually find the result
/// made.
const THREADS: usize = 2;

/// A receiver of publications. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Publications(watch::Receiver<Option<Arc<Publication>>>);

impl Publications {
    /// The publication in force, or `None` before the first revision.
    pub fn latest(&self) -> Option<Arc<Publication>> {
        self.0.borrow().clone()
    }

    /// A receiver that is notified of each new publication.
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

/// Permits to work on a publication.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS)))
    }
}

impl Publication {
    /// Calls a function that may be slow, such as one that compiles a group that was not foreseen, on a thread that may
    /// block. It runs to its end even if the future is dropped. Returns `None` if it panicked.
    pub fn prepare<T: Send + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send + 'static {
        let (publication, Turns(turns)) = (Arc::clone(self), self.turns.clone());
        async move {
            // The semaphore is never closed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use postern_base::node::NodeIdentity;
    use postern_compile::{keys::KeySets, snapshot::FilterCode};
    use postern_model::{File, read};

    #[tokio::test]
    async fn a_group_that_nobody_foresaw_is_compiled_on_another_thread_once_for_all_that_ask() {
        let text = "apiVersion: postern/v1\nkind: Service\nmetadata: { name: users }\n\
            spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }\n";
        let file = File { name: "f.yaml".to_owned(), bytes: text.into() };
        let code = FilterCode::new(Vec::new(), None);
        let publication = Publication::admit(read(&[file]).unwrap(), KeySets::default(), &code, &[], None).unwrap();
        let publication = Arc::new(publication);
        assert!(publication.compiled_for(&NodeIdentity::default()).is_some(), "it was foreseen");

        let other = NodeIdentity { large_regexes: true, ..NodeIdentity::default() };
        assert!(publication.compiled_for(&other).is_none(), "nobody foresees it");
        let ask = || {
            let (node, asker) = (other.clone(), std::thread::current().id());
            publication.prepare(move |publication| {
                assert_ne!(std::thread::current().id(), asker);
                publication.snapshot_for(&node)
            })
        };
        let asked: Vec<_> = (0..20).map(|_| tokio::spawn(ask())).collect();
        // Dropping the future must not stop the work for others.
        drop(ask());
        for answer in asked {
            let made = answer.await.unwrap().unwrap();
            assert!(Arc::ptr_eq(&made, &publication.compiled_for(&other).unwrap()));
        }
    }

    #[tokio::test]
    async fn who_asks_for_what_panics_is_told() {
        let snapshot = postern_compile::pipeline::compile(
            &[File {
                name: "f.yaml".to_owned(),
                bytes: b"apiVersion: postern/v1\nkind: Settings\nmetadata: { name: s }\nspec: {}\n".to_vec(),
            }],
            &FilterCode::new(Vec::new(), None),
        );
        let publication = Arc::new(Publication::uniform(snapshot.unwrap()));
        for _ in 0..3 {
            assert!(publication.prepare(|_| -> () { panic!("as a test") }).await.is_none());
        }
        assert!(publication.prepare(|_| ()).await.is_some(), "a turn that panicked is given back");
    }
}
