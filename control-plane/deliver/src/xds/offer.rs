//! What a snapshot offers to streams: sets of resources, the differences between two sets, and the responses for them,
//! each made once and shared.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Deref,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceSet, ResourceType, Snapshot};
use postern_model::protobuf_json::WriteError;
use prost::Message;

use super::{
    content::{Content, Variant},
    virtual_hosts::VirtualHosts,
};
use crate::redirect::Source;

/// The maximum number of cached differences for a snapshot. Streams usually come from few other sets; if not, comparing
/// costs time, but no memory.
const MOST_DIFFERENCES: usize = 64;

/// The maximum number of sources that a snapshot is rewritten for. The Envoys of one fleet use one or two cluster
/// names.
const MOST_SOURCES: usize = 8;

/// A set of resources that streams are sent, with the responses that have the whole set.
#[derive(Debug)]
pub struct Offer {
    set: ResourceSet,
    whole: [OnceLock<Arc<Content>>; 2],
}

impl Offer {
    /// The empty offer.
    pub(super) fn nothing() -> Arc<Self> {
        Arc::new(Self::from(ResourceSet::from_iter([])))
    }

    /// The resources.
    pub fn set(&self) -> &ResourceSet {
        &self.set
    }

    /// The names of the resources, sorted.
    pub(in crate::xds) fn names(&self) -> impl Iterator<Item = &String> {
        self.set.resources.iter().map(|resource| &resource.name)
    }

    /// The version of exactly this set.
    pub fn version(&self) -> &Digest {
        &self.set.version
    }

    /// The response that has all of them.
    pub(super) fn whole(&self, variant: Variant, kind: ResourceType) -> Arc<Content> {
        let [world, incremental] = &self.whole;
        let place = match variant {
            Variant::StateOfTheWorld => world,
            Variant::Incremental => incremental,
        };
        let make = || Arc::new(Content::new(variant, kind, self.version().clone(), self.set.resources.clone()));
        Arc::clone(place.get_or_init(make))
    }
}

impl From<ResourceSet> for Offer {
    fn from(set: ResourceSet) -> Self {
        Self { set, whole: Default::default() }
    }
}

/// What a client lacks of a set, and what it has beyond the set.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// The resources that it lacks, or has in another version.
    pub(super) missing: Vec<Arc<Resource>>,
    /// Whether one of these is new to it, and not only changed.
    pub(super) adds: bool,
    /// The names that it has and the set does not, with the resource where that is known.
    pub(super) beyond: Vec<(String, Option<Arc<Resource>>)>,
    kept: OnceLock<Arc<Offer>>,
    changes: OnceLock<Arc<Content>>,
}

impl Difference {
    /// A difference of these parts.
    pub(super) fn new(missing: Vec<Arc<Resource>>, adds: bool, beyond: Vec<(String, Option<Arc<Resource>>)>) -> Self {
        Self { missing, adds, beyond, ..Self::default() }
    }

    /// The difference between two sets.
    fn between(from: &ResourceSet, to: &ResourceSet) -> Self {
        let lacks =
            |resource: &&Arc<Resource>| from.get(&resource.name).is_none_or(|known| known.version != resource.version);
        let missing: Vec<_> = to.resources.iter().filter(lacks).cloned().collect();
        let adds = missing.iter().any(|resource| from.get(&resource.name).is_none());
        let beyond = from.resources.iter().filter(|resource| to.get(&resource.name).is_none());
        let beyond = beyond.map(|resource| (resource.name.clone(), Some(Arc::clone(resource)))).collect();
        Self::new(missing, adds, beyond)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.beyond.is_empty()
    }

    /// The set together with all that the client has beyond it: what it is sent while removals wait.
    pub(super) fn kept(&self, to: &Offer) -> Arc<Offer> {
        let make = || {
            let beyond = self.beyond.iter().filter_map(|(_, resource)| resource.as_ref());
            let all = to.set.resources.iter().chain(beyond).map(|resource| (&resource.name, resource));
            let all: BTreeMap<_, _> = all.collect();
            Arc::new(Offer::from(all.into_values().cloned().collect::<ResourceSet>()))
        };
        Arc::clone(self.kept.get_or_init(make))
    }

    /// The incremental response for this difference.
    pub(super) fn changes(&self, kind: ResourceType, to: &Offer) -> Arc<Content> {
        let make = || {
            let removed = self.beyond.iter().map(|(name, _)| name.clone()).collect();
            let mut content = Content::new(Variant::Incremental, kind, to.version().clone(), self.missing.clone());
            content.removed = removed;
            Arc::new(content)
        };
        Arc::clone(self.changes.get_or_init(make))
    }
}

/// A snapshot as streams are served it. Responses are made once and shared by all streams.
#[derive(Debug)]
pub struct Offers {
    snapshot: Arc<Snapshot>,
    everything: [OnceLock<Arc<Offer>>; ResourceType::ALL.len()],
    differences: Mutex<HashMap<(ResourceType, Digest), Arc<Difference>>>,
    virtual_hosts: OnceLock<VirtualHosts>,
    endpoints: OnceLock<HashMap<String, String>>,
    redirected: Mutex<BTreeMap<Source, Arc<Self>>>,
}

impl Deref for Offers {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Offers {
    /// What is offered of a snapshot.
    pub fn of(snapshot: Arc<Snapshot>) -> Arc<Self> {
        Arc::new(Self {
            snapshot,
            everything: Default::default(),
            differences: Mutex::default(),
            virtual_hosts: OnceLock::new(),
            endpoints: OnceLock::new(),
            redirected: Mutex::default(),
        })
    }

    /// The same resources for Envoys with this source instead of an aggregated stream. Fails if a resource cannot be
    /// rewritten.
    pub fn by_way_of(&self, source: &Source) -> Result<Arc<Self>, WriteError> {
        let known = |redirected: &BTreeMap<Source, Arc<Self>>| redirected.get(source).map(Arc::clone);
        let redirected = || self.redirected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known(&redirected()) {
            return Ok(known);
        }
        let made = Self::of(Arc::new(self.snapshot.rewritten(|resource| source.rewrite(resource))?));
        let mut redirected = redirected();
        if let Some(known) = known(&redirected) {
            return Ok(known);
        }
        if redirected.len() < MOST_SOURCES {
            redirected.insert(source.clone(), Arc::clone(&made));
        }
        Ok(made)
    }

    /// All resources of a type.
    pub fn offer(&self, kind: ResourceType) -> Arc<Offer> {
        let make = || Arc::new(Offer::from(ResourceSet::clone(&self.whole(kind))));
        self.everything.get(kind as usize).map_or_else(make, |place| Arc::clone(place.get_or_init(make)))
    }

    /// The resources of a type that these names match; the same `Arc` as [`Self::offer`] if these are all.
    pub(super) fn offer_named(&self, kind: ResourceType, names: &BTreeSet<String>) -> Arc<Offer> {
        let all = self.offer(kind);
        // Common: an Envoy names the endpoints of all its clusters.
        if all.set.resources.iter().all(|resource| names.contains(&resource.name)) {
            return all;
        }
        let found = names.iter().filter_map(|name| self.resolve(kind, name));
        let found: BTreeMap<_, _> = found.map(|resource| (resource.name.clone(), resource)).collect();
        if found.len() == all.set.resources.len() {
            return all;
        }
        Arc::new(Offer::from(found.into_values().collect::<ResourceSet>()))
    }

    /// The resource that a name matches. A virtual host matches by each of its domains too.
    pub(super) fn resolve(&self, kind: ResourceType, name: &str) -> Option<Arc<Resource>> {
        let all = self.offer(kind);
        if let Some(resource) = all.set.get(name) {
            return Some(Arc::clone(resource));
        }
        let own = (kind == ResourceType::VirtualHost).then(|| self.virtual_hosts().find(name)).flatten()?;
        all.set.get(own).cloned()
    }

    pub(super) fn virtual_hosts(&self) -> &VirtualHosts {
        self.virtual_hosts.get_or_init(|| VirtualHosts::of(self.offer(ResourceType::VirtualHost).set()))
    }

    /// The name under which a cluster asks for its endpoints.
    pub(super) fn endpoints_of<'a>(&'a self, cluster: &'a str) -> &'a str {
        let renamed = self.endpoints.get_or_init(|| {
            let clusters = self.offer(ResourceType::Cluster);
            clusters.set.resources.iter().filter_map(|cluster| renamed_endpoints(cluster)).collect()
        });
        renamed.get(cluster).map_or(cluster, String::as_str)
    }

    /// What a client with exactly one set lacks of another. Cached if the other is the whole offer of the type.
    pub(super) fn difference(&self, kind: ResourceType, from: &Offer, to: &Arc<Offer>) -> Arc<Difference> {
        let make = || Arc::new(Difference::between(&from.set, &to.set));
        if !Arc::ptr_eq(to, &self.offer(kind)) {
            return make();
        }
        let mut known = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(difference) = known.get(&(kind, from.version().clone())) {
            return Arc::clone(difference);
        }
        let difference = make();
        if known.len() < MOST_DIFFERENCES {
            known.insert((kind, from.version().clone()), Arc::clone(&difference));
        }
        difference
    }
}

fn renamed_endpoints(cluster: &Resource) -> Option<(String, String)> {
    let name = Cluster::decode(cluster.body.value.as_slice()).ok()?.eds_cluster_config?.service_name;
    (!name.is_empty()).then(|| (cluster.name.clone(), name))
}

/// The offers that streams hold, so that all streams of a snapshot share one.
#[derive(Debug, Default)]
pub(super) struct OffersInUse(Mutex<Vec<Weak<Offers>>>);

impl OffersInUse {
    /// The offers of a snapshot, shared with the streams that have them already.
    pub(super) fn of(&self, snapshot: &Arc<Snapshot>) -> Arc<Offers> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = known.iter().rev().filter_map(Weak::upgrade);
        if let Some(found) = live.find(|offers| Arc::ptr_eq(&offers.snapshot, snapshot)) {
            return found;
        }
        drop(live);
        let made = Offers::of(Arc::clone(snapshot));
        known.retain(|offers| offers.strong_count() > 0);
        known.push(Arc::downgrade(&made));
        made
    }
}
