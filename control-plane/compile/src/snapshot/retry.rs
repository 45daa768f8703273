//! Projects retries to the retry policy of a route.

use envoy_types::pb::{
    envoy::{
        config::route::v3::{
            RetryPolicy,
            retry_policy::{RetryBackOff, RetryHostPredicate, retry_host_predicate::ConfigType},
        },
        extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate,
    },
    google::protobuf::UInt32Value,
};
use postern_model::{BackOff, Cause, HostSelection, Retries, Retrying, unit};

use super::{any, duration::duration};

/// The failures that are retried where nobody says which.
const USUAL: &[Cause] = &[Cause::GatewayError, Cause::ConnectFailure, Cause::RefusedStream];

/// The retry policy of a gateway's route that says itself when it is retried.
pub(super) fn own(retries: &Retries) -> RetryPolicy {
    RetryPolicy {
        retry_on: causes(&retries.on),
        num_retries: Some(UInt32Value { value: retries.attempts }),
        per_try_timeout: retries.per_try_timeout.map(duration),
        ..Default::default()
    }
}

/// The retry policy of merged Retries. `None` if nothing is to be retried.
pub(super) fn attached(retrying: &Retrying) -> Option<RetryPolicy> {
    if *retrying == Retrying::default() || retrying.num_retries == Some(0) {
        return None;
    }
    let statuses = retrying.retriable_status_codes.clone().unwrap_or_default();
    let usual = if statuses.is_empty() { USUAL } else { &[] };
    let mut retry_on = causes(retrying.retry_on.as_deref().unwrap_or(usual));
    if !statuses.is_empty() {
        // Envoy looks at the list of statuses only if it is told to.
        let comma = if retry_on.is_empty() { "" } else { "," };
        retry_on = format!("{retry_on}{comma}retriable-status-codes");
    }
    let selection = retrying.host_selection.as_ref();
    let policy = RetryPolicy {
        retry_on,
        num_retries: Some(UInt32Value { value: retrying.num_retries.unwrap_or(1) }),
        per_try_timeout: retrying.per_try_timeout.as_deref().and_then(unit::duration).map(duration),
        retry_back_off: retrying.back_off.as_ref().map(back_off),
        retriable_status_codes: statuses,
        ..Default::default()
    };
    Some(selection.map_or(policy.clone(), |selection| select_hosts(policy, selection)))
}

fn back_off(back_off: &BackOff) -> RetryBackOff {
    let base = back_off.base();
    RetryBackOff {
        base_interval: Some(duration(base)),
        // Envoy refuses a limit below the base. So does admission.
        max_interval: back_off.limit().map(|limit| duration(limit.max(base))),
    }
}

fn select_hosts(policy: RetryPolicy, selection: &HostSelection) -> RetryPolicy {
    let previous = || RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&PreviousHostsPredicate {}))),
    };
    let omits = selection.omit_previous_hosts == Some(true);
    RetryPolicy {
        retry_host_predicate: omits.then(previous).into_iter().collect(),
        host_selection_retry_max_attempts: selection.max_attempts.map(i64::from).unwrap_or_default(),
        ..policy
    }
}

fn causes(causes: &[Cause]) -> String {
    causes.iter().map(|cause| retry_on(*cause)).collect::<Vec<_>>().join(",")
}

/// Envoy's name for a cause of retries.
const fn retry_on(cause: Cause) -> &'static str {
    match cause {
        Cause::ServerError => "5xx",
        Cause::GatewayError => "gateway-error",
        Cause::ConnectFailure => "connect-failure",
        Cause::RefusedStream => "refused-stream",
        Cause::Reset => "reset",
        Cause::Retriable4xx => "retriable-4xx",
        Cause::Cancelled => "cancelled",
        Cause::DeadlineExceeded => "deadline-exceeded",
        Cause::Internal => "internal",
        Cause::ResourceExhausted => "resource-exhausted",
        Cause::Unavailable => "unavailable",
    }
}
