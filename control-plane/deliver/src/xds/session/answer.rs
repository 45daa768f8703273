//! What a client's answer to a response means: what the client has from then on, and what is known of its node.

use std::sync::Arc;

use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceSet, ResourceType};
use postern_engine::Placement;
use postern_release::fleet::Event;

use super::{
    blame,
    memory::Memory,
    subscription::{Claim, Due, MOST_REMEMBERED, Sent, Standing, Subscription, TypeProgress},
};
use crate::xds::{
    content::{Content, Variant},
    offer::{Offer, Offers},
};

/// The warning for a node that answers 500 on some routes although it accepted everything.
const UNVERIFIED: &str = "routes whose policies edit request headers answer 500: add the filter `postern-verify` before the \
                          router, or list the headers that routes match on in `Settings.routeHeaders`";

/// The maximum number of resources of a refused response that are remembered by name.
const MOST_CARRIED: usize = 64;

impl Subscription {
    /// Handles a client's answer to a response.
    pub(super) fn answer(&mut self, sent: &Sent, error: Option<String>, memory: &Memory) -> Option<Event> {
        let (kind, version) = (self.kind, sent.content.version.clone());
        let Some(message) = error else { return self.accept_sent(sent, memory) };
        let resources = blame::named_in(&message, &sent.content);
        let blamed = memory.refuse(self.stream, &sent.content, &resources);
        self.refused = true;
        self.doubt_what_came_with(sent);
        let is_latest = self.due.as_ref().is_some_and(|due| due.offer.version() == sent.due.offer.version());
        self.silenced = self.target.clone().filter(|_| is_latest);
        self.refuse_what_follows(&blamed, memory);
        if kind == ResourceType::ExtensionConfig {
            // Its last good version is sent at once.
            let lost = blamed.iter().map(|(name, _)| name).filter(|name| self.has_lost(name));
            let lost: Vec<_> = lost.cloned().collect();
            self.asked.extend(lost);
        }
        self.refused_here.extend(blamed);
        while self.refused_here.len() > MOST_REMEMBERED {
            self.refused_here.pop_first();
        }
        let carried = sent.content.resources.iter().take(MOST_CARRIED);
        let carried = carried.map(|resource| (resource.name.clone(), resource.version.clone())).collect();
        Some(Event::Nacked { kind, version, message, resources, carried })
    }

    /// After a refusal the client may or may not have applied parts of the response; what was sent later still counts.
    fn doubt_what_came_with(&mut self, refused: &Sent) {
        // An extension configuration that is sent twice is accepted the second time without being applied.
        let is_extension = self.kind == ResourceType::ExtensionConfig;
        let carries = |it: &Resource| self.unanswered.iter().any(|later| later.content.carries(&it.name, &it.version));
        let brought = refused.content.resources.iter().filter(|it| is_extension || !carries(it));
        brought.for_each(|resource| self.inventory.refused(resource));
        let is_wanted = |name: &&String| self.kind == ResourceType::VirtualHost || self.interest.includes(name);
        refused.content.removed.iter().filter(is_wanted).for_each(|name| self.inventory.not_removed(name));
        self.not_removed.extend(refused.content.removed.iter().cloned());
        if self.variant == Variant::StateOfTheWorld && self.kind.is_full_state() {
            // Resources that the response left out still exist at the client. Of a claim, only the version is known.
            let kept = self.accepted.iter().flat_map(|accepted| &accepted.resources).map(|resource| &resource.name);
            let claimed = self.interest.names().iter().filter(|_| matches!(self.claim, Claim::Version(_)));
            let carries = |name: &&String| refused.content.resources.iter().any(|it| it.name == **name);
            let (carried, left_out): (Vec<_>, Vec<_>) = kept.chain(claimed).filter(is_wanted).partition(carries);
            carried.iter().for_each(|name| {
                self.left_out.remove(*name);
            });
            self.left_out.extend(left_out.iter().map(|name| (*name).clone()));
            carried.into_iter().chain(left_out).for_each(|name| self.inventory.not_removed(name));
        }
        // An acceptance of a later response does not imply that these were applied.
        for later in &mut self.unanswered {
            let due = later.due.offer.set();
            let is_due = |it: &&Arc<Resource>| due.get(&it.name).is_some_and(|due| due.version == it.version);
            let lacks = |it: &&Arc<Resource>| is_due(it) && !later.content.carries(&it.name, &it.version);
            later.held.extend(refused.content.resources.iter().filter(lacks).map(|it| it.name.clone()));
        }
    }

    /// Whether the client is without a resource because it refused it, and no other version is on its way. A resource
    /// that is not due is excluded, because the answer would be that it does not exist.
    fn has_lost(&self, name: &str) -> bool {
        let is_due = self.due.as_ref().is_some_and(|due| due.offer.set().get(name).is_some());
        self.inventory.doubts(name) || (is_due && self.interest.includes(name) && !self.inventory.holds(name))
    }

    /// Marks what is in force as refused if it has one of the blamed resources unchanged. It can be another set than
    /// the refused one: it was sent before the refusal was known, or something was kept in it.
    fn refuse_what_follows(&self, blamed: &[(String, Digest)], memory: &Memory) {
        let Some(due) = self.due.as_ref().filter(|_| self.kind != ResourceType::ExtensionConfig) else { return };
        let has =
            |(name, version): &(String, Digest)| due.offer.set().get(name).is_some_and(|it| it.version == *version);
        if blamed.iter().any(has) && !memory.has_refused(self.kind, due.offer.version()) {
            memory.refuse_version(self.kind, due.offer.version());
        }
    }

    /// A warning for a client with policies for routes of its own, some of which edit request headers, and without the
    /// filter that verifies that the route does not change: our filter refuses these routes.
    pub(super) fn unverified(&self, snapshot: &Offers) -> Option<Event> {
        let names = self.interest.names();
        let has = |placement: Placement| names.contains(placement.name());
        let alone = has(Placement::Overlay) && !has(Placement::Verify) && !self.interest.is_everything();
        let unverified = self.kind == ResourceType::ExtensionConfig && alone && snapshot.needs_verification();
        unverified.then_some(Event::Warned { kind: self.kind, warning: UNVERIFIED })
    }

    /// Handles an acceptance. If something was held back from an incremental response, the client still has that
    /// unchanged, and does not run the version that is due.
    fn accept_sent(&mut self, sent: &Sent, memory: &Memory) -> Option<Event> {
        self.keep_accepted(&sent.content);
        let in_part = !sent.held.is_empty() && matches!(sent.due.standing, Standing::Current | Standing::Again);
        if !in_part {
            self.accepted_in_part = false;
            if self.kind == ResourceType::ExtensionConfig && sent.due.standing == Standing::LastGood {
                // Besides restored resources, it may have some that are in force.
                let current = sent.content.resources.iter().filter(|it| !sent.held.contains(&it.name));
                memory.accept_some(self.stream, self.kind, current);
            }
            return self.accept(&sent.content, &sent.due, memory);
        }
        let had = |resource: &Arc<Resource>| match sent.held.contains(&resource.name) {
            true => memory.accepted(self.stream, self.kind, &resource.name),
            false => Some(Arc::clone(resource)),
        };
        let had: ResourceSet = sent.due.offer.set().resources.iter().filter_map(had).collect();
        let due = Due { offer: Arc::new(Offer::from(had)), standing: sent.due.standing };
        self.absolve(&sent.content, memory);
        if !self.still_refuses(&sent.content, &due, memory) {
            memory.accept(self.stream, &self.interest, &sent.content, &due.offer);
            self.accepted_in_part = true;
        } else if self.kind == ResourceType::ExtensionConfig {
            memory.accept_some(self.stream, self.kind, sent.content.resources.iter());
        }
        None
    }

    /// Forgets the refusals of what the client has now accepted.
    fn absolve(&mut self, content: &Content, memory: &Memory) {
        memory.absolve(content);
        self.refused_here.retain(|(name, version)| !content.carries(name, version));
    }

    /// Whether what the client is due has something that the node refused and that this response did not have.
    fn still_refuses(&self, content: &Content, due: &Due, memory: &Memory) -> bool {
        // It was accepted in part, in another response: what was refused still is.
        let refused = match self.kind {
            ResourceType::ExtensionConfig => memory.has_refused_any(content),
            _ => self.lacks_refused(content, due),
        };
        // Resources that were refused and then asked for by name may be accepted after all, but only all of them
        // together.
        let has = |it: &Arc<Resource>| content.carries(&it.name, &it.version) || self.inventory.knows(it);
        refused || (due.standing == Standing::Refused && !due.offer.set().resources.iter().all(has))
    }

    fn accept(&mut self, content: &Content, due: &Due, memory: &Memory) -> Option<Event> {
        let (kind, version) = (self.kind, content.version.clone());
        self.absolve(content, memory);
        if self.still_refuses(content, due, memory) {
            if kind == ResourceType::ExtensionConfig {
                memory.accept_some(self.stream, kind, content.resources.iter());
            }
            return None;
        }
        // Refused on another stream, or before it was known that it was sent again: now it is accepted.
        let has_all = || due.offer.set().resources.iter().all(|it| content.carries(&it.name, &it.version));
        if memory.has_refused(kind, &version) && has_all() {
            memory.forgive(kind, &version);
        }
        // The last good version is not changed: if it followed answers that cross, two versions could alternate for
        // ever.
        if due.standing == Standing::LastGood {
            return Some(Event::Restored { kind, version });
        }
        memory.accept(self.stream, &self.interest, content, &due.offer);
        (self.refused, self.silenced) = (false, None);
        Some(Event::Acked { kind, version })
    }

    /// Whether the client still lacks what it refused before it accepted a response that was on its way.
    fn lacks_refused(&self, content: &Content, due: &Due) -> bool {
        let mut refused = self.refused_here.iter();
        refused.any(|(name, version)| {
            let is_due = due.offer.set().get(name).is_some_and(|resource| resource.version == *version);
            is_due && !content.carries(name, version)
        })
    }

    /// If the client reconnected with what it is due, nothing is sent, and the node's acceptance is returned.
    pub(super) fn honour_claim(&mut self, memory: &Memory) -> Option<Event> {
        let due = self.due.clone().filter(|_| !self.begun)?;
        let is_due = match &self.claim {
            Claim::Nothing => false,
            Claim::Version(version) => version == due.offer.version().as_str(),
            Claim::Resources => self.difference.is_none() && self.asked.is_empty(),
        };
        if !is_due {
            return None;
        }
        if self.kind == ResourceType::ExtensionConfig && due.standing == Standing::LastGood {
            // An Envoy that refused one keeps it as its last, whatever version it reports: it is sent the good one in
            // any case.
            self.asked.extend(due.offer.set().resources.iter().map(|resource| resource.name.clone()));
            return None;
        }
        self.inventory.settle(Arc::clone(&due.offer), []);
        self.asked.clear();
        (self.difference, self.begun, self.claim) = (None, true, Claim::Nothing);
        let content = due.offer.whole(self.variant, self.kind);
        self.keep_accepted(&content);
        self.accept(&content, &due, memory)
    }

    /// Records that the client has what this response has, and nothing else of its type.
    fn keep_accepted(&mut self, content: &Arc<Content>) {
        if self.variant == Variant::StateOfTheWorld && self.kind.is_full_state() {
            self.accepted = Some(Arc::clone(content));
            self.left_out.clear();
        }
    }

    /// The event that the client has recovered: nothing that it refused, or that was held back, is in force any more,
    /// and it has what is.
    pub(super) fn recover(&mut self, memory: &Memory) -> Option<Event> {
        let due = self.due.clone().filter(|_| self.progress() == TypeProgress::Settled)?;
        let in_part = std::mem::take(&mut self.accepted_in_part);
        if !self.refused && !in_part {
            return None;
        }
        if in_part {
            let content = due.offer.whole(self.variant, self.kind);
            memory.accept(self.stream, &self.interest, &content, &due.offer);
        }
        self.refused = false;
        memory.recover(self.stream, self.kind);
        Some(Event::Acked { kind: self.kind, version: due.offer.version().clone() })
    }
}
