//! `CircuitBreaker`: limits of the connections to services, and when an endpoint that fails is ejected.

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    outbound::{Outbound, To},
    report::Report,
    target_ref::{self, Reach, TargetRef, Targeted},
    unit::Percent,
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "CircuitBreaker",
    about: "How many connections and requests proxies have open to the services that they call, and which endpoints they \
            leave out for a while because they fail. Envoy's own defaults hold where none says. There is no `from`: Envoy \
            counts per upstream cluster, and callers have none.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["CircuitBreaker"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Who calls whom within which limits."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: CircuitBreaker
metadata: { name: bounds }
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Mesh }
      connectionLimits: { maxConnections: 512, maxPendingRequests: 64, maxRequests: 1024, maxRetries: 8 }
    - targetRef: { kind: Service, name: users }
      outlierDetection:
        interval: 5s
        baseEjectionTime: 30s
        maxEjectionPercent: 50
        detectors:
          totalFailures: { consecutive: 10 }
          gatewayFailures: { consecutive: 5 }
";

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::NODES, "Who calls."),
        kind::OVERRIDE,
        Field::required(
            "to",
            Kind::List { item: &Kind::Object(&TO), at_least: 1 },
            "Whom. Where several entries are for one service, the first that sets a field counts.",
        ),
    ],
    exactly_one_of: &[],
};

const TO: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::DESTINATION_SERVICE, "The service that is called."),
        CONNECTION_LIMITS,
        OUTLIER_DETECTION,
    ],
    exactly_one_of: &[],
};

const CONF: Object = Object { fields: &[CONNECTION_LIMITS, OUTLIER_DETECTION], exactly_one_of: &[] };

const CONNECTION_LIMITS: Field = Field::optional(
    "connectionLimits",
    Kind::Object(&LIMITS),
    "What one Envoy may have open to all endpoints of the service together. Requests past it are answered with 503.",
);
const OUTLIER_DETECTION: Field = Field::optional(
    "outlierDetection",
    Kind::Object(&OUTLIERS),
    "Which endpoints get no requests for a while because they failed. Only the detectors that are named eject.",
);

const COUNT: Kind = Kind::Integer { min: 1, max: u32::MAX as i64 };

const LIMITS: Object = Object {
    fields: &[
        Field::optional("maxConnections", COUNT, "Connections; 1024 in Envoy if left out."),
        Field::optional("maxPendingRequests", COUNT, "Requests that wait for a connection; 1024 if left out."),
        Field::optional("maxRequests", COUNT, "Requests under way, which limits HTTP/2; 1024 if left out."),
        Field::optional(
            "maxRetries",
            Kind::Integer { min: 0, max: u32::MAX as i64 },
            "Retries under way; 3 if left out.",
        ),
        Field::optional("maxConnectionPools", COUNT, "Connection pools; unlimited if left out."),
    ],
    exactly_one_of: &[],
};

const OUTLIERS: Object = Object {
    fields: &[
        Field::optional("disabled", Kind::Boolean, "Whether nothing is ejected, whatever less specific entries say."),
        Field::optional("interval", Kind::Duration, "The time between two sweeps; 10 s if left out."),
        Field::optional(
            "baseEjectionTime",
            Kind::Duration,
            "For how long, times the number of ejections so far; 30 s if left out.",
        ),
        Field::optional(
            "maxEjectionPercent",
            Kind::Integer { min: 0, max: 100 },
            "The share of endpoints that may be ejected at a time; 10 if left out.",
        ),
        Field::optional("detectors", Kind::Object(&DETECTORS), "What is counted."),
    ],
    exactly_one_of: &[],
};

const DETECTORS: Object = Object {
    fields: &[
        Field::optional(
            "totalFailures",
            Kind::Object(&CONSECUTIVE),
            "Answers of 5xx in a row. Connections that fail count too, unless `localOriginFailures` is there.",
        ),
        Field::optional("gatewayFailures", Kind::Object(&CONSECUTIVE), "Answers of 502, 503 or 504 in a row."),
        Field::optional(
            "localOriginFailures",
            Kind::Object(&CONSECUTIVE),
            "Connections that fail, time out or are reset, in a row, counted apart from answers.",
        ),
        Field::optional(
            "successRate",
            Kind::Object(&SUCCESS_RATE),
            "Endpoints whose rate of success is far below the others'.",
        ),
        Field::optional("failurePercentage", Kind::Object(&FAILURE_PERCENTAGE), "Endpoints that fail too often."),
    ],
    exactly_one_of: &[],
};

const CONSECUTIVE: Object = Object {
    fields: &[Field::optional("consecutive", COUNT, "How many in a row eject an endpoint; 5 if left out.")],
    exactly_one_of: &[],
};

const MINIMUM_HOSTS: Field =
    Field::optional("minimumHosts", COUNT, "How many endpoints must have had enough requests; 5 if left out.");

const SUCCESS_RATE: Object = Object {
    fields: &[
        MINIMUM_HOSTS,
        Field::optional(
            "requestVolume",
            COUNT,
            "How many requests in one interval make an endpoint count; 100 if left out.",
        ),
        Field::optional(
            "standardDeviationFactor",
            Kind::Percent,
            "How many standard deviations below the mean; 1.9 if left out. Three decimals count.",
        ),
    ],
    exactly_one_of: &[],
};

const FAILURE_PERCENTAGE: Object = Object {
    fields: &[
        MINIMUM_HOSTS,
        Field::optional(
            "requestVolume",
            COUNT,
            "How many requests in one interval make an endpoint count; 50 if left out.",
        ),
        Field::optional(
            "threshold",
            Kind::Integer { min: 1, max: 100 },
            "The percentage of failures that ejects; 85 if left out.",
        ),
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `CircuitBreaker`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CircuitBreaker {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Entries by destination: at least one.
    pub to: Vec<To<CircuitBreaking>>,
}

/// The limits for a service. An absent field changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreaking {
    /// Limits of connections and requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_limits: Option<ConnectionLimits>,
    /// When endpoints are ejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier_detection: Option<OutlierDetection>,
}

/// Limits of what one Envoy has open to a service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectionLimits {
    /// The largest number of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// The largest number of requests that wait for a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pending_requests: Option<u32>,
    /// The largest number of requests under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
    /// The largest number of retries under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// The largest number of connection pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connection_pools: Option<u32>,
}

/// When endpoints are ejected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutlierDetection {
    /// Whether nothing is ejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The interval between two sweeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// The duration of the first ejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ejection_time: Option<String>,
    /// The largest percentage of endpoints that are ejected at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ejection_percent: Option<u32>,
    /// What ejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectors: Option<Detectors>,
}

/// What ejects endpoints. An absent detector ejects none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Detectors {
    /// Answers of 5xx in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_failures: Option<Consecutive>,
    /// Answers of 502, 503 or 504 in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_failures: Option<Consecutive>,
    /// Failed connections in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_origin_failures: Option<Consecutive>,
    /// A rate of success far below that of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<SuccessRate>,
    /// A percentage of failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_percentage: Option<FailurePercentage>,
}

/// A number of failures in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consecutive {
    /// The number. `None` means Envoy's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive: Option<u32>,
}

/// The rate of success by which an endpoint is an outlier.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SuccessRate {
    /// The least number of endpoints with enough requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_hosts: Option<u32>,
    /// The least number of requests of an endpoint in an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_volume: Option<u32>,
    /// The distance from the mean, in standard deviations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_deviation_factor: Option<Percent>,
}

/// The percentage of failures that ejects an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailurePercentage {
    /// The least number of endpoints with enough requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_hosts: Option<u32>,
    /// The least number of requests of an endpoint in an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_volume: Option<u32>,
    /// The percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
}

impl Targeted for CircuitBreaker {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Outbound for CircuitBreaker {
    type Conf = CircuitBreaking;

    const CONF: &'static Object = &CONF;
    const PER_ROUTE: &'static [&'static str] = &[];

    fn to(&self) -> &[To<CircuitBreaking>] {
        &self.to
    }
}

impl Spec for CircuitBreaker {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &["to"], path, report);
    }
}

#[cfg(test)]
mod tests {
    use crate::{File, read};

    fn check(target: &str, to: &str, conf: &str, expect: &[&str]) {
        let text = format!(
            "apiVersion: postern/v1\nkind: CircuitBreaker\nmetadata: {{name: c}}\nspec:\n  targetRef: {target}\n  to:\n  \
             - targetRef: {to}\n    {conf}\n"
        );
        let found = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        let found = found.err().map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(found.lines().collect::<Vec<_>>(), expect, "{target} {to} {conf}");
    }

    #[test]
    fn is_for_nodes_and_whole_services() {
        let (mesh, route) = ("{kind: Mesh}", "{kind: HTTPRoute, name: r}");
        check(mesh, mesh, "connectionLimits: {maxRetries: 0}", &[]);
        check(
            route,
            mesh,
            "connectionLimits: {}",
            &["f:5:21: CircuitBreaker `c`: spec.targetRef.kind: expected one of `Mesh`, `MeshSubset`, `Service`, \
               `ServiceSubset`, `Proxy`, found `HTTPRoute`"],
        );
        check(
            mesh,
            route,
            "connectionLimits: {}",
            &[
                "f:7:23: CircuitBreaker `c`: spec.to[0].targetRef.kind: expected one of `Mesh`, `Service`, found `HTTPRoute`",
            ],
        );
    }

    #[test]
    fn refuses_what_envoy_refuses() {
        let check = |conf: &str, expect: &str| {
            let expect = format!("f:8:{expect}");
            check("{kind: Mesh}", "{kind: Mesh}", conf, &[&expect]);
        };
        check(
            "connectionLimits: {maxConnections: 0}",
            "40: CircuitBreaker `c`: spec.to[0].connectionLimits.maxConnections: expected a whole number from 1 to 4294967295, \
             found `0`",
        );
        check(
            "outlierDetection: {maxEjectionPercent: 101}",
            "44: CircuitBreaker `c`: spec.to[0].outlierDetection.maxEjectionPercent: expected a whole number from 0 to 100, \
             found `101`",
        );
        check(
            "outlierDetection: {interval: 0s}",
            "34: CircuitBreaker `c`: spec.to[0].outlierDetection.interval: expected a length of time such as `250ms`, `1s` or \
             `5m`, found `0s`",
        );
    }
}
