//! `postern bootstrap`: prints the configuration with which an Envoy starts as a node of this control plane.

use std::net::SocketAddr;

use clap::Args;
use postern_deliver::node_cache::Address;
use serde_json::{Map, Value, json};

/// Who the node is, and where it gets everything from.
#[derive(Debug, Args)]
pub(super) struct Bootstrap {
    /// Which node it is: unique in the fleet
    #[arg(long)]
    id: String,
    /// The service that it belongs to
    #[arg(long, value_name = "NAME")]
    service: String,
    /// A tag that policies can select it by; more than once for more tags
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// The mesh that it belongs to; default: `default`
    #[arg(long)]
    mesh: Option<String>,
    /// Where the control plane serves xDS: an address or a DNS name, and the port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:18000", value_parser = host)]
    xds: Host,
    /// Where a node cache on the node's machine listens, to be asked instead: an address, or `unix:PATH`
    #[arg(long, value_name = "ADDRESS", conflicts_with = "xds")]
    node_cache: Option<Address>,
    /// Where the node's own admin interface listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    admin: SocketAddr,
    /// Ask for changes alone (delta xDS) instead of the whole state
    #[arg(long)]
    delta: bool,
    /// How large the heap of the node may grow, in MiB: it sheds load before
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..))]
    max_heap: u32,
    /// How many connections of callers the node holds at once
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
}

/// A host that Envoy connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Address(SocketAddr),
    Name { name: String, port: u16 },
}

impl Bootstrap {
    /// Prints the bootstrap as JSON, which is valid YAML too.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string_pretty(&self.document())?);
        Ok(())
    }

    fn document(&self) -> Value {
        let api = if self.delta { "DELTA_GRPC" } else { "GRPC" };
        let aggregated = json!({ "ads": {}, "resource_api_version": "V3" });
        let options = json!({
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {
                "http2_protocol_options": { "connection_keepalive": { "interval": "30s", "timeout": "5s" } },
            },
        });
        json!({
            "node": { "id": self.id, "cluster": self.service, "metadata": self.metadata() },
            // The admin interface must answer when callers use all connections.
            "admin": { "address": socket(self.admin), "ignore_global_conn_limit": true },
            "overload_manager": self.overload_manager(),
            "dynamic_resources": {
                "ads_config": {
                    "api_type": api,
                    "transport_api_version": "V3",
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": "postern" } }],
                },
                "cds_config": aggregated,
                "lds_config": aggregated,
            },
            "static_resources": {
                "clusters": [{
                    "name": "postern",
                    "type": self.discovery(),
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
                    },
                    "load_assignment": {
                        "cluster_name": "postern",
                        "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": self.server() } }] }],
                    },
                }],
            },
        })
    }

    /// How Envoy finds the address: a name is looked up again and again.
    fn discovery(&self) -> &'static str {
        match (&self.node_cache, &self.xds) {
            (None, Host::Name { .. }) => "STRICT_DNS",
            _ => "STATIC",
        }
    }

    /// Who is asked for everything.
    fn server(&self) -> Value {
        match &self.node_cache {
            None => match &self.xds {
                Host::Address(address) => socket(*address),
                Host::Name { name, port } => json!({ "socket_address": { "address": name, "port_value": port } }),
            },
            Some(Address::Tcp(address)) => socket(*address),
            Some(Address::Unix(path)) => json!({ "pipe": { "path": path } }),
        }
    }

    /// The node's resource limits and overload actions, the same as in `envoy-config/`.
    fn overload_manager(&self) -> Value {
        let heap = "envoy.resource_monitors.fixed_heap";
        let kind = |name: &str| format!("type.googleapis.com/envoy.extensions.resource_monitors.{name}");
        let above = |action: &str, value: f64| {
            json!({
                "name": format!("envoy.overload_actions.{action}"),
                "triggers": [{ "name": heap, "threshold": { "value": value } }],
            })
        };
        json!({
            "refresh_interval": "0.25s",
            // Only streams that buffer more than 1 MiB are reset.
            "buffer_factory_config": { "minimum_account_to_track_power_of_two": 20 },
            "resource_monitors": [
                {
                    "name": heap,
                    "typed_config": {
                        "@type": kind("fixed_heap.v3.FixedHeapConfig"),
                        "max_heap_size_bytes": u64::from(self.max_heap) << 20,
                    },
                },
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": kind("downstream_connections.v3.DownstreamConnectionsConfig"),
                        "max_active_downstream_connections": self.max_connections,
                    },
                },
            ],
            "actions": [
                {
                    "name": "envoy.overload_actions.reset_high_memory_stream",
                    "triggers": [{
                        "name": heap,
                        "scaled": { "scaling_threshold": 0.85, "saturation_threshold": 0.95 },
                    }],
                },
                above("shrink_heap", 0.9),
                above("stop_accepting_requests", 0.95),
                above("stop_accepting_connections", 0.98),
            ],
        })
    }

    fn metadata(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(mesh) = &self.mesh {
            metadata.insert("mesh".to_owned(), json!(mesh));
        }
        if !self.tags.is_empty() {
            let tags: Map<_, _> = self.tags.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            metadata.insert("tags".to_owned(), Value::Object(tags));
        }
        Value::Object(metadata)
    }
}

fn socket(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

fn host(text: &str) -> Result<Host, String> {
    if let Ok(address) = text.parse() {
        return Ok(Host::Address(address));
    }
    let wrong =
        || format!("expected an address or a DNS name, and a port, such as `postern.internal:18000`, found `{text}`");
    let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let is_label = |label: &str| {
        let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (1..=63).contains(&label.len()) && letters && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_name = name.len() <= 253 && name.strip_suffix('.').unwrap_or(name).split('.').all(is_label);
    // What consists of digits and dots alone is a wrong address, and no name.
    let is_address = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if port == 0 || !is_name || is_address { Err(wrong()) } else { Ok(Host::Name { name: name.to_owned(), port }) }
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not a tag such as `stage=canary`")),
    }
}
