//! Projects time-outs to the fields of clusters and routes.

use envoy_types::pb::{envoy::config::route::v3::RouteAction, google::protobuf::Duration};
use postern_model::{Timeouts, unit};

use super::duration::duration;

/// The connect time-out of a cluster.
pub(super) fn connect(timeouts: &Timeouts) -> Option<Duration> {
    read(timeouts.connect_timeout.as_deref())
}

/// The idle time-out of a cluster's connections.
pub(super) fn idle(timeouts: &Timeouts) -> Option<Duration> {
    read(timeouts.http.as_ref()?.idle_timeout.as_deref())
}

/// Sets the time-outs of requests on a route.
pub(super) fn set_on_route(route: &mut RouteAction, timeouts: &Timeouts) {
    let Some(http) = &timeouts.http else { return };
    route.timeout = read(http.request_timeout.as_deref()).or(route.timeout.take());
    route.idle_timeout = read(http.stream_idle_timeout.as_deref()).or(route.idle_timeout.take());
}

fn read(text: Option<&str>) -> Option<Duration> {
    text.and_then(unit::duration).map(duration)
}
