//! What an Envoy has accepted on a relayed stream, as a pure type: requests and responses in, sets of resources out.
//!
//! Only an acceptance changes a set. Until a stream of an Envoy that starts anew has covered what was kept before, that
//! stays as it is, so that what is kept is never a mixture of two configurations.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceSet, ResourceType};

use super::kept::Sets;
use crate::xds::{
    content::Variant,
    session::{Request, Wish},
};

/// How long an acceptance may wait for the others that belong to it: an Envoy waits no longer than 15 s for a resource.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The maximum number of unanswered responses of a type that are remembered.
const MOST_UNANSWERED: usize = 64;

/// A response of the control plane.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) kind: ResourceType,
    pub(super) nonce: String,
    /// State of the world: the version of the whole.
    pub(super) version: String,
    /// By name.
    pub(super) resources: Vec<Arc<Resource>>,
    /// Incremental: the names that were removed.
    pub(super) removed: Vec<String>,
}

/// The claims of a request that must not reach the control plane: it would not send what the Envoy already has, and
/// what is not known here could never be kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Doubts {
    /// State of the world: the version.
    pub(super) version: bool,
    /// Incremental: the versions of the resources with these names.
    pub(super) names: BTreeSet<String>,
}

/// What an Envoy has accepted, as far as it was seen.
#[derive(Debug)]
pub(super) struct Tracker {
    variant: Variant,
    before: Sets,
    tracks: BTreeMap<ResourceType, Track>,
    /// Whether the stream has covered what was kept before, or has had the time to.
    is_covered: bool,
    /// Since when something is accepted that [`Self::take`] has not returned yet.
    changed: Option<Instant>,
}

/// What an Envoy has of one type.
#[derive(Debug, Default)]
struct Track {
    held: BTreeMap<String, Arc<Resource>>,
    /// State of the world: the version of exactly what it has.
    version: Option<Digest>,
    /// Whether `held` is what the Envoy has: it said so, or it has accepted a response.
    is_known: bool,
    /// Unanswered responses, oldest first.
    sent: VecDeque<Received>,
    latest: Option<String>,
}

impl Tracker {
    /// The tracker of a new stream of a node of which these sets are kept.
    pub(super) fn new(variant: Variant, before: Sets) -> Self {
        Self { variant, before, tracks: BTreeMap::new(), is_covered: false, changed: None }
    }

    /// Handles a request of the Envoy. Returns what of it must be changed before it is relayed.
    pub(super) fn on_request(&mut self, request: &Request, now: Instant) -> Doubts {
        let Some(track) = self.tracks.get_mut(&request.kind) else {
            let before = self.before.get(&request.kind);
            let (track, doubts) = Track::begin(before, &request.wish);
            if track.is_known && before.is_none_or(|before| before.resources.len() != track.held.len()) {
                self.changed.get_or_insert(now);
            }
            self.tracks.insert(request.kind, track);
            return doubts;
        };
        if track.answered(request, self.variant) | track.renamed(request) {
            self.changed.get_or_insert(now);
        }
        Doubts::default()
    }

    /// Handles a response of the control plane, which is relayed next.
    pub(super) fn on_response(&mut self, received: Received) {
        let track = self.tracks.entry(received.kind).or_default();
        track.latest = Some(received.nonce.clone());
        track.sent.push_back(received);
        if track.sent.len() > MOST_UNANSWERED {
            track.sent.pop_front();
        }
    }

    /// What is to be kept now, if that has changed and nothing that belongs to it is still to come.
    pub(super) fn take(&mut self, now: Instant) -> Option<Sets> {
        let since = self.changed?;
        self.is_covered |= self.covers_what_was_kept();
        let is_settled = self.is_covered && self.tracks.values().all(|track| track.sent.is_empty());
        if !is_settled && now < since + PATIENCE {
            return None;
        }
        (self.is_covered, self.changed) = (true, None);
        let known = self.tracks.iter().filter(|(_, track)| track.is_known);
        let mut sets = self.before.clone();
        sets.extend(known.map(|(kind, track)| (*kind, track.set())));
        self.before.clone_from(&sets);
        Some(sets)
    }

    /// Whether what is kept is what the control plane serves now, as far as is known: all of it has come on this stream,
    /// and the Envoy has answered everything.
    pub(super) fn is_current(&self) -> bool {
        self.changed.is_none()
            && self.tracks.values().any(|track| track.is_known)
            && self.covers_what_was_kept()
            && self.tracks.values().all(|track| track.sent.is_empty())
    }

    /// The time at which [`Self::take`] must be called, if nothing else happens before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.changed.map(|since| since + PATIENCE)
    }

    /// Whether every type that was kept before has come.
    fn covers_what_was_kept(&self) -> bool {
        let mut kept = self.before.iter().filter(|(_, set)| !set.resources.is_empty());
        kept.all(|(kind, _)| self.tracks.get(kind).is_some_and(|track| track.is_known))
    }
}

impl Track {
    /// The state after the first request of a type, and the claims in it that do not fit what was kept before.
    fn begin(before: Option<&ResourceSet>, wish: &Wish) -> (Self, Doubts) {
        let (mut track, mut doubts) = (Self::default(), Doubts::default());
        match wish {
            Wish::All { version, .. } if version.is_empty() => {}
            Wish::All { version, .. } => match before.filter(|before| before.version.as_str() == version) {
                Some(before) => {
                    track.hold(&before.resources);
                    (track.is_known, track.version) = (true, Some(before.version.clone()));
                }
                None => doubts.version = true,
            },
            Wish::Changes { initial, .. } => {
                for (name, version) in initial {
                    match before.and_then(|before| before.get(name)).filter(|it| it.version.as_str() == version) {
                        Some(resource) => track.hold([resource]),
                        None => drop(doubts.names.insert(name.clone())),
                    }
                }
                track.is_known = !initial.is_empty() && doubts.names.is_empty();
            }
        }
        (track, doubts)
    }

    fn hold<'a>(&mut self, resources: impl IntoIterator<Item = &'a Arc<Resource>>) {
        self.held.extend(resources.into_iter().map(|resource| (resource.name.clone(), Arc::clone(resource))));
    }

    /// Takes an answer to a response. Returns whether the Envoy has something else now.
    fn answered(&mut self, request: &Request, variant: Variant) -> bool {
        let Some(place) = self.sent.iter().position(|sent| sent.nonce == request.nonce) else { return false };
        let mut answered: Vec<_> = self.sent.drain(..=place).collect();
        let latest = answered.pop();
        let accepted = match (&request.error, &request.wish) {
            (None, _) => latest,
            // A client that answers several responses at once says which version it runs.
            (Some(_), Wish::All { version, .. }) => {
                answered.into_iter().rfind(|earlier| !version.is_empty() && earlier.version == *version)
            }
            (Some(_), Wish::Changes { .. }) => None,
        };
        let is_accepted = accepted.is_some();
        accepted.into_iter().for_each(|accepted| self.accept(&accepted, variant));
        is_accepted
    }

    fn accept(&mut self, accepted: &Received, variant: Variant) {
        let is_whole = variant == Variant::StateOfTheWorld && accepted.kind.is_full_state();
        if is_whole {
            self.held.clear();
        }
        self.hold(&accepted.resources);
        accepted.removed.iter().for_each(|name| drop(self.held.remove(name)));
        // A version stands for what came with it, and for nothing beside that.
        let is_all = variant == Variant::StateOfTheWorld && self.held.len() == accepted.resources.len();
        self.version = Digest::from_hex(&accepted.version).filter(|_| is_all);
        self.is_known = true;
    }

    /// Takes a change of the subscriptions: an Envoy drops what it no longer subscribes to. Returns whether it did.
    fn renamed(&mut self, request: &Request) -> bool {
        let before = self.held.len();
        match &request.wish {
            _ if request.kind.is_full_state() => {}
            Wish::All { names, .. } => {
                let is_current = self.latest.as_ref().is_none_or(|latest| *latest == request.nonce);
                if is_current && !names.iter().any(|name| name == "*") {
                    let names: BTreeSet<_> = names.iter().collect();
                    self.held.retain(|name, _| names.contains(name));
                }
            }
            Wish::Changes { unsubscribe, .. } => unsubscribe.iter().for_each(|name| drop(self.held.remove(name))),
        }
        let is_less = self.held.len() != before;
        if is_less {
            self.version = None;
        }
        is_less && self.is_known
    }

    fn set(&self) -> ResourceSet {
        let set: ResourceSet = self.held.values().cloned().collect();
        let version = self.version.clone().unwrap_or(set.version);
        ResourceSet { version, resources: set.resources }
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
