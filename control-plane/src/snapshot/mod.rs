//! A snapshot: all that one group of nodes is served, as Envoy's own resources, encoded once.
//!
//! Building is a projection: it reads the model and the plan, and decides nothing about either.

mod access_log;
mod agent;
mod cluster;
mod endpoint;
mod filter;
mod listener;
mod resource_type;
mod route;
mod secret;
mod tls;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

pub use filter::FilterCode;
pub use resource_type::ResourceType;

use crate::{digest::Digest, gate::AdmittedPlan, model::Bundle};

/// The name under which every Envoy finds the filter's configuration.
pub const FILTER_NAME: &str = "postern";

/// One resource as it goes over the wire.
#[derive(Debug, PartialEq)]
pub struct Resource {
    /// What subscriptions call it.
    pub name: String,
    /// The digest of its content.
    pub version: Digest,
    /// Its encoding.
    pub body: Any,
}

impl Resource {
    fn new<M: Message + Name>(name: &str, message: &M) -> Self {
        let body = any(message);
        Self { name: name.to_owned(), version: Digest::of(&body.value), body }
    }

    /// The same content under a version that changes whenever `other` changes too.
    fn versioned_with(self, other: &Self) -> Self {
        let versions = [self.version.as_str(), other.version.as_str()];
        Self { version: Digest::of_parts(versions.map(str::as_bytes)), ..self }
    }
}

/// A message in an `Any`.
fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// Some resources of one type, and the version that stands for exactly these.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceSet {
    /// The digest over the resources' names and versions.
    pub version: Digest,
    /// The resources, in the order of their names.
    pub resources: Vec<Arc<Resource>>,
}

impl FromIterator<Arc<Resource>> for ResourceSet {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Self {
        let resources: Vec<_> = resources.into_iter().collect();
        let parts = resources.iter().flat_map(|resource| [resource.name.as_str(), resource.version.as_str()]);
        let version = Digest::of_parts(parts.map(str::as_bytes));
        Self { version, resources }
    }
}

/// Which resources of a type a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All that there are.
    Everything,
    /// The ones of these names.
    Named(BTreeSet<String>),
}

impl Selection {
    /// Whether a resource of this name is wanted.
    pub fn includes(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Named(names) => names.contains(name),
        }
    }
}

/// All resources of every type. Immutable; streams share it.
#[derive(Debug)]
pub struct Snapshot {
    revision: Digest,
    resources: BTreeMap<ResourceType, BTreeMap<String, Arc<Resource>>>,
    plan: AdmittedPlan,
}

impl Snapshot {
    /// Projects a bundle and its plan into Envoy's resources.
    pub fn build(bundle: &Bundle, plan: AdmittedPlan, code: &FilterCode, revision: Digest) -> Self {
        let clusters: Vec<_> = bundle.services.iter().map(cluster::cluster).collect();
        let endpoints = bundle.services.iter().zip(&clusters).filter_map(|(service, cluster)| {
            // Envoy warms a changed cluster until its endpoints come, changed or not: tie their versions together.
            Some(endpoint::endpoints(service)?.versioned_with(cluster))
        });
        let mut resources = BTreeMap::new();
        let mut insert = |kind, list: Vec<Resource>| {
            let named = list.into_iter().map(|resource| (resource.name.clone(), Arc::new(resource))).collect();
            resources.insert(kind, named);
        };
        insert(ResourceType::Secret, secret::secrets(bundle));
        insert(ResourceType::Endpoints, endpoints.collect());
        insert(ResourceType::Cluster, clusters.into_iter().chain(bundle.agents.iter().map(agent::cluster)).collect());
        insert(ResourceType::ExtensionConfig, vec![filter::extension_config(&plan, code)]);
        insert(
            ResourceType::Listener,
            bundle.gateways.iter().flat_map(|gateway| listener::listeners(gateway, bundle)).collect(),
        );
        insert(
            ResourceType::RouteConfiguration,
            bundle.gateways.iter().map(|gateway| route::route_configuration(gateway, bundle)).collect(),
        );
        Self { revision, resources, plan }
    }

    /// The revision that this is the snapshot of.
    pub fn revision(&self) -> &Digest {
        &self.revision
    }

    /// The plan that the filter's configuration carries.
    pub fn plan(&self) -> &AdmittedPlan {
        &self.plan
    }

    /// The resources of a type that a selection names. A name that is not there is left out.
    pub fn select(&self, kind: ResourceType, selection: &Selection) -> ResourceSet {
        let all = self.resources.get(&kind).into_iter().flatten();
        all.filter(|(name, _)| selection.includes(name)).map(|(_, resource)| Arc::clone(resource)).collect()
    }
}
