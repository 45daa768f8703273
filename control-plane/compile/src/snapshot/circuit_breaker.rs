//! Projects circuit breaking to the fields of clusters.

use envoy_types::pb::{
    envoy::config::cluster::v3::{CircuitBreakers, OutlierDetection, circuit_breakers::Thresholds},
    google::protobuf::{Duration, UInt32Value},
};
use postern_model::{CircuitBreaking, Consecutive, Detectors, unit};

use super::duration::duration;

/// The limits of a cluster. `None` means Envoy's defaults.
pub(super) fn thresholds(breaking: &CircuitBreaking) -> Option<CircuitBreakers> {
    let limits = breaking.connection_limits.as_ref()?;
    let thresholds = Thresholds {
        max_connections: number(limits.max_connections),
        max_pending_requests: number(limits.max_pending_requests),
        max_requests: number(limits.max_requests),
        max_retries: number(limits.max_retries),
        max_connection_pools: number(limits.max_connection_pools),
        ..Default::default()
    };
    Some(CircuitBreakers { thresholds: vec![thresholds], ..Default::default() })
}

/// When endpoints of a cluster are ejected. `None` means never.
pub(super) fn outlier_detection(breaking: &CircuitBreaking) -> Option<OutlierDetection> {
    let outliers = breaking.outlier_detection.as_ref().filter(|outliers| outliers.disabled != Some(true))?;
    let detectors = outliers.detectors.as_ref()?;
    let message = OutlierDetection {
        interval: length(outliers.interval.as_deref()),
        base_ejection_time: length(outliers.base_ejection_time.as_deref()),
        max_ejection_percent: number(outliers.max_ejection_percent),
        ..consecutive(detectors)
    };
    Some(statistical(message, detectors))
}

/// The detectors of failures in a row. Envoy enforces some that nobody asked for, so each is switched.
fn consecutive(detectors: &Detectors) -> OutlierDetection {
    let Detectors { total_failures, gateway_failures, local_origin_failures, .. } = detectors;
    let count = |detector: &Option<Consecutive>| number(detector.as_ref().and_then(|detector| detector.consecutive));
    OutlierDetection {
        consecutive_5xx: count(total_failures),
        enforcing_consecutive_5xx: switch(total_failures.is_some()),
        consecutive_gateway_failure: count(gateway_failures),
        enforcing_consecutive_gateway_failure: switch(gateway_failures.is_some()),
        // Without the split, failed connections count as answers of 503.
        split_external_local_origin_errors: local_origin_failures.is_some(),
        consecutive_local_origin_failure: count(local_origin_failures),
        enforcing_consecutive_local_origin_failure: switch(local_origin_failures.is_some()),
        ..Default::default()
    }
}

/// Adds the detectors that compare rates.
fn statistical(message: OutlierDetection, detectors: &Detectors) -> OutlierDetection {
    let Detectors { success_rate, failure_percentage, .. } = detectors;
    let (rate, percentage) = (success_rate.clone().unwrap_or_default(), failure_percentage.clone().unwrap_or_default());
    OutlierDetection {
        enforcing_success_rate: switch(success_rate.is_some()),
        success_rate_minimum_hosts: number(rate.minimum_hosts),
        success_rate_request_volume: number(rate.request_volume),
        // In thousandths.
        success_rate_stdev_factor: number(rate.standard_deviation_factor.map(|factor| factor.of_a_million / 10)),
        enforcing_local_origin_success_rate: switch(false),
        enforcing_failure_percentage: switch(failure_percentage.is_some()),
        failure_percentage_minimum_hosts: number(percentage.minimum_hosts),
        failure_percentage_request_volume: number(percentage.request_volume),
        failure_percentage_threshold: number(percentage.threshold),
        ..message
    }
}

/// The percentage of ejections that are carried out: all or none.
#[expect(clippy::unnecessary_wraps, reason = "the fields are messages of their own")]
const fn switch(on: bool) -> Option<UInt32Value> {
    Some(UInt32Value { value: if on { 100 } else { 0 } })
}

fn number(value: Option<u32>) -> Option<UInt32Value> {
    value.map(|value| UInt32Value { value })
}

fn length(text: Option<&str>) -> Option<Duration> {
    text.and_then(unit::duration).map(duration)
}
