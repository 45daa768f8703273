//! `Timeout` → what Envoy calls it, in clusters and routes.

use envoy_types::pb::{
    envoy::{
        config::{cluster::v3::Cluster, core::v3::HttpProtocolOptions as Common, route::v3::RouteAction},
        extensions::upstreams::http::v3::{
            HttpProtocolOptions,
            http_protocol_options::{
                ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
            },
        },
    },
    google::protobuf::Duration,
};

use super::any;
use crate::model::{Timeouts, unit};

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// What belongs to connections.
pub(super) fn set_on_cluster(cluster: &mut Cluster, timeouts: &Timeouts) {
    if let Some(timeout) = timeouts.connect_timeout.as_deref().and_then(duration) {
        cluster.connect_timeout = Some(timeout);
    }
    let idle = timeouts.http.as_ref().and_then(|http| http.idle_timeout.as_deref()).and_then(duration);
    if let Some(idle) = idle {
        let protocol =
            ExplicitHttpConfig { protocol_config: Some(ProtocolConfig::HttpProtocolOptions(Default::default())) };
        let options = HttpProtocolOptions {
            common_http_protocol_options: Some(Common { idle_timeout: Some(idle), ..Default::default() }),
            upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(protocol)),
            ..Default::default()
        };
        cluster.typed_extension_protocol_options.insert(HTTP_OPTIONS.to_owned(), any(&options));
    }
}

/// What belongs to requests.
pub(super) fn set_on_route(route: &mut RouteAction, timeouts: &Timeouts) {
    let Some(http) = &timeouts.http else { return };
    if let Some(timeout) = http.request_timeout.as_deref().and_then(duration) {
        route.timeout = Some(timeout);
    }
    if let Some(timeout) = http.stream_idle_timeout.as_deref().and_then(duration) {
        route.idle_timeout = Some(timeout);
    }
}

fn duration(text: &str) -> Option<Duration> {
    let time = unit::duration(text)?;
    Some(Duration { seconds: i64::try_from(time.as_secs()).ok()?, nanos: i32::try_from(time.subsec_nanos()).ok()? })
}
