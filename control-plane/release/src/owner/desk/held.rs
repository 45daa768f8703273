//! What the owner does with a change of the directory that is held: it remembers the change, tells of it, examines it again
//! when something else comes in force, and takes it in once it is confirmed.

use std::{mem, sync::Arc, time::SystemTime};

use postern_base::digest::Digest;
use tokio::sync::oneshot;

use super::{
    super::{
        command::Command,
        in_force::Refusals,
        work::{Examination, Reply, Step},
    },
    Desk, MOST_REASONS, answer,
};
use crate::{
    catalogue::{ResourceKey, key_of},
    journal::Happening,
    releases::{Applied, ApplyError, HeldChange, NotHeld, Proposal, digest_of},
    store::split,
};

/// A change of the directory that waits for a word, and what it would do.
pub(super) struct Held {
    pub(super) proposal: Proposal,
    pub(super) change: Arc<HeldChange>,
}

impl Desk {
    /// Whether what is held has a resource.
    pub(super) fn holds(&self, resource: &ResourceKey) -> bool {
        let has = |held: &Held| split(&held.proposal.files).iter().any(|it| key_of(it).as_ref() == Some(resource));
        self.held.as_ref().is_some_and(has)
    }

    /// Examines what is held once more, to put it in force.
    pub(super) fn confirm(&mut self, digest: String, author: String, reply: Reply<Applied>) {
        let held = match &self.held {
            None => return answer(reply, Err(NotHeld::Nothing.into())),
            Some(held) if held.change.digest != digest => {
                return answer(reply, Err(NotHeld::Other(held.change.digest.clone()).into()));
            }
            Some(held) => held.proposal.clone(),
        };
        self.releases.note_runners(&self.population.fleet.sightings());
        let examine = self.examination(None);
        self.work(move || {
            let said = digest_of(&held.files);
            Step::Confirm(examine(&held), said, (digest, author), reply)
        });
    }

    /// Examines what is held once more, because it would change something else by now.
    pub(super) fn reconsider(&mut self) {
        let Some(held) = self.held.as_ref().filter(|held| held.change.revision != self.releases.in_force()) else {
            return;
        };
        let (proposal, examine) = (held.proposal.clone(), self.examination(None));
        self.work(move || {
            let said = digest_of(&proposal.files);
            let examined = examine(&proposal);
            // Nobody waits for it.
            let (reply, _) = oneshot::channel();
            Step::Follow(Ok((Some((examined, proposal)), said)), reply)
        });
    }

    /// Remembers which change of the directory waits for a word, and tells it once.
    pub(super) fn hold(&mut self, held: Option<Held>) {
        let change = held.as_ref().map(|held| Arc::clone(&held.change));
        let before = mem::replace(&mut self.held, held).map(|held| held.change);
        let digest = |change: &Option<Arc<HeldChange>>| change.as_ref().map(|change| change.digest.clone());
        if digest(&change) == digest(&before) {
            return;
        }
        if let Err(error) = self.releases.note_held(change.as_deref()) {
            tracing::error!("it was not kept since when a change is held: {error}");
        }
        if let Some(change) = change {
            let (removals, routes) = (change.removals.resources.len(), change.routes.clone());
            tracing::warn!(
                digest = change.digest,
                removals,
                ?routes,
                "a change of the directory is held: `postern sync confirm`"
            );
            let named = change.removals.resources.iter().take(MOST_REASONS).map(ToString::to_string);
            let happening =
                Happening::ChangeHeld { digest: change.digest.clone(), removals, resources: named.collect(), routes };
            self.journal.note(happening, SystemTime::now());
        }
    }

    /// Takes in a held change that was confirmed, if it is what was shown.
    pub(super) fn take_in_confirmed(
        &mut self,
        mut examined: Examination,
        said: Digest,
        (digest, author): (String, String),
    ) -> Result<Applied, ApplyError> {
        if let Ok(proved) = &mut examined.proved {
            let change = self.releases.holds(proved, &said, SystemTime::now());
            if change.as_ref().is_none_or(|change| change.digest != digest) {
                self.waiting.push_front(Command::Reconsider);
                return Err(change.map_or(NotHeld::Nothing, |change| NotHeld::Other(change.digest)).into());
            }
            proved.allow_unguarded();
            proved.say(format!("{}, confirmed by {author}", examined.by.1));
        }
        let applied = self.take_in(examined)?;
        self.hold(None);
        self.refusals = Refusals::default();
        let followed = self.has_followed(&applied, said);
        self.publish();
        followed.map(|()| applied)
    }
}
