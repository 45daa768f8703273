//! What is no longer served is freed on a thread of its own, whoever drops the last reference to it.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use postern_base::{disposal::dispose, node::NodeIdentity};
use postern_compile::{keys::KeySets, snapshot::FilterCode};
use postern_model::{File, read};
use postern_release::publication::Publication;

const RESOURCES: &str = "\
apiVersion: postern/v1
kind: Service
metadata: { name: users }
spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }
";

/// A value that keeps the thread busy until it is told to go on.
struct Busy(mpsc::Receiver<()>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.recv().unwrap();
    }
}

#[test]
fn who_drops_the_last_reference_to_a_publication_does_not_free_it() {
    let file = File { name: "f.yaml".to_owned(), bytes: RESOURCES.into() };
    let code = FilterCode::new(Vec::new(), None);
    let publication = Publication::admit(read(&[file]).unwrap(), KeySets::default(), &code, &[], None).unwrap();
    let snapshot = Arc::downgrade(&publication.snapshot_for(&NodeIdentity::default()));
    let (go_on, busy) = mpsc::channel();
    dispose(Busy(busy));
    drop(publication);
    assert!(snapshot.strong_count() > 0, "it was freed by who dropped it");
    go_on.send(()).unwrap();
    let start = Instant::now();
    while snapshot.strong_count() > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "it is never freed");
        thread::yield_now();
    }
}
