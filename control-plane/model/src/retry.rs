//! `Retry`: when proxies send a failed request once more.

use std::time::Duration;

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    outbound::{Outbound, To},
    report::Report,
    route::{CAUSES, Cause},
    target_ref::{self, Reach, TargetRef, Targeted},
    unit,
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Retry",
    about: "When proxies send a failed request once more. The `retries` of a Gateway's route are more specific: they hold \
            alone for that route, unless a Retry with `override: true` takes their place.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Retry"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Who tries again, and when."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Retry
metadata: { name: persistence }
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Mesh }
      numRetries: 2
      retryOn: [connectFailure, refusedStream]
      backOff: { baseInterval: 25ms, maxInterval: 250ms }
    - targetRef: { kind: Service, name: users }
      perTryTimeout: 500ms
      retriableStatusCodes: [503]
      hostSelection: { omitPreviousHosts: true, maxAttempts: 3 }
";

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::TARGET, "Who tries again."),
        kind::OVERRIDE,
        Field::required(
            "to",
            Kind::List { item: &Kind::Object(&TO), at_least: 1 },
            "With whom. Where several entries are for one destination, the first that sets a field counts. The services of \
             one route must agree, since Envoy has one retry policy for a route.",
        ),
    ],
    exactly_one_of: &[],
};

const TO: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::DESTINATION, "Where the traffic goes."),
        NUM_RETRIES,
        PER_TRY_TIMEOUT,
        BACK_OFF,
        RETRY_ON,
        STATUS_CODES,
        HOST_SELECTION,
    ],
    exactly_one_of: &[],
};

const CONF: Object = Object {
    fields: &[NUM_RETRIES, PER_TRY_TIMEOUT, BACK_OFF, RETRY_ON, STATUS_CODES, HOST_SELECTION],
    exactly_one_of: &[],
};

const NUM_RETRIES: Field = Field::optional(
    "numRetries",
    Kind::Integer { min: 0, max: 10 },
    "How often a request is sent once more at most; never if 0, once if left out.",
);
const PER_TRY_TIMEOUT: Field = Field::optional(
    "perTryTimeout",
    Kind::Timeout,
    "How long each attempt may take; as long as the whole request if left out.",
);
const BACK_OFF: Field =
    Field::optional("backOff", Kind::Object(&BACK_OFF_FIELDS), "How long is waited before another attempt.");
const RETRY_ON: Field = Field::optional(
    "retryOn",
    Kind::List { item: &Kind::Choice(CAUSES), at_least: 1 },
    "What went wrong. If neither this nor `retriableStatusCodes` is there: `gatewayError`, `connectFailure` and \
     `refusedStream`.",
);
const STATUS_CODES: Field = Field::optional(
    "retriableStatusCodes",
    Kind::List { item: &Kind::Integer { min: 100, max: 599 }, at_least: 1 },
    "Statuses that are retried too.",
);
const HOST_SELECTION: Field =
    Field::optional("hostSelection", Kind::Object(&HOST_SELECTION_FIELDS), "Which endpoint gets another attempt.");

const BACK_OFF_FIELDS: Object = Object {
    fields: &[
        Field::optional(
            "baseInterval",
            Kind::Duration,
            "The base of the exponential back-off, which is random; 25 ms if left out.",
        ),
        Field::optional("maxInterval", Kind::Duration, "Its limit; 10 times the base if left out."),
    ],
    exactly_one_of: &[],
};

const HOST_SELECTION_FIELDS: Object = Object {
    fields: &[
        Field::optional(
            "omitPreviousHosts",
            Kind::Boolean,
            "Whether another endpoint is preferred to one that failed.",
        ),
        Field::optional(
            "maxAttempts",
            Kind::Integer { min: 1, max: 100 },
            "How often an endpoint is drawn before one that failed is taken after all; once if left out.",
        ),
    ],
    exactly_one_of: &[],
};

/// Envoy's default for `baseInterval`.
const BASE_INTERVAL: Duration = Duration::from_millis(25);

/// The `spec` of a `Retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retry {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Entries by destination: at least one.
    pub to: Vec<To<Retrying>>,
}

/// When a request is sent once more. An absent field changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retrying {
    /// The largest number of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_retries: Option<u32>,
    /// The time-out of each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<String>,
    /// The time between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off: Option<BackOff>,
    /// The failures that are retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<Vec<Cause>>,
    /// Statuses that are retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retriable_status_codes: Option<Vec<u32>>,
    /// Which endpoint gets a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_selection: Option<HostSelection>,
}

/// The time between attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackOff {
    /// The base of the exponential back-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_interval: Option<String>,
    /// Its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_interval: Option<String>,
}

impl BackOff {
    /// The base interval.
    pub fn base(&self) -> Duration {
        self.base_interval.as_deref().and_then(unit::duration).unwrap_or(BASE_INTERVAL)
    }

    /// The limit, if there is one.
    pub fn limit(&self) -> Option<Duration> {
        self.max_interval.as_deref().and_then(unit::duration)
    }
}

/// Which endpoint gets a retry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSelection {
    /// Whether endpoints that failed are avoided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omit_previous_hosts: Option<bool>,
    /// The number of draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

impl Targeted for Retry {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Outbound for Retry {
    type Conf = Retrying;

    const CONF: &'static Object = &CONF;
    const PER_ROUTE: &'static [&'static str] =
        &["numRetries", "perTryTimeout", "backOff", "retryOn", "retriableStatusCodes", "hostSelection"];

    fn to(&self) -> &[To<Retrying>] {
        &self.to
    }

    /// The two intervals may come from two resources, so they are compared when these are merged.
    fn contradiction(conf: &Retrying) -> Option<(&'static str, String)> {
        let back_off = conf.back_off.as_ref()?;
        let (base, limit) = (back_off.base(), back_off.limit()?);
        let words = back_off.base_interval.as_deref().unwrap_or("25ms");
        let message = || format!("expected at least the base interval of `{words}`");
        (limit < base).then(|| ("backOff.maxInterval", message()))
    }
}

impl Spec for Retry {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &["to"], path, report);
    }
}
