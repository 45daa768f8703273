//! Snapshots: all resources that one group of nodes is served, in Envoy's form, encoded once.
//!
//! Building is a projection of the model and the plan. Which resources apply and what they mean was decided before.

mod access_log;
mod agent;
mod circuit_breaker;
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
mod retry;
mod route;
mod secret;
mod source_tags;
mod timeout;
mod tls;
mod tracing;
mod virtual_host;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use envoy_types::pb::google::protobuf::Any;
use postern_base::digest::Digest;
use postern_engine::{Placement, Plan};
use postern_model::Gateway;
use prost::{Message, Name};

pub use filter::FilterCode;
pub(crate) use filter::Filters;
pub use kept::Kept;
pub use postern_base::resource_type::ResourceType;
pub(crate) use raw::check as check_raw;
pub use virtual_host::NOBODY;
use virtual_host::with_base;

use crate::{
    attach::{self, Attachment, Scope},
    gate::{self, AdmittedPlan},
    port::ports,
};

/// The name of the filter's configuration for Envoys with listeners of their own.
pub const FILTER_NAME: &str = Placement::Overlay.name();

/// One resource in Envoy's form.
#[derive(Debug, PartialEq)]
pub struct Resource {
    /// The name in subscriptions.
    pub name: String,
    /// The digest of its content, which may include that of a related resource.
    pub version: Digest,
    /// The encoded resource.
    pub body: Any,
    /// Who wrote the resource.
    pub author: Author,
}

/// Who wrote a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// Generated from a user's resources.
    Postern,
    /// Written by a user in Envoy's format.
    User,
}

impl Resource {
    fn new<M: Message + Name>(name: &str, message: &M) -> Self {
        let body = any(message);
        Self { name: name.to_owned(), version: Digest::of(&body.value), body, author: Author::Postern }
    }

    /// The same content with a version that also changes whenever `other` changes.
    fn versioned_with(self, other: &Self) -> Self {
        let versions = [self.version.as_str(), other.version.as_str()];
        Self { version: Digest::of_parts(versions.map(str::as_bytes)), ..self }
    }
}

/// Encodes a message as `Any`.
fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// Resources of one type, with a version for the whole set.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceSet {
    /// The digest of the resources' names and versions.
    pub version: Digest,
    /// The resources, sorted by name.
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
    /// The resource with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        let place = self.resources.binary_search_by(|resource| resource.name.as_str().cmp(name)).ok()?;
        self.resources.get(place)
    }
}

/// The resources of a type that a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All resources.
    Everything,
    /// The resources with these names.
    Named(BTreeSet<String>),
}

impl Selection {
    /// Whether a resource with this name is wanted.
    pub fn includes(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Named(names) => names.contains(name),
        }
    }
}

/// Resources by type and name.
type Resources = BTreeMap<ResourceType, BTreeMap<String, Arc<Resource>>>;

/// The admitted plan of a group of nodes, and the configurations that deliver it.
#[derive(Debug)]
pub(crate) struct PlanOf {
    pub(crate) plan: AdmittedPlan,
    pub(crate) filters: Filters,
    /// Whether the plan may read the tags of a source.
    pub(crate) reads_source_tags: bool,
    /// See [`Snapshot::needs_verification`].
    pub(crate) needs_verification: bool,
}

/// The resources that do not depend on the plan: all except listeners and extension configurations.
#[derive(Debug)]
pub(crate) struct Projection(Resources);

impl Projection {
    /// Projects the resources of a group of nodes. Reuses parts of earlier projections from `kept`.
    pub(crate) fn of(scope: &Scope<'_>, attachment: &Attachment<'_>, kept: &Kept) -> Self {
        let clusters: Vec<_> = scope.services.iter().map(|service| cluster::cluster(service, scope)).collect();
        let endpoints = scope.services.iter().zip(&clusters).filter_map(|(service, cluster)| {
            // Envoy warms a changed cluster until its endpoints come again, so a change of the cluster changes their
            // version.
            Some(endpoint::endpoints(service)?.versioned_with(cluster))
        });
        let mut resources = Resources::new();
        insert(&mut resources, ResourceType::Secret, secret::secrets(scope));
        insert(&mut resources, ResourceType::Endpoints, endpoints);
        let agents = scope.agents.iter().copied().map(agent::cluster);
        let collector = tracing::cluster(&attach::tracing(scope).conf);
        let logs = access_log::clusters(scope);
        insert(&mut resources, ResourceType::Cluster, clusters.into_iter().chain(agents).chain(collector).chain(logs));
        let ports = ports(&scope.gateways);
        let routes = scope.gateways.iter();
        let routes = routes.flat_map(|gateway| route::route_configurations(gateway, &ports, scope, attachment, kept));
        let routes = routes.map(|resource| (resource.name.clone(), resource)).collect();
        resources.insert(ResourceType::RouteConfiguration, routes);
        Self(resources)
    }

    /// Adds what depends on the plan, and users' own resources, to make a snapshot.
    pub(crate) fn with_plan(
        self,
        scope: &Scope<'_>,
        attachment: &Attachment<'_>,
        plan: PlanOf,
        code: &FilterCode,
        revision: Digest,
    ) -> Snapshot {
        let PlanOf { plan, filters, reads_source_tags, needs_verification } = plan;
        let Self(mut resources) = self;
        let (logs, local_logs) = (access_log::access_logs(scope, false), access_log::access_logs(scope, true));
        let traced = attach::tracing(scope).conf;
        // All placements; a listener subscribes to the one that it needs.
        insert(&mut resources, ResourceType::ExtensionConfig, filters.with(&plan, code));
        let manager = |gateway: &postern_model::Resource<Gateway>| listener::Manager {
            trusts_request_ids: listener::trusts_request_ids(gateway, attachment),
            reads_source_tags: reads_source_tags || access_log::reads_source_tags(scope),
            access_logs: if gateway.is_local() { &local_logs } else { &logs },
            tracing: &traced,
        };
        let listeners = ports(&scope.gateways).into_iter().map(|port| listener::listener(&port, manager));
        insert(&mut resources, ResourceType::Listener, listeners);
        raw::add(&mut resources, scope);
        Snapshot { revision, resources, plan, needs_verification, whole: Default::default() }
    }
}

fn insert(resources: &mut Resources, kind: ResourceType, list: impl IntoIterator<Item = Resource>) {
    let named = list.into_iter().map(|resource| (resource.name.clone(), Arc::new(resource))).collect();
    resources.insert(kind, named);
}

/// All resources for a group of nodes. Immutable, and shared by streams.
#[derive(Debug)]
pub struct Snapshot {
    revision: Digest,
    resources: Resources,
    plan: AdmittedPlan,
    needs_verification: bool,
    /// The complete set of each type, made on first use.
    whole: [OnceLock<Arc<ResourceSet>>; ResourceType::ALL.len()],
}

impl Snapshot {
    /// A snapshot of given resources, unchanged. It never [needs verification](Self::needs_verification). For
    /// tests of what comes after compilation.
    #[cfg(any(test, feature = "test-hooks"))]
    pub fn assemble(
        revision: Digest,
        plan: AdmittedPlan,
        all: impl IntoIterator<Item = (ResourceType, Resource)>,
    ) -> Self {
        let mut resources: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (kind, resource) in all {
            resources.entry(kind).or_default().insert(resource.name.clone(), Arc::new(resource));
        }
        Self { revision, resources, plan, needs_verification: false, whole: Default::default() }
    }

    /// The sets of resources that a node accepted from a control plane, to serve exactly that node again while the
    /// control plane is gone. Versions are kept. The plan is in one of the resources and is not known apart from them:
    /// [`Self::plan`] is one that refuses every request, and no resource has it.
    pub fn of_accepted(sets: BTreeMap<ResourceType, ResourceSet>) -> Self {
        let versions = sets.iter().flat_map(|(kind, set)| [kind.type_url(), set.version.as_str()]);
        let revision = Digest::of_parts(versions.map(str::as_bytes));
        let named = |set: &ResourceSet| set.resources.iter().map(|it| (it.name.clone(), Arc::clone(it))).collect();
        let resources = sets.iter().map(|(kind, set)| (*kind, named(set))).collect();
        let whole: [OnceLock<Arc<ResourceSet>>; ResourceType::ALL.len()] = Default::default();
        // Virtual hosts are left out: a client must get a base set even if the node had none yet.
        for (kind, set) in sets.into_iter().filter(|(kind, _)| *kind != ResourceType::VirtualHost) {
            if let Some(place) = whole.get(kind as usize) {
                place.get_or_init(|| Arc::new(set));
            }
        }
        Self { revision, resources, plan: gate::refusal(), needs_verification: false, whole }
    }

    /// Projects the resources of a group of nodes with a plan that was made elsewhere.
    pub fn build(
        scope: &Scope<'_>,
        attachment: &Attachment<'_>,
        plan: AdmittedPlan,
        code: &FilterCode,
        revision: Digest,
    ) -> Self {
        let projection = Projection::of(scope, attachment, &Kept::default());
        let filters = Filters::new(plan.encoded(), code);
        let wire = postern_proto::decode_plan(plan.bytes()).map_err(drop);
        let needs_verification = wire.and_then(|wire| Plan::needs_verification(&wire).map_err(drop)).unwrap_or(false);
        let plan = PlanOf { plan, filters, reads_source_tags: attachment.selects_by_tags(), needs_verification };
        projection.with_plan(scope, attachment, plan, code, revision)
    }

    /// The snapshot with clusters and listeners rewritten by `rewrite`. Versions do not change, so that ACK and NACK
    /// mean the same. Returns the first error.
    pub fn rewritten<E>(&self, rewrite: impl Fn(&Resource) -> Result<Any, E>) -> Result<Self, E> {
        let rewrite = |resource: &Arc<Resource>| {
            let Resource { name, version, author, .. } = &**resource;
            let (name, version, author) = (name.clone(), version.clone(), *author);
            Ok(Arc::new(Resource { name, version, body: rewrite(resource)?, author }))
        };
        let mut resources = self.resources.clone();
        for kind in [ResourceType::Cluster, ResourceType::Listener] {
            for resource in resources.get_mut(&kind).into_iter().flat_map(BTreeMap::values_mut) {
                *resource = rewrite(resource)?;
            }
        }
        let (revision, plan, needs_verification) = (self.revision.clone(), self.plan.clone(), self.needs_verification);
        Ok(Self { revision, resources, plan, needs_verification, whole: Default::default() })
    }

    /// The revision of the snapshot.
    pub fn revision(&self) -> &Digest {
        &self.revision
    }

    /// The plan in the filter's configuration.
    pub fn plan(&self) -> &AdmittedPlan {
        &self.plan
    }

    /// Whether a chain may edit a header that could change the route, where the routes are not known.
    pub fn needs_verification(&self) -> bool {
        self.needs_verification
    }

    /// The complete set of a type as it is served. Virtual hosts include the base set for every client.
    pub fn whole(&self, kind: ResourceType) -> Arc<ResourceSet> {
        let make = || {
            let all = self.select(kind, &Selection::Everything);
            Arc::new(match kind {
                ResourceType::VirtualHost => with_base(all, &self.whole(ResourceType::RouteConfiguration)),
                _ => all,
            })
        };
        self.whole.get(kind as usize).map_or_else(make, |place| Arc::clone(place.get_or_init(make)))
    }

    /// The selected resources of a type. Names that do not exist are omitted.
    pub fn select(&self, kind: ResourceType, selection: &Selection) -> ResourceSet {
        let all = self.resources.get(&kind).into_iter().flatten();
        all.filter(|(name, _)| selection.includes(name)).map(|(_, resource)| Arc::clone(resource)).collect()
    }
}
