//! The thread for long work. The owner gives it one piece of work at a time, and carries out the resulting step itself:
//! this thread changes nothing.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
    time::Instant,
};

use postern_base::digest::Digest;
use postern_compile::pipeline::CompileError;
use tokio::sync::oneshot;

use crate::{
    catalogue::ResourceKey,
    publication::Publication,
    releases::{Applied, ApplyError, Proposal, Proved, RefusedResource, Salvaged},
};

/// The sender of an answer. The receiver may be gone.
pub(super) type Reply<T> = oneshot::Sender<Result<T, ApplyError>>;

/// The result of examining a proposal.
#[derive(Debug)]
pub(super) struct Examination {
    pub(super) proved: Result<Box<Proved>, ApplyError>,
    /// The errors of single resources.
    pub(super) errors: BTreeMap<ResourceKey, RefusedResource>,
    /// The author and the author's message.
    pub(super) by: (String, String),
    /// When the examination began.
    pub(super) begin: Instant,
}

/// What a directory says: its examination and what was examined, if it has changed, and the digest of its files.
pub(super) type News = (Option<(Examination, Proposal)>, Digest);

/// The result of a piece of work, for the owner to carry out.
#[derive(Debug)]
pub(super) enum Step {
    /// Store and spread a proposal, or report its refusal; with the revision that it goes back to, if it does.
    TakeIn(Examination, Option<u64>, Reply<Applied>),
    /// The same for the contents of a directory, with the digest of its files; no examination if they have not changed.
    Follow(Result<News, ApplyError>, Reply<()>),
    /// The same for a held change, with the digest that was confirmed and who did it.
    Confirm(Examination, Digest, (String, String), Reply<Applied>),
    /// Store and spread what can be served of an invalid directory, with the digest of its files.
    Salvage(Result<Box<Salvaged>, ApplyError>, Digest, Reply<()>),
    /// Replace the live publications by ones compiled with other keys.
    Renew(Result<Vec<(u64, Publication)>, CompileError>),
}

type Work = Box<dyn FnOnce() -> Step + Send>;

/// The owner's handle to the thread.
#[derive(Debug)]
pub(super) struct Workshop(mpsc::Sender<Work>);

impl Workshop {
    /// Starts the thread. It calls `done` after each piece of work, with `None` if the work panicked. It ends with the
    /// owner.
    pub(super) fn start(done: impl Fn(Option<Step>) + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel::<Work>();
        thread("postern-compile", move || {
            for work in receiver {
                done(catch_unwind(AssertUnwindSafe(work)).ok());
            }
        });
        Self(sender)
    }

    /// Hands over a piece of work. Returns false if the thread is gone.
    pub(super) fn hand(&self, work: impl FnOnce() -> Step + Send + 'static) -> bool {
        self.0.send(Box::new(work)).is_ok()
    }
}

/// Starts a thread. If the system refuses, those who send it something are answered that it has ended.
pub(super) fn thread(name: &'static str, run: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(run) {
        tracing::error!(name, "a thread cannot be started: {error}");
    }
}
