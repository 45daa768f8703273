//! The thread for what takes long. The owner hands it one piece of work at a time, and carries out what that leads to
//! itself: nobody else changes anything.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
    time::Instant,
};

use postern_base::digest::Digest;
use postern_compile::pipeline::CompileError;
use tokio::sync::oneshot;

use crate::{
    publication::Publication,
    releases::{Applied, ApplyError, Proved},
};

/// Where an answer goes. Whoever asked may be gone.
pub(super) type Reply<T> = oneshot::Sender<Result<T, ApplyError>>;

/// What became of a proposal, and when its examination began.
pub(super) type Examination = (Result<Box<Proved>, ApplyError>, Instant);

/// What work leads to.
#[derive(Debug)]
pub(super) enum Step {
    /// A proposal is to be taken in, or was refused.
    TakeIn(Examination, Reply<Applied>),
    /// So is what a directory says, unless it says what it said last. The digest is that of its files.
    Follow(Result<Option<(Examination, Digest)>, ApplyError>, Reply<()>),
    /// What is live was compiled with other keys.
    Renew(Result<Vec<(u64, Publication)>, CompileError>),
}

type Work = Box<dyn FnOnce() -> Step + Send>;

/// The thread, as the owner sees it.
#[derive(Debug)]
pub(super) struct Workshop(mpsc::Sender<Work>);

impl Workshop {
    /// Starts the thread, which calls `done` after each piece of work: with nothing, if it panicked. It ends with the owner.
    pub(super) fn start(done: impl Fn(Option<Step>) + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel::<Work>();
        thread("postern-compile", move || {
            for work in receiver {
                done(catch_unwind(AssertUnwindSafe(work)).ok());
            }
        });
        Self(sender)
    }

    /// Hands over work. `false` if there is nobody to do it.
    pub(super) fn hand(&self, work: impl FnOnce() -> Step + Send + 'static) -> bool {
        self.0.send(Box::new(work)).is_ok()
    }
}

/// Starts a thread. Without it, whoever asks it for anything is told that it has ended.
pub(super) fn thread(name: &'static str, run: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(run) {
        tracing::error!(name, "a thread cannot be started: {error}");
    }
}
