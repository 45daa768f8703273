//! The bootstrap of a case's Envoy: static, without a control plane, an access log or anything else that runs at
//! intervals.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{filters, policies::route_path};

const UPSTREAM: &str = "upstream";

/// What differs between the bootstraps of the cases.
pub(super) struct Bootstrap {
    pub(super) admin: SocketAddr,
    pub(super) listener: SocketAddr,
    pub(super) upstream: SocketAddr,
    pub(super) server: Option<SocketAddr>,
    pub(super) filters: Vec<Value>,
    /// The names of the routes.
    pub(super) routes: Vec<String>,
}

impl Bootstrap {
    /// The bootstrap as JSON.
    pub(super) fn json(self) -> Value {
        let server = self.server.map(|server| cluster(filters::SERVER, server, Http::Two));
        let clusters: Vec<_> = [cluster(UPSTREAM, self.upstream, Http::One)].into_iter().chain(server).collect();
        json!({
            "admin": { "address": address(self.admin) },
            // The longest there is: flushing is not part of a request.
            "stats_flush_interval": "299s",
            "static_resources": { "clusters": clusters, "listeners": [self.listener()] },
        })
    }

    fn listener(&self) -> Value {
        let filters: Vec<_> = self.filters.iter().cloned().chain([filters::router()]).collect();
        let manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "bench",
            "route_config": { "name": "bench", "virtual_hosts": [self.virtual_host()] },
            "http_filters": filters,
            // As the control plane's listeners have it.
            "use_remote_address": true,
            "normalize_path": true,
            "merge_slashes": true,
        });
        json!({
            "name": "bench",
            "address": address(self.listener),
            "filter_chains": [{ "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }] }],
        })
    }

    /// Envoy tries routes one after the other. The one that requests take is the first, so that a case with many
    /// routes shows what the filter makes of them, and not what Envoy does.
    fn virtual_host(&self) -> Value {
        let route = |(index, name): (usize, &String)| {
            json!({
                "name": name,
                "match": { "path": route_path(index) },
                "route": { "cluster": UPSTREAM },
            })
        };
        let routes: Vec<_> = self.routes.iter().enumerate().map(route).collect();
        json!({ "name": "bench", "domains": ["*"], "routes": routes })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Http {
    One,
    Two,
}

fn cluster(name: &str, endpoint: SocketAddr, http: Http) -> Value {
    let endpoint = json!({ "endpoint": { "address": address(endpoint) } });
    let mut cluster = json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] },
    });
    if let (Http::Two, Some(fields)) = (http, cluster.as_object_mut()) {
        let options = json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": { "http2_protocol_options": {} },
        } });
        fields.insert("typed_extension_protocol_options".to_owned(), options);
    }
    cluster
}

fn address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}
