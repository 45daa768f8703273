//! The kinds of resources. Each has a file of its own.

use super::{
    access_log, agent, consumer, envoy_resource, gateway, issuer, kind::KindSchema, route_policy, service, settings,
    timeout, traffic_permission,
};

/// Every kind of resource that can be read, as documentation shows it.
pub const SCHEMAS: &[KindSchema] = &[
    gateway::SCHEMA,
    service::SCHEMA,
    envoy_resource::SCHEMA,
    consumer::SCHEMA,
    issuer::SCHEMA,
    agent::SCHEMA,
    route_policy::SCHEMA,
    traffic_permission::SCHEMA,
    timeout::SCHEMA,
    access_log::SCHEMA,
    settings::SCHEMA,
];

/// The schema of the kind of this name.
pub(super) fn schema(name: &str) -> Option<&'static KindSchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}
