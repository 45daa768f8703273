//! The commands of the owner, and the handle that sends them.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use postern_model::Diagnostic;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::work::{Reply, Step};
use crate::{
    catalogue::ResourceKey,
    releases::{Applied, ApplyError, Proposal, Purged},
};

/// A command to the owner.
#[derive(Debug)]
pub(super) enum Command {
    Restore(Reply<bool>),
    /// A proposal, and the revision that it goes back to, if it does.
    Apply(Proposal, Option<u64>, Reply<Applied>),
    Follow(Proposal, Reply<()>),
    Salvage(Proposal, Vec<Diagnostic>, Reply<()>),
    Steer(Steering, Reply<()>),
    Purge(Purge, Reply<Purged>),
    /// The digest of what is held, and who confirms it.
    Confirm(String, String, Reply<Applied>),
    /// Examine what is held again, since what is in force has changed.
    Reconsider,
    Refuse(String, Reply<()>),
    RenewKeys,
    #[cfg(any(test, feature = "test-hooks"))]
    Publish(Box<postern_compile::snapshot::Snapshot>, Reply<()>),
    #[cfg(feature = "test-hooks")]
    PastTheGate(Proposal, Vec<u8>, Reply<()>),
    Look(Reply<()>),
    End(Reply<()>),
    /// The work under way has ended, with this step; `None` if it panicked.
    Done(Option<Step>),
}

/// Commands to the rollout under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steering {
    /// Stop it at the present step.
    Pause,
    /// Continue it.
    Resume,
    /// Go on without the pause of the present step.
    Promote,
    /// Go to all nodes at once.
    PromoteNow,
    /// Send all nodes back to the last good revision.
    Abort,
}

/// A resource to be removed from all revisions that are kept.
#[derive(Debug, Clone)]
pub struct Purge {
    /// The resource.
    pub resource: ResourceKey,
    /// Whether to say only what would be removed.
    pub dry_run: bool,
    /// The author.
    pub author: String,
}

/// The handle for those who change what is in force. Commands are carried out one after the other, in the order in
/// which they are sent. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Commands(UnboundedSender<Command>);

/// A pending answer: `await` it in a task, or call [`Self::wait`] on a thread. The command is carried out even if the
/// answer is dropped.
#[derive(Debug)]
#[must_use = "what came of a command is in its answer"]
pub struct PendingAnswer<T> {
    receiver: oneshot::Receiver<Result<T, ApplyError>>,
    /// Keeps the owner alive until it has answered.
    _owner: UnboundedSender<Command>,
}

impl<T> PendingAnswer<T> {
    /// Blocks until the answer is there.
    ///
    /// # Panics
    ///
    /// In an asynchronous task, which must not block.
    pub fn wait(self) -> Result<T, ApplyError> {
        self.receiver.blocking_recv().unwrap_or(Err(ApplyError::Ended))
    }
}

impl<T> Future for PendingAnswer<T> {
    type Output = Result<T, ApplyError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context).map(|answer| answer.unwrap_or(Err(ApplyError::Ended)))
    }
}

impl Commands {
    pub(super) fn new(sender: UnboundedSender<Command>) -> Self {
        Self(sender)
    }

    /// Restores what an earlier process left in the store. The answer is whether there was anything.
    pub fn restore(&self) -> PendingAnswer<bool> {
        self.ask(Command::Restore)
    }

    /// Puts resources in force as a new revision with the published keys that are known, or refuses them whole. Unknown
    /// key sets are fetched in the background; the command does not wait for them.
    pub fn apply(&self, proposal: Proposal) -> PendingAnswer<Applied> {
        self.ask(|reply| Command::Apply(proposal, None, reply))
    }

    /// Like [`Self::apply`], for a proposal that goes back to a revision. A followed directory that said what is taken
    /// back then does not bring it in again until it changes there.
    pub fn go_back(&self, proposal: Proposal, revision: u64) -> PendingAnswer<Applied> {
        self.ask(|reply| Command::Apply(proposal, Some(revision), reply))
    }

    /// Like [`Self::apply`], for the contents of a directory. They are applied only if they differ from its last
    /// contents, so that changes made by other ways since are kept.
    pub fn follow(&self, proposal: Proposal) -> PendingAnswer<()> {
        self.ask(|reply| Command::Follow(proposal, reply))
    }

    /// Puts in force what can be served of a directory that is not valid, and refuses whatever its errors may leave
    /// unguarded. For a start with nothing in force. `unread` are the files of the directory that could not be read.
    pub fn salvage(&self, proposal: Proposal, unread: Vec<Diagnostic>) -> PendingAnswer<()> {
        self.ask(|reply| Command::Salvage(proposal, unread, reply))
    }

    /// Pauses, resumes or aborts the rollout under way.
    pub fn steer(&self, steering: Steering) -> PendingAnswer<()> {
        self.ask(|reply| Command::Steer(steering, reply))
    }

    /// Puts in force the change of the directory that is held. Fails if that is not the one with this digest, or if it
    /// would remove something else by now.
    pub fn confirm(&self, digest: String, author: String) -> PendingAnswer<Applied> {
        self.ask(|reply| Command::Confirm(digest, author, reply))
    }

    /// Removes a deleted resource from all revisions that are kept, for good. What is in force does not change.
    pub fn purge(&self, purge: Purge) -> PendingAnswer<Purged> {
        self.ask(|reply| Command::Purge(purge, reply))
    }

    /// Records that a change was refused before it was proposed. What is in force does not change.
    pub fn refuse(&self, error: &impl ToString) -> PendingAnswer<()> {
        self.ask(|reply| Command::Refuse(error.to_string(), reply))
    }

    /// Compiles the resources in force again, with the keys that are known now.
    pub fn renew_keys(&self) {
        self.tell(Command::RenewKeys);
    }

    /// Puts a snapshot in force for all nodes. It is not a revision: it is not stored, and the next revision replaces
    /// it. For tests of how streams deliver.
    #[cfg(any(test, feature = "test-hooks"))]
    pub fn publish(&self, snapshot: postern_compile::snapshot::Snapshot) -> PendingAnswer<()> {
        self.ask(|reply| Command::Publish(Box::new(snapshot), reply))
    }

    /// Looks at the fleet, so that the rollout and all conditions are up to date when the answer comes. It does not
    /// wait for changes under way.
    pub fn look(&self) -> PendingAnswer<()> {
        self.ask(Command::Look)
    }

    /// Ends the owner after all commands that were sent before. When the answer comes, the store is closed; later
    /// commands are answered with [`ApplyError::Ended`].
    pub fn end(&self) -> PendingAnswer<()> {
        self.ask(Command::End)
    }

    /// Puts resources in force as a new revision with a plan that no gate has checked. For tests of how a fleet reacts.
    #[cfg(feature = "test-hooks")]
    pub fn apply_past_the_gate(&self, proposal: Proposal, plan: Vec<u8>) -> PendingAnswer<()> {
        self.ask(|reply| Command::PastTheGate(proposal, plan, reply))
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> PendingAnswer<T> {
        let (reply, receiver) = oneshot::channel();
        self.tell(command(reply));
        PendingAnswer { receiver, _owner: self.0.clone() }
    }

    fn tell(&self, command: Command) {
        // If the owner has ended, the reply is dropped, which the receiver reports as `Ended`.
        let _ = self.0.send(command);
    }
}
