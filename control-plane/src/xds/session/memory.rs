//! What is known of a node beyond one stream: what it ran well, and what it refused. Shared until it changes.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    digest::Digest,
    snapshot::{Resource, ResourceSet, ResourceType},
    xds::{content::Content, offer::Offer},
};

/// How many refused versions of a type are kept: enough for any real series of attempts.
const MOST_REFUSED: usize = 64;

/// What is known of a node, by type of resource.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    types: BTreeMap<ResourceType, Arc<TypeMemory>>,
}

/// What is known of a node and one type of resource.
#[derive(Debug, Clone, Default)]
pub struct TypeMemory {
    /// The last set that it accepted.
    good: Option<Arc<Offer>>,
    /// The versions of sets that it refused.
    refused: Vec<Digest>,
    /// The extension configurations that it refused, by name and version: they are judged one by one, since one that was
    /// refused must never be sent again unchanged.
    refused_resources: Vec<(String, Digest)>,
}

impl Memory {
    /// What is known of one type.
    pub fn of(&self, kind: ResourceType) -> Option<&Arc<TypeMemory>> {
        self.types.get(&kind)
    }

    /// Takes over what another stream learnt of a type.
    pub fn learn(&mut self, kind: ResourceType, memory: Arc<TypeMemory>) {
        self.types.insert(kind, memory);
    }

    /// Whether the node refused this set.
    pub(super) fn has_refused(&self, kind: ResourceType, version: &Digest) -> bool {
        self.of(kind).is_some_and(|memory| memory.refused.contains(version))
    }

    /// Whether the node refused this very extension configuration.
    pub(super) fn has_refused_resource(&self, resource: &Resource) -> bool {
        self.of(ResourceType::ExtensionConfig).is_some_and(|memory| {
            memory
                .refused_resources
                .iter()
                .any(|(name, version)| *name == resource.name && *version == resource.version)
        })
    }

    /// The last set that the node accepted.
    pub(super) fn good(&self, kind: ResourceType) -> Option<&Arc<Offer>> {
        self.of(kind)?.good.as_ref()
    }

    /// The node accepted a response, after which it has `set`.
    pub(super) fn accept(&mut self, kind: ResourceType, content: &Content, set: &Arc<Offer>) {
        let good = match self.good(kind) {
            Some(good) if Arc::ptr_eq(good, set) => return,
            Some(good) if kind == ResourceType::ExtensionConfig => merged(good, content, set),
            _ => Arc::clone(set),
        };
        self.entry(kind).good = Some(good);
    }

    /// The node refused a response, after which it should have had the set of this version.
    pub(super) fn refuse(&mut self, kind: ResourceType, content: &Content, version: &Digest, named: &[String]) {
        if kind == ResourceType::ExtensionConfig {
            let refused = self.blamed(content, named);
            let memory = self.entry(kind);
            memory.refused_resources.extend(refused);
            let surplus = memory.refused_resources.len().saturating_sub(MOST_REFUSED);
            memory.refused_resources.drain(..surplus);
            return;
        }
        let memory = self.entry(kind);
        memory.refused.push(version.clone());
        let surplus = memory.refused.len().saturating_sub(MOST_REFUSED);
        memory.refused.drain(..surplus);
    }

    /// Which resources of a refused response are to blame: those that the message names, else those that the node has not
    /// accepted before, else all.
    fn blamed(&self, content: &Content, named: &[String]) -> Vec<(String, Digest)> {
        let good = self.good(content.kind);
        let accepted = |resource: &Resource| {
            good.and_then(|good| good.set().get(&resource.name)).is_some_and(|known| known.version == resource.version)
        };
        let is_named = |resource: &Resource| named.contains(&resource.name);
        let pick = |blame: &dyn Fn(&Resource) -> bool| {
            let blamed = content.resources.iter().filter(|resource| blame(resource));
            blamed.map(|resource| (resource.name.clone(), resource.version.clone())).collect::<Vec<_>>()
        };
        let candidates = [pick(&|it| is_named(it) && !accepted(it)), pick(&|it| !accepted(it)), pick(&|_| true)];
        candidates.into_iter().find(|blamed| !blamed.is_empty()).unwrap_or_default()
    }

    fn entry(&mut self, kind: ResourceType) -> &mut TypeMemory {
        Arc::make_mut(self.types.entry(kind).or_default())
    }
}

/// The last good configuration of every name, the ones of this response being the latest.
fn merged(good: &Arc<Offer>, content: &Content, set: &Arc<Offer>) -> Arc<Offer> {
    if good.set().resources.iter().all(|known| set.set().get(&known.name).is_some()) {
        return Arc::clone(set);
    }
    let all = good.set().resources.iter().chain(&content.resources).map(|resource| (&resource.name, resource));
    let all: BTreeMap<_, _> = all.collect();
    Arc::new(Offer::from(all.into_values().cloned().collect::<ResourceSet>()))
}
