//! A route of a `Gateway`: the requests that it matches, and their services.

use std::time::Duration;

use postern_base::{
    diagnostic::Path,
    yaml::{Node, Value},
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    edge::PathParameters,
    header_match::HeaderMatch,
    path_text::PathText,
    public::{self, Public},
    report::Report,
    request_match::{self, CookieMatch, QueryMatch},
    unit,
};

/// The schema of a route.
pub(super) const SCHEMA: Object = Object {
    fields: &[
        Field::required("name", Kind::RouteName, "The name, unique among the routes of all gateways of the mesh."),
        Field::optional("hosts", Kind::List { item: &Kind::Host, at_least: 1 }, "The hosts; any if left out."),
        Field::optional("match", Kind::Object(&MATCH), "What a request must be like; anything if left out."),
        Field::optional("service", Kind::Name, "The Service that gets the requests."),
        Field::optional(
            "services",
            Kind::List { item: &Kind::Object(&BACKEND), at_least: 1 },
            "Several Services, each of which gets its share of the requests.",
        ),
        Field::optional("retries", Kind::Object(&RETRIES), "When a request is sent once more; never if left out."),
        Field::optional("public", public::PUBLIC, "The route is meant to be open: it needs no authentication."),
    ],
    exactly_one_of: &["service", "services"],
};

const MATCH: Object = Object {
    fields: &[
        Field::optional("path", Kind::Object(&PATH), "The path, without the query; any if left out."),
        Field::optional("methods", Kind::List { item: &Kind::Method, at_least: 1 }, "The methods; any if left out."),
        Field::optional(
            "headers",
            Kind::List { item: &Kind::Object(&HEADER), at_least: 1 },
            "The headers, all of which must fit; any if left out.",
        ),
        Field::optional(
            "query",
            Kind::List { item: &Kind::Object(&request_match::QUERY), at_least: 1 },
            "The query parameters, all of which must fit; any if left out.",
        ),
        Field::optional(
            "cookies",
            Kind::List { item: &Kind::Object(&request_match::COOKIE), at_least: 1 },
            "The cookies, all of which must fit; any if left out.",
        ),
    ],
    exactly_one_of: &[],
};

const PATH: Object = Object {
    fields: &[
        Field::optional(
            "exact",
            Kind::Path,
            "The whole path. An escape is the same as what it stands for: `/@me` is `/%40me`.",
        ),
        Field::optional(
            "prefix",
            Kind::Path,
            "The start of the path, up to the end of a segment; escapes as for `exact`.",
        ),
        Field::optional(
            "template",
            Kind::PathTemplate,
            "The whole path: `{name}` stands for one segment, and as the last one `{name=**}` for all the rest.",
        ),
        Field::optional(
            "regex",
            Kind::Regex,
            "A regular expression for the whole path as Envoy normalizes it: escapes of letters, digits and `-._~` are \
             undone, all others stay as they came. A literal `@` does not match `%40`.",
        ),
    ],
    exactly_one_of: &["exact", "prefix", "template", "regex"],
};

const HEADER: Object = Object {
    fields: &[
        Field::required("name", Kind::HeaderName, "The header."),
        Field::optional("exact", Kind::HeaderValue, "Its value."),
        Field::optional("present", Kind::Boolean, "Whether it is there."),
        Field::optional("regex", Kind::Regex, "A regular expression for its whole value."),
    ],
    exactly_one_of: &["exact", "present", "regex"],
};

const BACKEND: Object = Object {
    fields: &[
        Field::required("service", Kind::Name, "The Service."),
        Field::optional("weight", Kind::Integer { min: 0, max: 1_000_000 }, "Its share, in proportion to the others'.")
            .or("1"),
    ],
    exactly_one_of: &[],
};

const RETRIES: Object = Object {
    fields: &[
        Field::required(
            "on",
            Kind::List { item: &Kind::Choice(CAUSES), at_least: 1 },
            "What went wrong: an answer, its absence, or the status of a gRPC answer.",
        ),
        Field::optional(
            "attempts",
            Kind::Integer { min: 1, max: 10 },
            "How often the request is sent once more at most.",
        )
        .or("1"),
        Field::optional(
            "perTryTimeout",
            Kind::Duration,
            "How long each attempt may take; as long as the whole request if left out.",
        ),
    ],
    exactly_one_of: &[],
};

/// The names of [`Cause`]'s variants.
pub(super) const CAUSES: &[&str] = &[
    "5xx",
    "gatewayError",
    "connectFailure",
    "refusedStream",
    "reset",
    "retriable4xx",
    "cancelled",
    "deadlineExceeded",
    "internal",
    "resourceExhausted",
    "unavailable",
];

/// A route to one service, or to several by weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Route {
    /// The name, unique in all gateways of the mesh.
    pub name: String,
    /// Host names, `*.` wildcards or `*`, in lower case: at least one.
    pub hosts: Vec<String>,
    /// The conditions on a request, apart from its host.
    pub matching: Match,
    /// The services: at least one, and at least one with a weight above 0.
    pub backends: Vec<Backend>,
    /// When a failed request is retried. `None` means never.
    pub retries: Option<Retries>,
    /// The declaration that it needs no authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<Public>,
}

impl Route {
    /// Whether a service gets requests of the route.
    pub fn goes_to(&self, service: Option<&str>) -> bool {
        self.backends.iter().any(|backend| Some(backend.service.as_str()) == service)
    }

    /// The names of the services.
    pub fn services(&self) -> Vec<String> {
        self.backends.iter().map(|backend| backend.service.clone()).collect()
    }
}

/// A service and its weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// The name of an existing Service.
    pub service: String,
    /// The weight, relative to those of the other services.
    #[serde(default = "one")]
    pub weight: u32,
}

/// The conditions on a request, apart from its host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// The condition on the path.
    #[serde(default)]
    pub path: PathMatch,
    /// The methods. Empty means any.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Conditions on headers, all of which must be met.
    #[serde(default)]
    pub headers: Vec<HeaderMatch>,
    /// Conditions on query parameters, all of which must be met.
    #[serde(default)]
    pub query: Vec<QueryMatch>,
    /// Conditions on cookies, all of which must be met.
    #[serde(default)]
    pub cookies: Vec<CookieMatch>,
}

/// A condition on the path without the query.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PathMatch {
    /// Equals the whole path.
    Exact(String),
    /// Is a prefix of the path.
    Prefix(String),
    /// Matches the whole path, with placeholders for segments.
    Template(String),
    /// A regular expression that matches the whole path.
    Regex(String),
}

impl Default for PathMatch {
    /// Matches any path.
    fn default() -> Self {
        Self::Prefix("/".to_owned())
    }
}

/// When a failed request is retried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retries {
    /// The failures that are retried.
    pub on: Vec<Cause>,
    /// The largest number of retries.
    #[serde(default = "one")]
    pub attempts: u32,
    /// The time-out of each attempt.
    #[serde(default, deserialize_with = "unit::deserialize_some_duration")]
    pub per_try_timeout: Option<Duration>,
}

/// A failure of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The response was a 5xx, or there was none.
    #[serde(rename = "5xx")]
    ServerError,
    /// The response was a 502, 503 or 504, or there was none.
    GatewayError,
    /// The connection could not be established.
    ConnectFailure,
    /// The stream was refused before it was processed.
    RefusedStream,
    /// The stream or connection was reset.
    Reset,
    /// The response was a 409.
    #[serde(rename = "retriable4xx")]
    Retriable4xx,
    /// gRPC status `CANCELLED`.
    Cancelled,
    /// gRPC status `DEADLINE_EXCEEDED`.
    DeadlineExceeded,
    /// gRPC status `INTERNAL`.
    Internal,
    /// gRPC status `RESOURCE_EXHAUSTED`.
    ResourceExhausted,
    /// gRPC status `UNAVAILABLE`.
    Unavailable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default = "any_host", deserialize_with = "lower_case")]
    hosts: Vec<String>,
    #[serde(default, rename = "match")]
    matching: Match,
    service: Option<String>,
    #[serde(default)]
    services: Vec<Backend>,
    retries: Option<Retries>,
    public: Option<Public>,
}

impl From<Written> for Route {
    fn from(Written { name, hosts, matching, service, services, retries, public }: Written) -> Self {
        let only = service.map(|service| Backend { service, weight: one() });
        Self { name, hosts, matching, backends: only.into_iter().chain(services).collect(), retries, public }
    }
}

const fn one() -> u32 {
    1
}

fn any_host() -> Vec<String> {
    vec!["*".to_owned()]
}

fn lower_case<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::<String>::deserialize(deserializer)?;
    Ok(hosts.iter().map(|host| host.to_ascii_lowercase()).collect())
}

/// Reports faults of a route that the schema cannot express.
pub(super) fn rules(route: &Node, parameters: PathParameters, path: &Path<'_>, report: &mut Report<'_>) {
    public::rules(route, path, report);
    path_rules(route, parameters, path, report);
    if let Some(matching) = route.get("match") {
        request_match::rules(matching, &path.field("match"), report);
    }
    let Some(services) = route.get("services") else { return };
    let path = path.field("services");
    let backends = services.items();
    let idle = |backend: &Node| matches!(backend.get("weight").map(|weight| &weight.value), Some(Value::Integer(0)));
    if !backends.is_empty() && backends.iter().all(idle) {
        report.error(services.at, &path, "expected a `weight` above 0: nobody would get the requests");
    }
    let mut seen = Vec::new();
    for (index, name) in backends.iter().enumerate().filter_map(|(index, node)| Some((index, node.get("service")?))) {
        if seen.contains(&name.text()) {
            report.error(name.at, &path.item(index).field("service"), "the service is named twice");
        }
        seen.push(name.text());
    }
}

/// Reports paths that no request can have: such a route would guard nothing.
fn path_rules(route: &Node, parameters: PathParameters, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(written) = route.get("match").and_then(|matching| matching.get("path")) else { return };
    let (matching, path) = (path.field("match"), "path");
    let path = matching.field(path);
    for kind in ["exact", "prefix", "template"] {
        let Some(node) = written.get(kind) else { continue };
        if let Some(reason) = node.text().and_then(|text| PathText::read(text).unreachable(parameters)) {
            report.error(node.at, &path.field(kind), format!("no request has this path: {reason}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, HeaderCondition, read};

    fn read_route(route: &str) -> Result<Route, String> {
        let mut text = format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{name: g}}\nspec:\n  listeners: [{{name: http, port: 80}}]\n  \
             routes:\n    - {{name: r, {route}}}\n"
        );
        for name in ["a", "b"] {
            text += &format!(
                "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{endpoints: [{{address: x, \
                 port: 1}}]}}\n"
            );
        }
        let bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]);
        bundle.map(|bundle| bundle.gateways[0].spec.routes[0].clone()).map_err(|errors| errors.to_string())
    }

    fn check_fails(route: &str, expect: &[&str]) {
        assert_eq!(read_route(route).unwrap_err().lines().collect::<Vec<_>>(), expect, "for `{route}`");
    }

    #[test]
    fn reads_every_way_to_match() {
        let matching = |text: &str| read_route(&format!("service: a, match: {text}")).map(|route| route.matching);
        let path = |path| Ok(Match { path, ..Match::default() });
        assert_eq!(matching("{path: {template: '/u/{id}'}}"), path(PathMatch::Template("/u/{id}".to_owned())));
        assert_eq!(matching("{path: {regex: '/u/[0-9]+'}}"), path(PathMatch::Regex("/u/[0-9]+".to_owned())));
        let header = |name: &str, condition| HeaderMatch { name: name.to_owned(), condition };
        let headers = vec![
            header("X-A", HeaderCondition::Exact("1".to_owned())),
            header("x-b", HeaderCondition::Present(false)),
            header("x-c", HeaderCondition::Regex("v[12]".to_owned())),
        ];
        let text = "{headers: [{name: X-A, exact: '1'}, {name: x-b, present: false}, {name: x-c, regex: 'v[12]'}]}";
        assert_eq!(matching(text), Ok(Match { headers, ..Match::default() }));
    }

    #[test]
    fn reads_weights_and_retries() {
        let route = read_route(
            "services: [{service: a, weight: 9}, {service: b}], retries: {on: [5xx, retriable4xx, connectFailure], \
             attempts: 2, perTryTimeout: 250ms}",
        )
        .unwrap();
        let backend = |name: &str, weight| Backend { service: name.to_owned(), weight };
        assert_eq!(route.backends, [backend("a", 9), backend("b", 1)]);
        let retries = Retries {
            on: vec![Cause::ServerError, Cause::Retriable4xx, Cause::ConnectFailure],
            attempts: 2,
            per_try_timeout: Some(Duration::from_millis(250)),
        };
        assert_eq!(route.retries, Some(retries));
        assert_eq!(read_route("service: a, retries: {on: [reset]}").unwrap().retries.unwrap().attempts, 1);
    }

    #[test]
    fn knows_every_cause_by_its_word() {
        for cause in CAUSES {
            assert!(read_route(&format!("service: a, retries: {{on: [{cause}]}}")).is_ok(), "{cause}");
        }
    }

    #[test]
    fn reports_what_does_not_fit() {
        check_fails(
            "service: a, services: [{service: a}]",
            &["f:7:7: Gateway `g`: spec.routes[0]: expected exactly one of `service`, `services`"],
        );
        check_fails(
            "services: [{service: a, weight: 0}, {service: a, weight: 0}]",
            &[
                "f:7:27: Gateway `g`: spec.routes[0].services: expected a `weight` above 0: nobody would get the requests",
                "f:7:63: Gateway `g`: spec.routes[0].services[1].service: the service is named twice",
            ],
        );
        check_fails(
            "services: [{service: a}, {service: c}]",
            &["f:7:52: Gateway `g`: spec.routes[0].services[1].service: unknown service `c`"],
        );
        check_fails(
            "service: a, match: {path: {regex: '('}, headers: [{name: x-a}, {name: host, exact: a}]}",
            &[
                "f:7:51: Gateway `g`: spec.routes[0].match.path.regex: `(` is no regular expression: found open group \
                 without closing ')'",
                "f:7:67: Gateway `g`: spec.routes[0].match.headers[0]: expected exactly one of `exact`, `present`, `regex`",
                "f:7:87: Gateway `g`: spec.routes[0].match.headers[1].name: expected the name of a header other than \
                 `host`, found `host`",
            ],
        );
        check_fails(
            "service: a, retries: {on: [], attempts: 11}",
            &[
                "f:7:43: Gateway `g`: spec.routes[0].retries.on: expected at least 1 item, found 0",
                "f:7:57: Gateway `g`: spec.routes[0].retries.attempts: expected a whole number from 1 to 10, found `11`",
            ],
        );
    }
}
