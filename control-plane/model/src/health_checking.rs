//! `HealthCheck`: how proxies find out which endpoints of the services that they call can take requests.

use postern_base::{
    diagnostic::{Path, one_of},
    yaml::Node,
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{
    health_check::{
        GRPC_PROBE, HEALTHY, HTTP_PROBE, HealthCheck, INTERVAL, PROBES, SCHEMA as CONF, TCP_PROBE, TIMEOUT, UNHEALTHY,
    },
    kind::{self, Absence, KindSchema, Spec},
    outbound::{Outbound, To},
    report::Report,
    target_ref::{self, Reach, TargetRef, Targeted},
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "HealthCheck",
    about: "How proxies find out which endpoints of the services that they call can take requests. The `healthCheck` of a \
            Service is more specific: it holds alone for that service, unless a HealthCheck with `override: true` takes its \
            place.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["HealthCheck"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Who checks whom, and how."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: HealthCheck
metadata: { name: checks }
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Mesh }
      tcp: {}
      interval: 15s
    - targetRef: { kind: Service, name: users }
      http: { path: /healthz }
      unhealthyThreshold: 2
";

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::NODES, "Who checks."),
        kind::OVERRIDE,
        Field::required(
            "to",
            Kind::List { item: &Kind::Object(&TO), at_least: 1 },
            "Whom. Where several entries are for one service, the first that sets a field counts, and the first that names \
             `http`, `tcp` or `grpc` says which of them it is; `tcp` if none does.",
        ),
    ],
    exactly_one_of: &[],
};

const TO: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::DESTINATION_SERVICE, "The service that is checked."),
        HTTP_PROBE,
        TCP_PROBE,
        GRPC_PROBE,
        INTERVAL,
        TIMEOUT,
        UNHEALTHY,
        HEALTHY,
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `HealthCheck`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthChecking {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Entries by destination: at least one.
    pub to: Vec<To<CheckFields>>,
}

/// Fields of a [`HealthCheck`], as users write them. An absent one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CheckFields(Map<String, Json>);

impl CheckFields {
    /// The check, with defaults for what is absent. `None` if nothing is there.
    pub fn complete(&self) -> Option<HealthCheck> {
        let mut fields = self.0.clone();
        if fields.is_empty() {
            return None;
        }
        if !PROBES.iter().any(|probe| fields.contains_key(*probe)) {
            fields.insert("tcp".to_owned(), json!({}));
        }
        // Merging field by field keeps the type.
        serde_json::from_value(Json::Object(fields)).ok()
    }
}

impl Targeted for HealthChecking {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Outbound for HealthChecking {
    type Conf = CheckFields;

    const CONF: &'static Object = &CONF;
    const PER_ROUTE: &'static [&'static str] = &[];

    fn to(&self) -> &[To<CheckFields>] {
        &self.to
    }
}

impl Spec for HealthChecking {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &["to"], path, report);
        for (index, entry) in spec.get("to").map_or(&[][..], Node::items).iter().enumerate() {
            if PROBES.iter().filter(|probe| entry.get(probe).is_some()).count() > 1 {
                report.error(entry.at, &path.field("to").item(index), format!("expected at most {}", one_of(PROBES)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{File, Probe, read};

    fn checks(entry: &str) -> Result<Option<HealthCheck>, String> {
        let text = format!(
            "apiVersion: postern/v1\nkind: HealthCheck\nmetadata: {{name: h}}\nspec:\n  targetRef: {{kind: Mesh}}\n  to:\n  \
             - {{targetRef: {{kind: Mesh}}, {entry}}}\n"
        );
        let bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        bundle.map(|bundle| bundle.health_checks[0].spec.to[0].conf.complete()).map_err(|errors| errors.to_string())
    }

    #[test]
    fn completes_what_is_left_out() {
        let check = checks("interval: 3s").unwrap().unwrap();
        assert_eq!((check.probe, check.interval), (Probe::Tcp {}, Duration::from_secs(3)));
        assert_eq!((check.unhealthy_threshold, check.healthy_threshold), (3, 2));
        let check = checks("http: {path: /up}, healthyThreshold: 9").unwrap().unwrap();
        assert_eq!((check.probe, check.healthy_threshold), (Probe::Http { path: "/up".to_owned(), host: None }, 9));
        assert_eq!(checks("").unwrap(), None);
    }

    #[test]
    fn refuses_two_probes() {
        let expect = "f:7:5: HealthCheck `h`: spec.to[0]: expected at most one of `http`, `tcp`, `grpc`";
        assert_eq!(checks("tcp: {}, http: {path: /up}"), Err(expect.to_owned()));
    }
}
