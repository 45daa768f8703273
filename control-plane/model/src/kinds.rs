//! The list of kinds, and everything that follows from it: the schemas, the resources of a user by kind, and how a document is
//! read by what its `kind` says. What is to be done with all resources, of whatever kind, goes through [`Bundle`] or
//! [`Selected`], so that it need not name the kinds. What a kind is stands in a file of its own.

use std::{iter, sync::Arc};

use postern_base::{diagnostic::Diagnostic, yaml::Node};

use super::{
    AccessLog, Agent, Consumer, EnvoyResource, Gateway, Issuer, RoutePolicy, Service, Settings, Timeout,
    TrafficPermission,
    kind::{KindSchema, Spec},
    report::Report,
    resource::{self, Declaration, Resource, declaration},
};

/// Makes the types and functions that have a part for each kind.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident in $field:ident;)*) => {
        /// Every kind of resource that can be read, in the order in which documentation shows them.
        pub const SCHEMAS: &[KindSchema] = &[$(<$kind as Spec>::SCHEMA),*];

        /// All resources that a user declared, each kind sorted by mesh and name: equal whatever the order of the files.
        #[derive(Debug, Clone, Default)]
        pub struct Bundle {
            $($(#[$about])* pub $field: Vec<Resource<$kind>>,)*
        }

        /// Some of the resources of a [`Bundle`], and no others: see [`Bundle::select`].
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

            /// How many resources there are.
            pub fn len(&self) -> usize {
                [$(self.$field.len()),*].iter().sum()
            }

            /// The resources that have a rank. Each kind is sorted by rank; those of one rank by mesh and name.
            pub fn select<'a, R: Ord>(&'a self, rank: impl Fn(&Declaration<'a>) -> Option<R>) -> Selected<'a> {
                Selected { $($field: select(&self.$field, &rank),)* }
            }

            pub(super) fn add(&mut self, resource: AnyResource) {
                match resource {
                    $(AnyResource::$kind(resource) => self.$field.push(resource),)*
                }
            }

            /// Sorts each kind by mesh and name. What has the name of another is taken out and reported.
            pub(super) fn sort_unique(&mut self) -> Vec<Diagnostic> {
                let mut found = Vec::new();
                $(found.extend(resource::sort_unique(&mut self.$field));)*
                found
            }
        }

        impl<'a> Selected<'a> {
            /// All of them, one kind after the other.
            pub fn iter(&self) -> impl Iterator<Item = Declaration<'a>> {
                iter::empty()$(.chain(self.$field.iter().copied().map(declaration)))*
            }
        }

        impl AnyResource {
            /// The document as a resource of a kind, if there is such a kind and nothing is wrong with the document.
            pub(super) fn read(kind: &str, file: &Arc<str>, root: &Node, report: &mut Report<'_>) -> Option<Self> {
                $(if kind == <$kind as Spec>::SCHEMA.name {
                    return resource::read(file, root, report).map(Self::$kind);
                })*
                None
            }

            /// The resource in a file, behind so many lines.
            pub(super) fn placed(&self, file: &Arc<str>, lines: usize) -> Self {
                match self {
                    $(Self::$kind(resource) => Self::$kind(resource.placed(file, lines)),)*
                }
            }
        }
    };
}

kinds! {
    /// The gateways: no two of a mesh have routes of one name, or listeners of one address.
    Gateway in gateways;
    /// The services, among them every one that a gateway of their mesh names.
    Service in services;
    /// Resources of Envoy that are served as they are: no two of one type have the same name.
    EnvoyResource in envoy_resources;
    /// The consumers: no two of a mesh have the same key or user name.
    Consumer in consumers;
    /// The issuers of tokens.
    Issuer in issuers;
    /// The external policy agents.
    Agent in agents;
    /// The chains, and what they are attached to.
    RoutePolicy in route_policies;
    /// Who may call whom.
    TrafficPermission in traffic_permissions;
    /// Who waits how long for whom.
    Timeout in timeouts;
    /// Who logs what where; every backend that they name exists.
    AccessLog in access_logs;
    /// The settings: at most one a mesh.
    Settings in settings;
}

impl Bundle {
    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The schema of the kind of this name.
pub(super) fn schema(name: &str) -> Option<&'static KindSchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

/// The resources that have a rank, in its order.
fn select<'a, T: Spec, R: Ord>(
    resources: &'a [Resource<T>],
    rank: impl Fn(&Declaration<'a>) -> Option<R>,
) -> Vec<&'a Resource<T>> {
    let ranked = resources.iter().filter_map(|resource| Some((rank(&declaration(resource))?, resource)));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
    ranked.into_iter().map(|(_, resource)| resource).collect()
}
