//! Attachment of kinds with a list `to`, such as Timeouts: for each destination, the entries that concern it, merged.

use postern_base::diagnostic::quote;
use postern_model::{
    CircuitBreaker, Diagnostic, HealthCheck, HealthChecking, Outbound, Probe, Protocol, Resource, Retries, Retry,
    Route, Service, TargetRef, Timeout,
};
use serde_json::Value as Json;

use super::{
    effective::{Effective, effective},
    scope::Scope,
};

/// All that is said of one destination of a route.
#[derive(Debug)]
pub struct Destination<'a> {
    /// The name of the service.
    pub service: &'a str,
    /// Time-outs.
    pub timeout: Effective<'a, Timeout>,
    /// Limits and ejection.
    pub circuit_breaker: Effective<'a, CircuitBreaker>,
    /// Retries, apart from those of the route itself.
    pub retry: Effective<'a, Retry>,
    /// Health checks, apart from that of the service itself.
    pub health_check: Effective<'a, HealthChecking>,
}

/// What is said of each service of a route, in the route's order.
pub fn destinations<'a>(scope: &Scope<'a>, route: &'a Route) -> Vec<Destination<'a>> {
    let services = route.backends.iter().map(|backend| backend.service.as_str());
    let of = |service| Destination {
        service,
        timeout: for_destination(&scope.timeouts, route, service),
        circuit_breaker: for_destination(&scope.circuit_breakers, route, service),
        retry: for_destination(&scope.retries, route, service),
        health_check: for_destination(&scope.health_checks, route, service),
    };
    services.map(of).collect()
}

/// What the resources of a kind come to for a service on any route.
pub fn for_service<'a, T: Outbound>(attached: &[&'a Resource<T>], service: &str) -> Effective<'a, T> {
    let selects = |target: &TargetRef| matches!(target, TargetRef::Mesh) || target.service() == Some(service);
    effective(attached, |resource, to| resource.spec.target_ref().route().is_none() && selects(to))
}

/// What the resources of a kind come to for a route as a whole: for the first service that gets requests of it. At
/// admission, all services of a route agree ([`faults`]).
pub fn for_route<'a, T: Outbound>(attached: &[&'a Resource<T>], route: &Route) -> Effective<'a, T> {
    for_destination(attached, route, receivers(route).next().unwrap_or_default())
}

fn for_destination<'a, T: Outbound>(attached: &[&'a Resource<T>], route: &Route, service: &str) -> Effective<'a, T> {
    let selects = |target: &TargetRef| match target {
        TargetRef::Mesh => true,
        target => target.route() == Some(&route.name) || target.service() == Some(service),
    };
    effective(attached, |resource, to| {
        resource.spec.target_ref().route().is_none_or(|target| target == route.name) && selects(to)
    })
}

/// The services that get requests of a route.
fn receivers(route: &Route) -> impl Iterator<Item = &str> {
    route.backends.iter().filter(|backend| backend.weight > 0).map(|backend| backend.service.as_str())
}

/// The errors of merged fields: those that contradict each other, those that Envoy has once for a route whose services
/// differ in them, health checks that a service cannot answer, and host names that services cannot have.
pub fn faults(scope: &Scope<'_>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for route in scope.gateways.iter().flat_map(|gateway| &gateway.spec.routes) {
        disagreements(&scope.timeouts, route, &mut found);
        // The route's own retries hold for all of its services.
        if own_retries(scope, route).is_none() {
            disagreements(&scope.retries, route, &mut found);
        }
    }
    found.extend(scope.services.iter().filter_map(|service| unanswerable(scope, service)));
    found.extend(scope.outbound_faults.iter().cloned());
    found
}

fn disagreements<T: Outbound>(attached: &[&Resource<T>], route: &Route, found: &mut Vec<Diagnostic>) {
    if attached.is_empty() {
        return;
    }
    let mut services = receivers(route);
    let Some(first) = services.next() else { return };
    let one = for_destination(attached, route, first);
    found.extend(contradiction(&one));
    for service in services {
        let other = for_destination(attached, route, service);
        found.extend(contradiction(&other));
        for field in T::PER_ROUTE {
            let (of_one, of_other) = (one.value(field), other.value(field));
            if of_one == of_other {
                continue;
            }
            let blamed = if of_other.is_null() { &one } else { &other };
            let (route, first, second) = (quote(&route.name), quote(first), quote(service));
            let message = format!(
                "Envoy has one for all services of route {route}, and there would be {} for {first} and {} for {second}",
                shown(&of_one),
                shown(&of_other)
            );
            found.extend(blamed.diagnose(field, message));
        }
    }
}

fn contradiction<T: Outbound>(effective: &Effective<'_, T>) -> Option<Diagnostic> {
    let (field, message) = T::contradiction(&effective.conf)?;
    effective.diagnose(field, message)
}

fn shown(value: &Json) -> String {
    match value {
        Json::Null => "none".to_owned(),
        Json::String(text) => quote(text),
        value => quote(&value.to_string()),
    }
}

fn unanswerable(scope: &Scope<'_>, service: &Resource<Service>) -> Option<Diagnostic> {
    let attached = for_service(&scope.health_checks, &service.name);
    let check = health_check(&service.spec, &attached)?;
    if !matches!(check.probe, Probe::Grpc { .. }) || service.spec.protocol == Protocol::Http2 {
        return None;
    }
    let message = format!("{} speaks HTTP/1.1: gRPC needs `protocol: grpc` or `http2`", service.label());
    attached.diagnose("grpc", message)
}

/// The retries that a route itself has, unless an attached Retry overrides them for one of its services.
pub fn own_retries<'r>(scope: &Scope<'_>, route: &'r Route) -> Option<&'r Retries> {
    let overridden = || receivers(route).any(|service| for_destination(&scope.retries, route, service).overrides());
    route.retries.as_ref().filter(|_| !overridden())
}

/// The health check of a service: its own, unless an attached one overrides it.
pub fn health_check(service: &Service, attached: &Effective<'_, HealthChecking>) -> Option<HealthCheck> {
    match &service.health_check {
        Some(own) if !attached.overrides() => Some(own.clone()),
        _ => attached.conf.complete(),
    }
}
