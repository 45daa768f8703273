//! What holds for calls of a route's services: time-outs, circuit breakers, retries and health checks, field by field.

use std::time::Duration;

use postern_compile::attach::{self, Destination, Effective, Fields, Scope};
use postern_model::{Gateway, HealthCheck, Level, Outbound, Resource, Retries, Route, Service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{FieldLine, OriginLine, OverLine, flatten, object, origin};

/// What holds for calls of one service of the route.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DestinationLine {
    /// The service.
    pub service: String,
    /// How long is waited for it.
    pub timeout: Vec<FieldLine>,
    /// How much it gets at a time, and when its endpoints are ejected.
    pub circuit_breaker: Vec<FieldLine>,
    /// When a request is sent once more.
    pub retry: Vec<FieldLine>,
    /// How its endpoints are checked.
    pub health_check: Vec<FieldLine>,
    /// The name by which the node itself reaches it, if this is the route for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_outbound: Vec<FieldLine>,
}

impl DestinationLine {
    /// The fields of each kind that has any, by the name of the kind.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &[FieldLine])> {
        let all = [
            ("Timeout", &self.timeout),
            ("CircuitBreaker", &self.circuit_breaker),
            ("Retry", &self.retry),
            ("HealthCheck", &self.health_check),
            ("VirtualOutbound", &self.virtual_outbound),
        ];
        all.into_iter().filter(|(_, fields)| !fields.is_empty()).map(|(kind, fields)| (kind, fields.as_slice()))
    }
}

/// A line for each service of a route of a gateway.
pub(super) fn lines(scope: &Scope<'_>, gateway: &Resource<Gateway>, route: &Route) -> Vec<DestinationLine> {
    let line = |Destination { service, timeout, circuit_breaker, retry, health_check }: Destination<'_>| {
        let own_retries = attach::own_retries(scope, route);
        let declared = scope.services.iter().find(|declared| declared.name == service);
        let own_check = declared.and_then(|declared| own_check(declared, &health_check));
        let named = declared.filter(|_| gateway.is_outbound());
        let named = named.map(|declared| attach::outbound_name(&scope.virtual_outbounds, declared));
        DestinationLine {
            service: service.to_owned(),
            timeout: merged(&timeout),
            circuit_breaker: merged(&circuit_breaker),
            retry: own_retries.map_or_else(|| merged(&retry), |own| retries_of(gateway, route, own)),
            health_check: own_check.unwrap_or_else(|| merged(&health_check)),
            virtual_outbound: named.map(|named| merged(&named)).unwrap_or_default(),
        }
    };
    attach::destinations(scope, route).into_iter().map(line).collect()
}

fn own_check<T: Outbound>(service: &Resource<Service>, attached: &Effective<'_, T>) -> Option<Vec<FieldLine>> {
    let own = service.spec.health_check.as_ref().filter(|_| !attached.overrides())?;
    Some(written(service, "spec.healthCheck", Level::Service, check_fields(own)))
}

fn retries_of(gateway: &Resource<Gateway>, route: &Route, own: &Retries) -> Vec<FieldLine> {
    let index = gateway.spec.routes.iter().position(|other| other.name == route.name).unwrap_or_default();
    written(gateway, &format!("spec.routes[{index}].retries"), Level::Route, retry_fields(own))
}

fn retry_fields(Retries { on, attempts, per_try_timeout }: &Retries) -> Json {
    json!({ "on": on, "attempts": attempts, "perTryTimeout": per_try_timeout.map(words) })
}

fn check_fields(check: &HealthCheck) -> Json {
    let HealthCheck { probe, interval, timeout, unhealthy_threshold, healthy_threshold } = check;
    let mut fields = object(probe);
    fields.extend(object(&json!({
        "interval": words(*interval),
        "timeout": words(*timeout),
        "unhealthyThreshold": unhealthy_threshold,
        "healthyThreshold": healthy_threshold,
    })));
    Json::Object(fields)
}

fn words(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// What a resource that is not attached says of its own, below a field.
fn written<T>(resource: &Resource<T>, below: &str, level: Level, fields: Json) -> Vec<FieldLine> {
    let line = |(field, value): (String, Json)| {
        let path = format!("{below}.{field}");
        let at = resource.diagnose(&path, "");
        let origin = OriginLine {
            resource: resource.label(),
            level,
            overrides: false,
            file: at.file,
            line: at.line,
            field: path,
        };
        FieldLine { field, value, origin, inherited: false, over: Vec::new() }
    };
    leaves(Json::Object(object(&fields))).into_iter().map(line).collect()
}

fn merged<T: Outbound>(effective: &Effective<'_, T>) -> Vec<FieldLine> {
    field_lines(conf(&effective.conf), &effective.fields, |part, field| {
        let (resource, entry) = effective.parts.get(part)?;
        let conf = conf(&resource.spec.to().get(*entry)?.conf);
        Some((origin(resource, &format!("spec.to[{entry}].{field}")), conf))
    })
}

/// What is traced at a node, field by field.
pub(super) fn traced(scope: &Scope<'_>) -> Vec<FieldLine> {
    let effective = attach::tracing(scope);
    field_lines(conf(&effective.conf), &effective.fields, |part, field| {
        let resource = effective.parts.get(part)?;
        Some((origin(resource, &format!("spec.{field}")), conf(&resource.spec.conf)))
    })
}

/// A line for each field of a merged value. `part` returns where a part writes a field, and all that the part says.
fn field_lines(
    merged: Json,
    fields: &Fields,
    part: impl Fn(usize, &str) -> Option<(OriginLine, Json)>,
) -> Vec<FieldLine> {
    let line = |(field, value): (String, Json)| {
        let provided = fields.provider(&field)?;
        let over = provided.over.iter().filter_map(|index| {
            let (origin, conf) = part(*index, &field)?;
            let value = leaves(conf).into_iter().find(|(name, _)| *name == field).map(|(_, value)| value);
            Some(OverLine { value: value.unwrap_or_default(), origin })
        });
        let (over, (origin, _)) = (over.collect(), part(provided.by, &field)?);
        Some(FieldLine { field, value, origin, inherited: false, over })
    };
    leaves(merged).into_iter().filter_map(line).collect()
}

fn conf(conf: &impl Serialize) -> Json {
    Json::Object(object(conf))
}

/// The leaves by path. An empty mapping, such as `tcp: {}`, is one.
fn leaves(value: Json) -> Vec<(String, Json)> {
    let mut found = Vec::new();
    let Json::Object(fields) = value else { return found };
    for (name, value) in fields {
        match value {
            Json::Object(inner) if inner.is_empty() => found.push((name, Json::Object(Map::new()))),
            value => flatten(name, value, &mut found),
        }
    }
    found
}
