//! Active health checks of a service's endpoints.

use std::time::Duration;

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{report::Report, unit};

const THRESHOLD: Kind = Kind::Integer { min: 1, max: 100 };

/// The schema of `healthCheck`.
pub(super) const SCHEMA: Object = Object {
    fields: &[HTTP_PROBE, TCP_PROBE, GRPC_PROBE, INTERVAL, TIMEOUT, UNHEALTHY, HEALTHY],
    exactly_one_of: PROBES,
};

/// The fields that name what a check does, of which there is one.
pub(super) const PROBES: &[&str] = &["http", "tcp", "grpc"];
pub(super) const HTTP_PROBE: Field =
    Field::optional("http", Kind::Object(&HTTP), "A request that is answered with 200.");
pub(super) const TCP_PROBE: Field = Field::optional("tcp", Kind::Object(&TCP), "A connection that can be opened.");
pub(super) const GRPC_PROBE: Field =
    Field::optional("grpc", Kind::Object(&GRPC), "A call of `grpc.health.v1.Health`; the protocol must be HTTP/2.");
pub(super) const INTERVAL: Field =
    Field::optional("interval", Kind::Duration, "The time between two checks.").or("10s");
pub(super) const TIMEOUT: Field = Field::optional("timeout", Kind::Duration, "How long a check may take.").or("2s");
pub(super) const UNHEALTHY: Field =
    Field::optional("unhealthyThreshold", THRESHOLD, "The failed checks in a row after which it gets no requests.")
        .or("3");
pub(super) const HEALTHY: Field =
    Field::optional("healthyThreshold", THRESHOLD, "The passed checks in a row after which it gets them again.")
        .or("2");

const HTTP: Object = Object {
    fields: &[
        Field::required("path", Kind::Path, "The path to ask for."),
        Field::optional("host", Kind::Address, "The host to ask for; the service's name if left out."),
    ],
    exactly_one_of: &[],
};

const TCP: Object = Object { fields: &[], exactly_one_of: &[] };

const GRPC: Object = Object {
    fields: &[Field::optional("service", Kind::Text, "The gRPC service to ask about; the whole server if left out.")],
    exactly_one_of: &[],
};

/// How Envoy checks which endpoints are healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct HealthCheck {
    /// What a check does.
    pub probe: Probe,
    /// The interval between two checks.
    pub interval: Duration,
    /// The time-out of a check.
    pub timeout: Duration,
    /// The number of consecutive failures that makes an endpoint unhealthy.
    pub unhealthy_threshold: u32,
    /// The number of consecutive successes that makes it healthy again.
    pub healthy_threshold: u32,
}

/// What a check does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Probe {
    /// Sends an HTTP request, which must be answered with 200.
    Http {
        /// The path of the request.
        path: String,
        /// The host of the request. `None` means the service's name.
        host: Option<String>,
    },
    /// Opens a connection.
    Tcp {},
    /// Calls `grpc.health.v1.Health`.
    Grpc {
        /// The service to ask for. Empty means the whole server.
        #[serde(default)]
        service: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(flatten)]
    probe: Probe,
    #[serde(default = "interval", deserialize_with = "unit::deserialize_duration")]
    interval: Duration,
    #[serde(default = "timeout", deserialize_with = "unit::deserialize_duration")]
    timeout: Duration,
    #[serde(default = "three")]
    unhealthy_threshold: u32,
    #[serde(default = "two")]
    healthy_threshold: u32,
}

impl From<Written> for HealthCheck {
    fn from(Written { probe, interval, timeout, unhealthy_threshold, healthy_threshold }: Written) -> Self {
        Self { probe, interval, timeout, unhealthy_threshold, healthy_threshold }
    }
}

const fn interval() -> Duration {
    Duration::from_secs(10)
}

const fn timeout() -> Duration {
    Duration::from_secs(2)
}

const fn two() -> u32 {
    2
}

const fn three() -> u32 {
    3
}

/// Reports what the schema cannot express.
pub(super) fn rules(check: &Node, protocol: &str, path: &Path<'_>, report: &mut Report<'_>) {
    if let Some(grpc) = check.get("grpc")
        && protocol == "http1"
    {
        report.error(grpc.at, &path.field("grpc"), "gRPC needs `protocol: grpc` or `http2`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, read};

    fn read_check(protocol: &str, check: &str) -> Result<HealthCheck, String> {
        let text = format!(
            "apiVersion: postern/v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{endpoints: [{{address: a, port: 1}}], \
             protocol: {protocol},\n healthCheck: {check}}}"
        );
        let bundle = read(&[File { name: "s".to_owned(), bytes: text.into_bytes() }]);
        bundle
            .map(|mut bundle| bundle.services.remove(0).spec.health_check.clone().unwrap())
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn fills_in_defaults() {
        let expect = HealthCheck {
            probe: Probe::Tcp {},
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            unhealthy_threshold: 3,
            healthy_threshold: 2,
        };
        assert_eq!(read_check("http1", "{tcp: {}}"), Ok(expect));
    }

    #[test]
    fn reads_every_probe() {
        let probe = |protocol, text| read_check(protocol, text).map(|check| check.probe);
        let http = Probe::Http { path: "/up".to_owned(), host: Some("a".to_owned()) };
        assert_eq!(probe("http1", "{http: {path: /up, host: a}}"), Ok(http));
        assert_eq!(probe("grpc", "{grpc: {}}"), Ok(Probe::Grpc { service: String::new() }));
        assert_eq!(probe("http2", "{grpc: {service: x.Y}}"), Ok(Probe::Grpc { service: "x.Y".to_owned() }));
    }

    #[test]
    fn reports_what_does_not_fit() {
        let fails = |check: &str, expect: &[&str]| {
            let errors = read_check("http1", check).unwrap_err();
            assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
        };
        let place = "s:5:15: Service `s`: spec.healthCheck";
        fails("{interval: 1s}", &[&format!("{place}: expected exactly one of `http`, `tcp`, `grpc`")]);
        fails(
            "{grpc: {}, timeout: 0s, healthyThreshold: 0}",
            &[
                "s:5:22: Service `s`: spec.healthCheck.grpc: gRPC needs `protocol: grpc` or `http2`",
                "s:5:35: Service `s`: spec.healthCheck.timeout: expected a length of time such as `250ms`, `1s` or `5m`, \
                 found `0s`",
                "s:5:57: Service `s`: spec.healthCheck.healthyThreshold: expected a whole number from 1 to 100, found `0`",
            ],
        );
    }
}
