//! The order in which changes reach a client: make before break.
//!
//! A response to a request of the client never waits; only pushes wait, and only for a bounded time.

use std::time::Duration;

use postern_compile::snapshot::ResourceType;

/// What must wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hold {
    /// Whether changes that were not asked for must wait.
    pub(super) updates: bool,
    /// Whether removals must wait.
    pub(super) removals: bool,
}

/// The longest time that routes, listeners and plans wait for the acceptance of new clusters. An Envoy accepts clusters
/// when they are warm, so that a route to a new cluster, or a step that calls one, finds it ready.
pub const PATIENCE_TO_MAKE: Duration = Duration::from_secs(10);

/// The longest time that a removal waits for the acceptance of routes that may use what is removed.
pub const PATIENCE_TO_BREAK: Duration = Duration::from_secs(20);

/// The time after its first request in which a reconnected client with resources must name all its subscriptions,
/// before anything is removed.
pub const TIME_TO_REJOIN: Duration = Duration::from_secs(2);

/// The types whose resources may use one of this type, which is removed only after these are up to date.
pub(super) const fn users(kind: ResourceType) -> &'static [ResourceType] {
    use ResourceType::{Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration, Secret, VirtualHost};
    match kind {
        // What a cluster uses is kept as long as the cluster.
        Secret | Endpoints => &[Cluster, ExtensionConfig, Listener, RouteConfiguration, VirtualHost],
        // A plan names the clusters of agents.
        Cluster => &[ExtensionConfig, Listener, RouteConfiguration, VirtualHost],
        RouteConfiguration => &[Listener],
        ExtensionConfig | Listener | VirtualHost => &[],
    }
}

/// Whether resources of this type may refer to a cluster, for traffic or for calls of a plan's steps. The cluster must
/// be sent before them.
pub(super) const fn leads_to_clusters(kind: ResourceType) -> bool {
    use ResourceType::{ExtensionConfig, Listener, RouteConfiguration, VirtualHost};
    matches!(kind, ExtensionConfig | Listener | RouteConfiguration | VirtualHost)
}

/// Whether resources of this type may ever be withdrawn. An Envoy drops an extension configuration at once and then
/// answers its listeners' requests with errors, and listeners may come from elsewhere.
pub(super) const fn may_be_withdrawn(kind: ResourceType) -> bool {
    !matches!(kind, ResourceType::ExtensionConfig)
}
