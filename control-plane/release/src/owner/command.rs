//! What the owner can be told, and how it answers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use postern_compile::snapshot::Snapshot;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::work::{Reply, Step};
use crate::releases::{Applied, ApplyError, Proposal};

/// One thing that the owner is told.
#[derive(Debug)]
pub(super) enum Command {
    Restore(Reply<bool>),
    Apply(Proposal, Reply<Applied>),
    Follow(Proposal, Reply<()>),
    Steer(Steering, Reply<()>),
    Refuse(String, Reply<()>),
    RenewKeys,
    Publish(Box<Snapshot>, Reply<()>),
    #[cfg(feature = "test-hooks")]
    PastTheGate(Proposal, Vec<u8>, Reply<()>),
    Look(Reply<()>),
    End(Reply<()>),
    /// The work that was under way is done: this is what it leads to. Nothing, if it panicked.
    Done(Option<Step>),
}

/// What can be done with a rollout that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steering {
    /// It stays where it is.
    Pause,
    /// It goes on.
    Resume,
    /// All nodes go back.
    Abort,
}

/// The handle for those who change what is in force. Changes are carried out one after the other, in the order in which
/// they come. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Commands(UnboundedSender<Command>);

/// An answer that is awaited: in a task with `await`, on a thread with [`Self::wait`]. A command is carried out whether or
/// not anybody waits for its answer.
#[derive(Debug)]
#[must_use = "what came of a command is in its answer"]
pub struct Answer<T> {
    receiver: oneshot::Receiver<Result<T, ApplyError>>,
    /// The owner lives until it has answered.
    _owner: UnboundedSender<Command>,
}

impl<T> Answer<T> {
    /// Blocks until the answer is there.
    ///
    /// # Panics
    ///
    /// In an asynchronous task, which must not block.
    pub fn wait(self) -> Result<T, ApplyError> {
        self.receiver.blocking_recv().unwrap_or(Err(ApplyError::Ended))
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, ApplyError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context).map(|answer| answer.unwrap_or(Err(ApplyError::Ended)))
    }
}

impl Commands {
    pub(super) fn new(sender: UnboundedSender<Command>) -> Self {
        Self(sender)
    }

    /// Puts in force what an earlier process left in the store. Says whether there was anything.
    pub fn restore(&self) -> Answer<bool> {
        self.ask(Command::Restore)
    }

    /// Puts resources in force as a new revision, with the published keys that are known, or refuses them whole. Keys
    /// that are not known yet are fetched; nothing waits for them.
    pub fn apply(&self, proposal: Proposal) -> Answer<Applied> {
        self.ask(|reply| Command::Apply(proposal, reply))
    }

    /// Like [`Self::apply`] for the contents of a directory, which are applied only if they are not what it said last: what
    /// other ways have changed since stays as they left it.
    pub fn follow(&self, proposal: Proposal) -> Answer<()> {
        self.ask(|reply| Command::Follow(proposal, reply))
    }

    /// Pauses, resumes or aborts the rollout under way.
    pub fn steer(&self, steering: Steering) -> Answer<()> {
        self.ask(|reply| Command::Steer(steering, reply))
    }

    /// Records that a change was refused before it was proposed; what is in force stays.
    pub fn refuse(&self, error: &impl ToString) -> Answer<()> {
        self.ask(|reply| Command::Refuse(error.to_string(), reply))
    }

    /// Puts the resources in force with the keys that are known now.
    pub fn renew_keys(&self) {
        self.tell(Command::RenewKeys);
    }

    /// Puts a snapshot in force for all nodes. It is no revision: the store does not know it, and the next revision replaces
    /// it.
    pub fn publish(&self, snapshot: Snapshot) -> Answer<()> {
        self.ask(|reply| Command::Publish(Box::new(snapshot), reply))
    }

    /// Looks at the fleet, so that the rollout and all conditions are up to date when the answer comes. It does not wait for
    /// changes that are being taken in.
    pub fn look(&self) -> Answer<()> {
        self.ask(Command::Look)
    }

    /// Ends the owner, once all changes that came before are carried out. When the answer comes, it has let go of the store;
    /// whatever it is told afterwards is answered with [`ApplyError::Ended`].
    pub fn end(&self) -> Answer<()> {
        self.ask(Command::End)
    }

    /// Puts resources in force with a plan that no gate has seen, as a new revision, so that a test can see what a fleet
    /// makes of it.
    #[cfg(feature = "test-hooks")]
    pub fn apply_past_the_gate(&self, proposal: Proposal, plan: Vec<u8>) -> Answer<()> {
        self.ask(|reply| Command::PastTheGate(proposal, plan, reply))
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Answer<T> {
        let (reply, receiver) = oneshot::channel();
        self.tell(command(reply));
        Answer { receiver, _owner: self.0.clone() }
    }

    fn tell(&self, command: Command) {
        // An owner that has ended drops the reply, which is an answer too.
        let _ = self.0.send(command);
    }
}
