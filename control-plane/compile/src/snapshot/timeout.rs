//! `Timeout` → what Envoy calls it, in clusters and routes.

use envoy_types::pb::{envoy::config::route::v3::RouteAction, google::protobuf::Duration};
use postern_model::{Timeouts, unit};

use super::duration::duration;

/// Until a connection stands.
pub(super) fn connect(timeouts: &Timeouts) -> Option<Duration> {
    read(timeouts.connect_timeout.as_deref())
}

/// While a connection has no stream.
pub(super) fn idle(timeouts: &Timeouts) -> Option<Duration> {
    read(timeouts.http.as_ref()?.idle_timeout.as_deref())
}

/// What belongs to requests.
pub(super) fn set_on_route(route: &mut RouteAction, timeouts: &Timeouts) {
    let Some(http) = &timeouts.http else { return };
    route.timeout = read(http.request_timeout.as_deref()).or(route.timeout.take());
    route.idle_timeout = read(http.stream_idle_timeout.as_deref()).or(route.idle_timeout.take());
}

fn read(text: Option<&str>) -> Option<Duration> {
    text.and_then(unit::duration).map(duration)
}
