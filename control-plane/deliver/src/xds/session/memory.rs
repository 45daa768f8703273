//! What is known of a node beyond one stream: what it accepted, and what it refused.
//!
//! All streams of a node share one memory. It is keyed by resource and content, so that it does not matter on which
//! stream, or with which part of a type, something was learnt.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceSet, ResourceType};
use postern_release::fleet::StreamMemory;

use super::interest::Interest;
use crate::xds::{content::Content, offer::Offer};

/// The maximum number of refused versions of a type: enough for any real series of attempts.
const MOST_REFUSED: usize = 64;

/// The maximum number of streams whose last sets are kept: more than any real node has.
const MOST_GOOD: usize = 256;

/// A handle to what is known of a node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    types: Arc<Mutex<BTreeMap<ResourceType, TypeMemory>>>,
}

/// What is known of a node and one type of resource.
#[derive(Debug, Default)]
struct TypeMemory {
    /// The last set that was accepted on each stream, latest last.
    good: Vec<Good>,
    /// The sets that the node refused.
    refused: Vec<RefusedSet>,
    /// The resources that the node refused, by name and version.
    refused_resources: Vec<(String, Digest)>,
    /// The refusals that the node has not recovered from.
    outstanding: Vec<Outstanding>,
}

#[derive(Debug)]
struct Good {
    stream: u64,
    set: Arc<Offer>,
}

/// A refused set.
#[derive(Debug)]
struct RefusedSet {
    version: Digest,
    /// Whether it is known which of its resources are to blame.
    is_blamed: bool,
}

/// A refusal on a stream, which ends when these resources are accepted.
#[derive(Debug)]
struct Outstanding {
    stream: u64,
    names: Vec<String>,
}

impl Memory {
    /// The types about which anything is known.
    pub fn types(&self) -> Vec<ResourceType> {
        self.lock().keys().copied().collect()
    }

    /// Whether the node refused this set.
    pub(super) fn has_refused(&self, kind: ResourceType, version: &Digest) -> bool {
        self.lock().get(&kind).is_some_and(|memory| memory.refused.iter().any(|it| it.version == *version))
    }

    /// A set in which every withheld resource is replaced by the version that the node last accepted, or else by the
    /// client's version (`has`), or else left out; `None` if none is withheld. A resource is withheld if the node
    /// refused it, unless it is `exempt`.
    pub(super) fn without_refused(
        &self,
        kind: ResourceType,
        target: &Offer,
        exempt: impl Fn(&Resource) -> bool,
        has: impl Fn(&str) -> Option<Arc<Resource>>,
    ) -> Option<Arc<Offer>> {
        let types = self.lock();
        let memory = types.get(&kind).filter(|memory| !memory.refused_resources.is_empty())?;
        let withheld = |resource: &Resource| memory.has_refused(resource) && !exempt(resource);
        if !target.set().resources.iter().any(|resource| withheld(resource)) {
            return None;
        }
        let pick = |resource: &Arc<Resource>| match withheld(resource) {
            false => Some(Arc::clone(resource)),
            true => memory.last_good(&resource.name).or_else(|| has(&resource.name)),
        };
        Some(Arc::new(Offer::from(target.set().resources.iter().filter_map(pick).collect::<ResourceSet>())))
    }

    /// What the node last accepted of what a stream subscribed to; `None` if it never accepted any of it.
    pub(super) fn last_good(&self, kind: ResourceType, interest: &Interest) -> Option<Arc<Offer>> {
        let types = self.lock();
        let good = &types.get(&kind)?.good;
        let wanted = |set: &Arc<Offer>| set.set().resources.iter().all(|resource| interest.includes(&resource.name));
        if let [only] = good.as_slice()
            && wanted(&only.set)
        {
            return Some(Arc::clone(&only.set));
        }
        let all = good.iter().flat_map(|good| &good.set.set().resources).map(|resource| (&resource.name, resource));
        let all: BTreeMap<_, _> = all.filter(|(name, _)| interest.includes(name)).collect();
        (!all.is_empty()).then(|| Arc::new(Offer::from(all.into_values().cloned().collect::<ResourceSet>())))
    }

    /// Whether the resources that are to blame for a refused set are known.
    pub(super) fn is_blamed(&self, kind: ResourceType, version: &Digest) -> bool {
        self.lock().get(&kind).is_none_or(|memory| memory.is_blamed(version))
    }

    /// Whether the node has since accepted all that it refused of a set, on any stream and in any other set.
    pub(super) fn got_past(&self, kind: ResourceType, set: &Offer) -> bool {
        let types = self.lock();
        let Some(memory) = types.get(&kind) else { return false };
        memory.is_blamed(set.version()) && !set.set().resources.iter().any(|resource| memory.has_refused(resource))
    }

    /// The version of a resource that was last accepted on a stream, and not refused since.
    pub(super) fn accepted(&self, stream: u64, kind: ResourceType, name: &str) -> Option<Arc<Resource>> {
        let types = self.lock();
        let memory = types.get(&kind)?;
        let good = memory.good.iter().find(|good| good.stream == stream)?.set.set().get(name)?;
        (!memory.has_refused(good)).then(|| Arc::clone(good))
    }

    /// Whether the node refused one of the resources of a response.
    pub(super) fn has_refused_any(&self, content: &Content) -> bool {
        let types = self.lock();
        let Some(memory) = types.get(&content.kind) else { return false };
        content.resources.iter().any(|resource| memory.has_refused(resource))
    }

    /// Records that the node accepted a response on a stream with this interest, and then has `set`.
    pub(super) fn accept(&self, stream: u64, interest: &Interest, content: &Content, set: &Arc<Offer>) {
        let mut types = self.lock();
        let memory = types.entry(content.kind).or_default();
        memory
            .outstanding
            .retain(|refusal| refusal.stream != stream && !refusal.names.iter().all(|name| interest.includes(name)));
        let is_extension = content.kind == ResourceType::ExtensionConfig;
        let own = memory.good.iter().position(|good| good.stream == stream);
        let before = match own {
            Some(place) => Some(memory.good.remove(place).set),
            None => memory.good.last().map(|good| Arc::clone(&good.set)),
        };
        let set = match before {
            Some(before) if is_extension => merged(&before, content, set),
            _ => Arc::clone(set),
        };
        memory.keep_good(stream, set);
    }

    /// Records that the node accepted these resources on a stream, in a response whose other resources do not count.
    /// Those that it refused before are not recorded.
    pub(super) fn accept_some<'a>(
        &self,
        stream: u64,
        kind: ResourceType,
        resources: impl Iterator<Item = &'a Arc<Resource>>,
    ) {
        let mut types = self.lock();
        let memory = types.entry(kind).or_default();
        let own = memory.good.iter().position(|good| good.stream == stream).map(|place| memory.good.remove(place).set);
        let before =
            own.or_else(|| memory.good.last().map(|good| Arc::clone(&good.set))).unwrap_or_else(Offer::nothing);
        let all = before.set().resources.iter().cloned().chain(resources.filter(|it| !memory.has_refused(it)).cloned());
        let all: BTreeMap<_, _> = all.map(|resource| (resource.name.clone(), resource)).collect();
        let set = Arc::new(Offer::from(all.into_values().collect::<ResourceSet>()));
        memory.keep_good(stream, set);
    }

    /// Forgets the refusals of these resources, which the node has accepted. Refused extension configurations stay
    /// refused: Envoy accepts them without applying them.
    pub(super) fn absolve(&self, content: &Content) {
        let mut types = self.lock();
        let Some(memory) = types.get_mut(&content.kind).filter(|_| content.kind != ResourceType::ExtensionConfig)
        else {
            return;
        };
        memory.refused_resources.retain(|(name, version)| !content.carries(name, version));
    }

    /// Forgets the refusal of a set that was accepted after all.
    pub(super) fn forgive(&self, kind: ResourceType, version: &Digest) {
        if let Some(memory) = self.lock().get_mut(&kind) {
            memory.refused.retain(|refused| refused.version != *version);
        }
    }

    /// Records that the node has recovered, on a stream, from what it refused of a type.
    pub(super) fn recover(&self, stream: u64, kind: ResourceType) {
        if let Some(memory) = self.lock().get_mut(&kind) {
            memory.outstanding.retain(|refusal| refusal.stream != stream);
        }
    }

    /// Records that the node refused a response on a stream. `named` are the resources that its message names, if any.
    /// Returns the resources of the response that the node has refused, now or before.
    pub(super) fn refuse(&self, stream: u64, content: &Content, named: &[String]) -> Vec<(String, Digest)> {
        let mut types = self.lock();
        let memory = types.entry(content.kind).or_default();
        let mut blamed = memory.blamed(content, named);
        // If there are more, the set counts as refused as a whole.
        let is_blamed = blamed.len() <= MOST_REFUSED;
        if is_blamed {
            keep_latest(&mut memory.refused_resources, blamed.iter().cloned());
        }
        blamed.truncate(MOST_REFUSED);
        // Extension configurations are judged one by one: a refused one is never sent again unchanged, and the others
        // of its set are.
        if content.kind != ResourceType::ExtensionConfig {
            keep_latest(&mut memory.refused, [RefusedSet { version: content.version.clone(), is_blamed }]);
        }
        memory.outstanding.retain(|refusal| refusal.stream != stream);
        let names = blamed.iter().map(|(name, _)| name.clone()).collect();
        keep_latest(&mut memory.outstanding, [Outstanding { stream, names }]);
        let before = content.resources.iter().filter(|resource| memory.has_refused(resource));
        blamed.extend(before.map(|resource| (resource.name.clone(), resource.version.clone())));
        blamed
    }

    /// Marks a set as refused because it has a resource that was refused in another set.
    pub(super) fn refuse_version(&self, kind: ResourceType, version: &Digest) {
        let refused = RefusedSet { version: version.clone(), is_blamed: true };
        keep_latest(&mut self.lock().entry(kind).or_default().refused, [refused]);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceType, TypeMemory>> {
        self.types.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamMemory for Memory {
    fn is_outstanding(&self, kind: ResourceType, stream: u64) -> bool {
        self.lock().get(&kind).is_some_and(|memory| memory.outstanding.iter().any(|it| it.stream == stream))
    }

    fn settle(&self, is_open: &dyn Fn(u64) -> bool) {
        for (kind, memory) in self.lock().iter_mut() {
            // A client that reconnects names its types one after the other, and must find its last good filters.
            let latest = memory.good.last().filter(|_| *kind == ResourceType::ExtensionConfig).map(|good| good.stream);
            memory.good.retain(|good| is_open(good.stream) || Some(good.stream) == latest);
            memory.outstanding.retain(|refusal| is_open(refusal.stream));
        }
    }
}

impl TypeMemory {
    fn is_blamed(&self, version: &Digest) -> bool {
        self.refused.iter().all(|it| it.is_blamed || it.version != *version)
    }

    /// Keeps the latest set that was accepted on a stream.
    fn keep_good(&mut self, stream: u64, set: Arc<Offer>) {
        self.good.push(Good { stream, set });
        let surplus = self.good.len().saturating_sub(MOST_GOOD);
        self.good.drain(..surplus);
    }

    fn has_refused(&self, resource: &Resource) -> bool {
        let is_it = |(name, version): &(String, Digest)| *name == resource.name && *version == resource.version;
        self.refused_resources.iter().any(is_it)
    }

    fn accepted(&self, name: &str) -> Option<&Arc<Resource>> {
        self.good.iter().rev().find_map(|good| good.set.set().get(name))
    }

    /// The last version of a resource that the node accepted, and did not refuse later.
    fn last_good(&self, name: &str) -> Option<Arc<Resource>> {
        self.accepted(name).filter(|resource| !self.has_refused(resource)).cloned()
    }

    /// The resources of a refused response that are to blame: those that the message names, else those that the node
    /// has not accepted before, else all.
    fn blamed(&self, content: &Content, named: &[String]) -> Vec<(String, Digest)> {
        let accepted =
            |resource: &Resource| self.accepted(&resource.name).is_some_and(|known| known.version == resource.version);
        let is_named = |resource: &Resource| named.contains(&resource.name);
        let pick = |blame: &dyn Fn(&Resource) -> bool| {
            let blamed = content.resources.iter().filter(|resource| blame(resource));
            blamed.map(|resource| (resource.name.clone(), resource.version.clone())).collect::<Vec<_>>()
        };
        let candidates = [pick(&|it| is_named(it) && !accepted(it)), pick(&|it| !accepted(it)), pick(&|_| true)];
        candidates.into_iter().find(|blamed| !blamed.is_empty()).unwrap_or_default()
    }
}

/// Appends to a list of refusals, and drops the oldest if there are too many.
fn keep_latest<T>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    list.extend(more);
    let surplus = list.len().saturating_sub(MOST_REFUSED);
    list.drain(..surplus);
}

/// The last good configuration of every name, where those of this response are the latest.
fn merged(good: &Arc<Offer>, content: &Content, set: &Arc<Offer>) -> Arc<Offer> {
    if good.set().resources.iter().all(|known| set.set().get(&known.name).is_some()) {
        return Arc::clone(set);
    }
    let all = good.set().resources.iter().chain(&content.resources).map(|resource| (&resource.name, resource));
    let all: BTreeMap<_, _> = all.collect();
    Arc::new(Offer::from(all.into_values().cloned().collect::<ResourceSet>()))
}
