//! What crash tests share: pseudo-random numbers, the revisions that they write, and the check that all of them are
//! there.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, ensure};
use postern_release::store::{Document, Draft, Revision, Store};

/// Pseudo-random numbers, the same for each seed.
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of a seed, which must not be 0.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one, below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// How many revisions the writer keeps.
pub const KEPT: usize = 20;

/// The content of a revision, which follows from its number; `padding` bytes of it are its own.
pub fn draft(number: u64, padding: usize) -> Draft {
    Draft {
        digest: format!("digest-{number}"),
        author: "writer".to_owned(),
        message: format!("number {number}"),
        at: UNIX_EPOCH + Duration::from_millis(number),
        documents: documents(number, padding).into(),
    }
}

fn documents(number: u64, padding: usize) -> Vec<Document> {
    let document = |index: u64| {
        let size = if index == 0 { padding } else { usize::try_from(index * 700).unwrap_or_default() };
        // The first one changes with every revision, the others now and then: documents are shared, and collected.
        let text = format!("revision: {}\n{}", number >> index, "x".repeat(size));
        Document { file: format!("file-{index}.yaml"), line: 1, text: text.into_bytes() }
    };
    (0..8).map(document).collect()
}

/// Checks that every kept revision is complete, that none is missing between them, and that the last acknowledged one
/// is there. Returns the latest.
pub fn check(store: &dyn Store, acknowledged: u64, padding: usize) -> Result<u64> {
    let revisions = store.revisions()?;
    let latest = revisions.first().map_or(0, |revision| revision.number);
    ensure!(latest >= acknowledged, "revision {acknowledged} was acknowledged, but {latest} is the latest");
    ensure!(latest <= acknowledged + 1, "{latest} is there, but only {acknowledged} was acknowledged");
    for (revision, number) in revisions.iter().zip((1..=latest).rev()) {
        let draft = draft(number, padding);
        let parent = (number > 1).then(|| number - 1);
        let Draft { digest, author, message, .. } = draft;
        let documents = documents(number, padding);
        let (count, purged) = (documents.len(), Vec::new());
        let expect = Revision { number, digest, author, message, at: number, parent, documents: count, purged };
        ensure!(*revision == expect, "{revision:?} should be {expect:?}");
        ensure!(store.documents(number)? == Some(documents), "revision {number} is only half there");
    }
    ensure!(latest < KEPT as u64 || revisions.len() >= KEPT, "only {} revisions are kept", revisions.len());
    Ok(latest)
}
