//! Envoy's own resources as users write them, for tests that need resources which nothing generates.

use serde_json::{Value, json};

/// An `EnvoyResource`, as one more document of a file.
pub fn raw(name: &str, kind: &str, mut resource: Value) -> String {
    resource["@type"] = format!("type.googleapis.com/envoy.config.{kind}").into();
    let document = json!({
        "apiVersion": "postern/v1",
        "kind": "EnvoyResource",
        "metadata": { "name": name },
        "spec": { "resource": resource },
    });
    format!("---\n{document}\n")
}

/// Where an Envoy finds resources on its aggregated stream.
pub fn ads() -> Value {
    json!({ "ads": {}, "resource_api_version": "V3" })
}

/// A listener with these HTTP filters before the router; `routes` says where its routes are.
pub fn listener(name: &str, port: u16, routes: (&str, Value), filters: &[Value]) -> String {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
    });
    let filters = [filters, &[router]].concat();
    let mut manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "http_filters": filters,
    });
    manager[routes.0] = routes.1;
    let filter = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager });
    let listener = json!({
        "name": name,
        "address": address(port),
        "filter_chains": [{ "filters": [filter] }],
    });
    raw(&format!("listener-{name}"), "listener.v3.Listener", listener)
}

/// An address of this machine.
pub fn address(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}
