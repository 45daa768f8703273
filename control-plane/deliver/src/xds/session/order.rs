//! The order in which changes reach a client: make before break.
//!
//! A response never waits for what the client itself asked for; only pushes wait, and only for a bounded time.

use std::time::Duration;

use postern_compile::snapshot::ResourceType;

/// What must wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hold {
    /// Changes that nobody asked for.
    pub(super) updates: bool,
    /// Removals.
    pub(super) removals: bool,
}

/// How long routes, listeners and plans wait for the clusters that come before them to be accepted. An Envoy accepts
/// clusters once they are warm, so a route that moves to a new cluster finds it ready, and so does a step that calls one.
pub const PATIENCE_TO_MAKE: Duration = Duration::from_secs(10);

/// How long a removal waits for the routes that may use the removed to be accepted.
pub const PATIENCE_TO_BREAK: Duration = Duration::from_secs(20);

/// How long after its first request a client that has resources of an earlier stream is given to name all that it wants,
/// before anything that it has is removed.
pub const TIME_TO_REJOIN: Duration = Duration::from_secs(2);

/// The types whose resources may use one of this type: it is removed only once they have been brought up to date.
pub(super) const fn users(kind: ResourceType) -> &'static [ResourceType] {
    use ResourceType::{Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration, Secret, VirtualHost};
    match kind {
        // What a cluster uses stays as long as the cluster does.
        Secret | Endpoints => &[Cluster, ExtensionConfig, Listener, RouteConfiguration, VirtualHost],
        // A plan names the clusters of agents.
        Cluster => &[ExtensionConfig, Listener, RouteConfiguration, VirtualHost],
        RouteConfiguration => &[Listener],
        ExtensionConfig | Listener | VirtualHost => &[],
    }
}

/// Whether resources of this type may lead to a cluster, which must be there before them: for traffic, or for the calls of
/// a plan's steps.
pub(super) const fn leads_to_clusters(kind: ResourceType) -> bool {
    use ResourceType::{ExtensionConfig, Listener, RouteConfiguration, VirtualHost};
    matches!(kind, ExtensionConfig | Listener | RouteConfiguration | VirtualHost)
}

/// Whether what a client has of this type may ever be withdrawn from it. An Envoy drops an extension configuration at
/// once and answers its listeners' requests with errors, and listeners may come from elsewhere.
pub(super) const fn may_be_withdrawn(kind: ResourceType) -> bool {
    !matches!(kind, ResourceType::ExtensionConfig)
}
