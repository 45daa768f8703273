//! `Timeout`: time-outs of the calls that proxies make.

use postern_base::{diagnostic::Path, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    outbound::{Outbound, To},
    report::Report,
    target_ref::{self, Reach, TargetRef, Targeted},
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Timeout",
    about: "How long proxies wait for the services that they call. Envoy's own defaults hold where none says.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Timeout"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "Who waits how long for whom."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Timeout
metadata: { name: patience }
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Mesh }
      connectTimeout: 2s
      http: { requestTimeout: 5s, streamIdleTimeout: 1h }
    - targetRef: { kind: Service, name: users }
      http: { idleTimeout: 0s }
";

const SPEC: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::TARGET, "Who waits."),
        kind::OVERRIDE,
        Field::required(
            "to",
            Kind::List { item: &Kind::Object(&TO), at_least: 1 },
            "For whom. Where several entries are for one destination, the first that sets a field counts.",
        ),
    ],
    exactly_one_of: &[],
};

const TO: Object = Object {
    fields: &[
        Field::required("targetRef", target_ref::DESTINATION, "Where the traffic goes."),
        CONNECT_TIMEOUT,
        HTTP_FIELD,
    ],
    exactly_one_of: &[],
};

/// The schema of an entry's fields that are merged.
const CONF: Object = Object { fields: &[CONNECT_TIMEOUT, HTTP_FIELD], exactly_one_of: &[] };

const CONNECT_TIMEOUT: Field =
    Field::optional("connectTimeout", Kind::Duration, "Until a connection stands. Not for a route.");
const HTTP_FIELD: Field = Field::optional("http", Kind::Object(&HTTP), "For HTTP.");

const HTTP: Object = Object {
    fields: &[
        Field::optional("requestTimeout", Kind::Timeout, "Until the whole response is there."),
        Field::optional("streamIdleTimeout", Kind::Timeout, "While nothing is sent on a stream."),
        Field::optional("idleTimeout", Kind::Timeout, "While a connection has no stream. Not for a route."),
    ],
    exactly_one_of: &[],
};

/// The `spec` of a `Timeout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timeout {
    /// The target that it is attached to.
    pub target_ref: TargetRef,
    /// `override`: whether more specific resources cannot change it.
    #[serde(default, rename = "override")]
    pub overrides: bool,
    /// Entries by destination: at least one.
    pub to: Vec<To<Timeouts>>,
}

/// Time-outs as users write them. An absent one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// The time-out until a connection is established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<String>,
    /// Time-outs of HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpTimeouts>,
}

/// Time-outs of HTTP. `0s` means none; an absent one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpTimeouts {
    /// The time-out until the whole response has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<String>,
    /// The time-out of a stream on which nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_idle_timeout: Option<String>,
    /// The time-out of a connection without streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<String>,
}

impl Targeted for Timeout {
    fn target_ref(&self) -> &TargetRef {
        &self.target_ref
    }

    fn overrides(&self) -> bool {
        self.overrides
    }
}

impl Outbound for Timeout {
    type Conf = Timeouts;

    const CONF: &'static Object = &CONF;
    const PER_ROUTE: &'static [&'static str] = &["http.requestTimeout", "http.streamIdleTimeout"];

    fn to(&self) -> &[To<Timeouts>] {
        &self.to
    }
}

impl Spec for Timeout {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::attached(self)
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &["to"], path, report);
        let of_a_route = is_route(spec.get("targetRef"));
        for (index, entry) in spec.get("to").map_or(&[][..], Node::items).iter().enumerate() {
            if of_a_route || is_route(entry.get("targetRef")) {
                no_connections(entry, &path.field("to").item(index), report);
            }
        }
    }
}

fn is_route(target: Option<&Node>) -> bool {
    let kind = target.and_then(|target| target.get("kind")).and_then(Node::text);
    matches!(kind, Some("MeshGatewayRoute" | "HTTPRoute"))
}

/// Reports time-outs of connections in an entry for a route. They would have no effect, because routes share the
/// connections of their services.
fn no_connections(entry: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    const MESSAGE: &str = "a route has no connections of its own";
    if let Some(node) = entry.get("connectTimeout") {
        report.error(node.at, &path.field("connectTimeout"), MESSAGE);
    }
    if let Some(node) = entry.get("http").and_then(|http| http.get("idleTimeout")) {
        report.error(node.at, &path.field("http").field("idleTimeout"), MESSAGE);
    }
}

#[cfg(test)]
mod tests {
    use crate::{File, read};

    fn check(target: &str, to: &str, conf: &str, expect: &[&str]) {
        let text = format!(
            "apiVersion: postern/v1\nkind: Timeout\nmetadata: {{name: t}}\nspec:\n  targetRef: {target}\n  to:\n  \
             - targetRef: {to}\n    {conf}\n"
        );
        let found = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        let found = found.err().map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(found.lines().collect::<Vec<_>>(), expect, "{target} {to}");
    }

    #[test]
    fn refuses_time_outs_of_connections_for_a_route_wherever_it_is_named() {
        let (mesh, route) = ("{kind: Mesh}", "{kind: HTTPRoute, name: r}");
        let connect = "f:8:21: Timeout `t`: spec.to[0].connectTimeout: a route has no connections of its own";
        for (target, to) in [(route, mesh), (mesh, route), ("{kind: MeshGatewayRoute, name: r}", mesh)] {
            check(target, to, "connectTimeout: 1s", &[connect]);
            let idle = "f:8:25: Timeout `t`: spec.to[0].http.idleTimeout: a route has no connections of its own";
            check(target, to, "http: {idleTimeout: 1s}", &[idle]);
            check(target, to, "http: {requestTimeout: 1s}", &[]);
        }
        check(mesh, mesh, "connectTimeout: 1s", &[]);
    }
}
