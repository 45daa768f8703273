//! Attachment of kinds with a list `to`, such as Timeouts: for each destination, the entries that concern it, merged.

use postern_base::diagnostic::quote;
use postern_model::{
    CircuitBreaker, Diagnostic, HealthCheck, HealthChecking, Outbound, Probe, Protocol, Resource, Retries, Retry,
    Route, Service, TargetRef, Timeout,
};
use serde_json::{Map, Value as Json};

use super::{
    merge::{Fields, merge},
    scope::Scope,
};

/// What the resources of a kind come to for a destination, with the origins.
#[derive(Debug)]
pub struct Effective<'a, T: Outbound> {
    /// The merged fields.
    pub conf: T::Conf,
    /// The entries that they are merged from, by priority: a resource, and an index in its `spec.to`.
    pub parts: Vec<(&'a Resource<T>, usize)>,
    /// The part that each field comes from.
    pub fields: Fields,
}

impl<T: Outbound> Effective<'_, T> {
    /// Whether an entry with `override: true` is among the parts, so that it precedes what the destination itself says.
    pub fn overrides(&self) -> bool {
        self.parts.first().is_some_and(|(resource, _)| resource.spec.overrides())
    }

    /// An error at a field, where its value is written.
    fn diagnose(&self, field: &str, message: String) -> Option<Diagnostic> {
        let (resource, entry) = self.parts.get(self.fields.provider(field)?.by)?;
        Some(resource.diagnose(&format!("spec.to[{entry}].{field}"), message))
    }

    /// The value of a merged field. Null if none sets it.
    fn value(&self, field: &str) -> Json {
        let conf = serde_json::to_value(&self.conf).unwrap_or_default();
        field.split('.').try_fold(conf, |value, name| value.get(name).cloned()).unwrap_or_default()
    }
}

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

fn effective<'a, T: Outbound>(
    attached: &[&'a Resource<T>],
    concerns: impl Fn(&Resource<T>, &TargetRef) -> bool,
) -> Effective<'a, T> {
    let mut parts = Vec::new();
    for resource in attached {
        let entries = resource.spec.to().iter().enumerate();
        parts.extend(
            entries.filter(|(_, entry)| concerns(resource, &entry.target_ref)).map(|(entry, _)| (*resource, entry)),
        );
    }
    let confs = parts.iter().enumerate().map(|(index, (resource, entry))| (index, conf(resource, *entry)));
    let (merged, fields) = merge(T::CONF, confs);
    // Merging field by field keeps the type.
    let conf = serde_json::from_value(merged).unwrap_or_default();
    Effective { conf, parts, fields }
}

fn conf<T: Outbound>(resource: &Resource<T>, entry: usize) -> Map<String, Json> {
    let conf = resource.spec.to().get(entry).map(|entry| serde_json::to_value(&entry.conf));
    match conf {
        Some(Ok(Json::Object(fields))) => fields,
        _ => Map::new(),
    }
}

/// The errors of merged fields: those that contradict each other, those that Envoy has once for a route whose services
/// differ in them, and health checks that a service cannot answer.
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
