//! A snapshot: all that one group of nodes is served, as Envoy's own resources, encoded once.
//!
//! Building is a projection: it reads the model and the plan, and decides nothing about either.

mod access_log;
mod agent;
mod cluster;
mod duration;
mod edge;
mod endpoint;
mod filter;
mod kept;
mod listener;
mod matcher;
mod path;
mod raw;
mod request_match;
mod route;
mod secret;
mod source_tags;
mod timeout;
mod tls;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use envoy_types::pb::google::protobuf::Any;
use postern_engine::Placement;
use prost::{Message, Name};

pub use crate::resource_type::ResourceType;
pub use filter::FilterCode;
pub(crate) use filter::Filters;
pub use kept::Kept;
pub(crate) use raw::check as check_raw;

use crate::{
    attach::{self, Attachment, Scope},
    digest::Digest,
    gate::AdmittedPlan,
    protobuf_json::WriteError,
    redirect::Source,
    xds::Offers,
};

/// The name under which an Envoy with listeners of its own finds the filter's configuration.
pub const FILTER_NAME: &str = Placement::Overlay.name();

/// One resource as it goes over the wire.
#[derive(Debug, PartialEq)]
pub struct Resource {
    /// What subscriptions call it.
    pub name: String,
    /// The digest of its content.
    pub version: Digest,
    /// Its encoding.
    pub body: Any,
    /// Who wrote it.
    pub author: Author,
}

/// Who wrote a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// We did, from what a user declared.
    Postern,
    /// A user did, word for word.
    User,
}

impl Resource {
    fn new<M: Message + Name>(name: &str, message: &M) -> Self {
        let body = any(message);
        Self { name: name.to_owned(), version: Digest::of(&body.value), body, author: Author::Postern }
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

impl ResourceSet {
    /// The resource of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        let place = self.resources.binary_search_by(|resource| resource.name.as_str().cmp(name)).ok()?;
        self.resources.get(place)
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

/// Resources by type and name.
type Resources = BTreeMap<ResourceType, BTreeMap<String, Arc<Resource>>>;

/// The plan of a group of nodes, and what brings it to them.
#[derive(Debug)]
pub(crate) struct PlanOf {
    pub(crate) plan: AdmittedPlan,
    pub(crate) filters: Filters,
    /// Whether it may ask for the tags of a source.
    pub(crate) reads_source_tags: bool,
}

/// What a group of nodes is served beside its plan and the listeners that run it.
#[derive(Debug)]
pub(crate) struct Projection(Resources);

impl Projection {
    /// Projects what concerns a group of nodes. What it has in common with one made before is taken from there.
    pub(crate) fn of(scope: &Scope<'_>, attachment: &Attachment<'_>, kept: &Kept) -> Self {
        let clusters = scope.services.iter().map(|service| {
            let timeouts = attach::for_service(scope, &service.name);
            cluster::cluster(service, &timeouts.conf)
        });
        let clusters: Vec<_> = clusters.collect();
        let endpoints = scope.services.iter().zip(&clusters).filter_map(|(service, cluster)| {
            // Envoy warms a changed cluster until its endpoints come, changed or not: tie their versions together.
            Some(endpoint::endpoints(service)?.versioned_with(cluster))
        });
        let mut resources = Resources::new();
        insert(&mut resources, ResourceType::Secret, secret::secrets(scope));
        insert(&mut resources, ResourceType::Endpoints, endpoints);
        let agents = scope.agents.iter().copied().map(agent::cluster);
        insert(&mut resources, ResourceType::Cluster, clusters.into_iter().chain(agents));
        let routes = scope.gateways.iter().map(|gateway| route::route_configuration(gateway, scope, attachment, kept));
        let routes = routes.map(|resource| (resource.name.clone(), resource)).collect();
        resources.insert(ResourceType::RouteConfiguration, routes);
        Self(resources)
    }

    /// The snapshot, with a plan that the gate let through.
    pub(crate) fn with_plan(
        self,
        scope: &Scope<'_>,
        attachment: &Attachment<'_>,
        plan: PlanOf,
        code: &FilterCode,
        revision: Digest,
    ) -> Snapshot {
        let PlanOf { plan, filters, reads_source_tags } = plan;
        let Self(mut resources) = self;
        let logs = access_log::access_logs(scope);
        // A listener subscribes to the one that it needs.
        insert(&mut resources, ResourceType::ExtensionConfig, filters.with(&plan, code));
        let listeners = scope.gateways.iter().flat_map(|gateway| {
            let manager = listener::Manager {
                gateway: &gateway.name,
                http: &gateway.spec.http,
                trusts_request_ids: listener::trusts_request_ids(gateway, attachment),
                reads_source_tags,
                access_logs: &logs,
            };
            listener::listeners(gateway, &manager)
        });
        insert(&mut resources, ResourceType::Listener, listeners);
        raw::add(&mut resources, scope);
        Snapshot { revision, resources, plan, offers: Offers::default(), redirected: Mutex::default() }
    }
}

fn insert(resources: &mut Resources, kind: ResourceType, list: impl IntoIterator<Item = Resource>) {
    let named = list.into_iter().map(|resource| (resource.name.clone(), Arc::new(resource))).collect();
    resources.insert(kind, named);
}

/// All resources of every type. Immutable; streams share it.
#[derive(Debug)]
pub struct Snapshot {
    revision: Digest,
    resources: Resources,
    plan: AdmittedPlan,
    offers: Offers,
    redirected: Mutex<BTreeMap<Source, Arc<Self>>>,
}

/// How many sources a snapshot is kept for. Envoys of one fleet call us by one or two names.
const MOST_SOURCES: usize = 8;

impl Snapshot {
    /// A snapshot of these very resources.
    pub fn assemble(
        revision: Digest,
        plan: AdmittedPlan,
        all: impl IntoIterator<Item = (ResourceType, Resource)>,
    ) -> Self {
        let mut resources: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (kind, resource) in all {
            resources.entry(kind).or_default().insert(resource.name.clone(), Arc::new(resource));
        }
        Self { revision, resources, plan, offers: Offers::default(), redirected: Mutex::default() }
    }

    /// Projects what concerns a group of nodes, and a plan that was made elsewhere, into Envoy's resources.
    pub fn build(
        scope: &Scope<'_>,
        attachment: &Attachment<'_>,
        plan: AdmittedPlan,
        code: &FilterCode,
        revision: Digest,
    ) -> Self {
        let projection = Projection::of(scope, attachment, &Kept::default());
        let filters = Filters::new(plan.encoded(), code);
        let plan = PlanOf { plan, filters, reads_source_tags: attachment.selects_by_tags() };
        projection.with_plan(scope, attachment, plan, code, revision)
    }

    /// The same for Envoys that get what it refers to from a source of their own instead of an aggregated stream. Versions
    /// stay: what an Envoy accepts or refuses is the same.
    pub fn by_way_of(&self, source: &Source) -> Result<Arc<Self>, WriteError> {
        let known = |redirected: &BTreeMap<Source, Arc<Self>>| redirected.get(source).map(Arc::clone);
        if let Some(known) = known(&self.redirected.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(known);
        }
        let mut resources = Resources::new();
        for (kind, all) in &self.resources {
            let redirect = |(name, resource): (&String, &Arc<Resource>)| {
                let resource = match kind {
                    ResourceType::Cluster | ResourceType::Listener => {
                        let Resource { name, version, author, .. } = &**resource;
                        let (name, version, author) = (name.clone(), version.clone(), *author);
                        Arc::new(Resource { name, version, body: source.rewrite(resource)?, author })
                    }
                    _ => Arc::clone(resource),
                };
                Ok((name.clone(), resource))
            };
            resources.insert(*kind, all.iter().map(redirect).collect::<Result<_, WriteError>>()?);
        }
        let made = Arc::new(Self {
            revision: self.revision.clone(),
            resources,
            plan: self.plan.clone(),
            offers: Offers::default(),
            redirected: Mutex::default(),
        });
        let mut redirected = self.redirected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known(&redirected) {
            return Ok(known);
        }
        if redirected.len() < MOST_SOURCES {
            redirected.insert(source.clone(), Arc::clone(&made));
        }
        Ok(made)
    }

    /// The revision that this is the snapshot of.
    pub fn revision(&self) -> &Digest {
        &self.revision
    }

    /// The plan that the filter's configuration carries.
    pub fn plan(&self) -> &AdmittedPlan {
        &self.plan
    }

    /// What streams make of it, made once and shared by all of them.
    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The resources of a type that a selection names. A name that is not there is left out.
    pub fn select(&self, kind: ResourceType, selection: &Selection) -> ResourceSet {
        let all = self.resources.get(&kind).into_iter().flatten();
        all.filter(|(name, _)| selection.includes(name)).map(|(_, resource)| Arc::clone(resource)).collect()
    }
}
