//! The thread for what takes long. The owner hands it one piece of work at a time, which ends with a step that the owner
//! carries out itself: nobody else changes anything.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use super::{
    command::{Back, Command},
    desk::Desk,
};

/// What work leads to.
pub(super) struct Step(Box<dyn FnOnce(&mut Desk) + Send>);

impl Step {
    pub(super) fn new(step: impl FnOnce(&mut Desk) + Send + 'static) -> Self {
        Self(Box::new(step))
    }

    pub(super) fn take(self, desk: &mut Desk) {
        (self.0)(desk);
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Step")
    }
}

type Work = Box<dyn FnOnce() -> Step + Send>;

/// The thread, as the owner sees it.
#[derive(Debug)]
pub(super) struct Workshop(mpsc::Sender<Work>);

impl Workshop {
    /// Starts the thread, which tells the owner of everything that it has done. It ends with the owner.
    pub(super) fn start(owner: Back) -> Self {
        let (sender, receiver) = mpsc::channel::<Work>();
        thread("postern-compile", move || {
            for work in receiver {
                let step = catch_unwind(AssertUnwindSafe(work)).ok();
                // Without an owner there is nothing to be changed.
                if let Some(owner) = owner.upgrade() {
                    let _ = owner.send(Command::Done(step));
                }
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
