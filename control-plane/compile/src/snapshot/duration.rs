//! Durations in Envoy's messages.

use std::time::Duration;

use envoy_types::pb::google::protobuf::Duration as WireDuration;

/// A duration in Envoy's form. The model's durations always fit.
pub(super) fn duration(duration: Duration) -> WireDuration {
    WireDuration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
    }
}
