//! The xDS resource types that Envoys are served, and the order in which they are sent. Nothing else of xDS is here.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// A type of resource. The order of the variants is the order of pushes: what others refer to comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResourceType {
    /// SDS: before clusters and listeners, which wait for them.
    Secret,
    /// CDS.
    Cluster,
    /// EDS: right after the clusters that wait for them.
    Endpoints,
    /// ECDS: before the listeners that name them.
    ExtensionConfig,
    /// LDS.
    Listener,
    /// RDS.
    RouteConfiguration,
    /// VHDS: virtual hosts that are asked for when a request comes.
    VirtualHost,
}

impl ResourceType {
    /// All types, in the order of pushes.
    pub const ALL: [Self; 7] = [
        Self::Secret,
        Self::Cluster,
        Self::Endpoints,
        Self::ExtensionConfig,
        Self::Listener,
        Self::RouteConfiguration,
        Self::VirtualHost,
    ];

    /// The type URL in the protocol.
    pub const fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::ExtensionConfig => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::VirtualHost => "type.googleapis.com/envoy.config.route.v3.VirtualHost",
            Self::RouteConfiguration => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// The type with this URL. `None` if it is not served.
    pub fn from_type_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == url)
    }

    /// Whether a response lists all resources, so that an absent one is deleted (CDS and LDS).
    pub const fn is_full_state(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cluster => "CDS",
            Self::Endpoints => "EDS",
            Self::ExtensionConfig => "ECDS",
            Self::Listener => "LDS",
            Self::RouteConfiguration => "RDS",
            Self::Secret => "SDS",
            Self::VirtualHost => "VHDS",
        })
    }
}
