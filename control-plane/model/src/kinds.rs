//! The list of kinds, and what is derived from it: the schemas, the bundle of a user's resources, and reading a
//! document by its `kind`. Code for resources of all kinds uses [`Bundle`] or [`Selected`], so that it does not name
//! the kinds. Each kind itself is in a file of its own.

use std::{iter, sync::Arc};

use postern_base::{diagnostic::Diagnostic, yaml::Node};

use super::{
    AccessLog, Agent, CircuitBreaker, Consumer, EnvoyResource, Gateway, HealthChecking, Issuer, Retry, RoutePolicy,
    Service, Settings, Timeout, Tracing, TrafficPermission, VirtualOutbound,
    generated::Generated,
    kind::{KindSchema, Spec},
    report::Report,
    resource::{self, Declaration, Resource, declaration},
    virtual_outbound::outbound_route,
};

/// Generates the types and functions that have a part for each kind.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident in $field:ident;)*) => {
        /// All kinds of resources, in the order of the documentation.
        pub const SCHEMAS: &[KindSchema] = &[$(<$kind as Spec>::SCHEMA),*];

        /// All resources of a user, each kind sorted by mesh and name: independent of the order of the files.
        #[derive(Debug, Clone, Default)]
        pub struct Bundle {
            $($(#[$about])* pub $field: Vec<Resource<$kind>>,)*
            /// Whether every request is refused at every node, because something could not be read that may guard it.
            pub refuses_all: bool,
            /// Gateways that were made of other resources.
            pub(super) generated: Generated,
        }

        /// Some of the resources of a [`Bundle`]. Made by [`Bundle::select`].
        #[derive(Debug, Default)]
        pub struct Selected<'a> {
            $($(#[$about])* pub $field: Vec<&'a Resource<$kind>>,)*
        }

        /// A resource of any kind.
        pub(super) enum AnyResource {
            $($kind(Resource<$kind>),)*
        }

        impl Bundle {
            /// All resources, one kind after the other.
            pub fn iter(&self) -> impl Iterator<Item = Declaration<'_>> {
                iter::empty()$(.chain(self.$field.iter().map(declaration)))*
            }

            /// The number of resources.
            pub fn len(&self) -> usize {
                [$(self.$field.len()),*].iter().sum()
            }

            /// The resources for which `rank` returns a rank. Each kind is sorted by rank, then by mesh and name.
            pub fn select<'a, R: Ord>(&'a self, rank: impl Fn(&Declaration<'a>) -> Option<R>) -> Selected<'a> {
                Selected { $($field: select(&self.$field, &rank),)* }
            }

            pub(super) fn add(&mut self, resource: AnyResource) {
                match resource {
                    $(AnyResource::$kind(resource) => self.$field.push(resource),)*
                }
            }

            /// Sorts each kind by mesh and name. Removes and reports resources whose name is taken.
            pub(super) fn sort_unique(&mut self) -> Vec<Diagnostic> {
                let mut found = Vec::new();
                $(found.extend(resource::sort_unique(&mut self.$field));)*
                found
            }
        }

        impl<'a> Selected<'a> {
            /// All selected resources, one kind after the other.
            pub fn iter(&self) -> impl Iterator<Item = Declaration<'a>> {
                iter::empty()$(.chain(self.$field.iter().copied().map(declaration)))*
            }
        }

        impl AnyResource {
            /// Reads a document as a resource. `None` if there is no such kind, or if anything was reported.
            pub(super) fn read(kind: &str, file: &Arc<str>, root: &Node, report: &mut Report<'_>) -> Option<Self> {
                $(if kind == <$kind as Spec>::SCHEMA.name {
                    return resource::read(file, root, report).map(Self::$kind);
                })*
                None
            }

            /// The same resource in `file`, moved down by `lines` lines.
            pub(super) fn placed(&self, file: &Arc<str>, lines: usize) -> Self {
                match self {
                    $(Self::$kind(resource) => Self::$kind(resource.placed(file, lines)),)*
                }
            }
        }
    };
}

kinds! {
    /// Gateways: in a mesh, names of routes and addresses of listeners are unique.
    Gateway in gateways;
    /// Services, including every one that a gateway of their mesh names.
    Service in services;
    /// Resources in Envoy's format: names are unique for each type.
    EnvoyResource in envoy_resources;
    /// Consumers: in a mesh, keys and user names are unique.
    Consumer in consumers;
    /// Issuers of tokens.
    Issuer in issuers;
    /// External policy agents.
    Agent in agents;
    /// Chains of steps and their targets.
    RoutePolicy in route_policies;
    /// Permissions of callers.
    TrafficPermission in traffic_permissions;
    /// Time-outs of calls.
    Timeout in timeouts;
    /// Limits of calls, and ejection of endpoints.
    CircuitBreaker in circuit_breakers;
    /// Retries of calls.
    Retry in retries;
    /// Health checks of the services that are called.
    HealthChecking in health_checks;
    /// Host names for outbound requests.
    VirtualOutbound in virtual_outbounds;
    /// Access logs: every backend that they name exists.
    AccessLog in access_logs;
    /// Traces of requests.
    Tracing in tracings;
    /// Settings: at most one for each mesh.
    Settings in settings;
}

impl Bundle {
    /// A gateway that is made of another resource, for as long as the bundle lives. Equal ones are kept once.
    pub fn generated_gateway<T>(&self, of: &Resource<T>, name: String, spec: Gateway) -> &Resource<Gateway> {
        self.generated.keep(&of.made("listener", name, spec))
    }

    /// The names of the routes that VirtualOutbounds can come to in a mesh, on some nodes at least.
    pub fn outbound_routes<'a>(&'a self, mesh: &'a str) -> impl Iterator<Item = String> + 'a {
        let services = self.services.iter().filter(move |service| service.mesh() == mesh);
        let entries = move || {
            let attached = self.virtual_outbounds.iter().filter(move |outbound| outbound.mesh() == mesh);
            attached.flat_map(|outbound| &outbound.spec.to)
        };
        services
            .filter(move |service| entries().any(|entry| service.is_selected_by(&entry.target_ref)))
            .map(|service| outbound_route(&service.name))
    }

    /// Whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The description of the kind with this name.
pub(super) fn schema(name: &str) -> Option<&'static KindSchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

/// The resources that have a rank, sorted by rank. The sort is stable.
fn select<'a, T: Spec, R: Ord>(
    resources: &'a [Resource<T>],
    rank: impl Fn(&Declaration<'a>) -> Option<R>,
) -> Vec<&'a Resource<T>> {
    let ranked = resources.iter().filter_map(|resource| Some((rank(&declaration(resource))?, resource)));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
    ranked.into_iter().map(|(_, resource)| resource).collect()
}
