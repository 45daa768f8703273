//! `match` of a `RoutePolicy`: which requests take a route that has no name in Envoy.
//!
//! A Gateway's own routes are matched by Envoy, by the `match` of a Gateway. Here the filter decides, by the engine's
//! rules (`postern_engine::matching`).

use postern_base::{
    diagnostic::{Path, quote},
    yaml::{Node, Value},
};
use postern_engine::{
    matching::{PathPattern, Shape},
    schema::{Field, Kind, Object},
};
use serde::{Deserialize, Deserializer, Serialize};

use super::{report::Report, route::PathMatch};

/// The schema of `match`.
pub(super) const SCHEMA: Object = Object {
    fields: &[
        Field::optional(
            "hosts",
            Kind::List { item: &Kind::Host, at_least: 1 },
            "The hosts, on every port, in any case, with or without a trailing dot; any if left out.",
        ),
        Field::optional("path", Kind::Object(&PATH), "The path, without the query; any if left out."),
        Field::optional("methods", Kind::List { item: &Kind::Method, at_least: 1 }, "The methods; any if left out."),
    ],
    exactly_one_of: &[],
};

const PATH: Object = Object {
    fields: &[
        Field::optional(
            "exact",
            Kind::Path,
            "The whole path, with or without a slash at its end. An escape is the same as what it stands for: `/@me` is \
             `/%40me`.",
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
        Field::optional("regex", Kind::Regex, "A regular expression for the whole path, as it came."),
    ],
    exactly_one_of: &["exact", "prefix", "template", "regex"],
};

/// Which requests take a route: each part that is there must fit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlayMatch {
    /// Host names, `*.` wildcards or `*`, in lower case. Empty means any.
    #[serde(default, deserialize_with = "lower_case", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The path. `None` means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// The methods. Empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
}

impl OverlayMatch {
    /// What must not be in two matches: each host, path and method, in normal form.
    pub fn claims(&self) -> Vec<(String, Shape, Option<&str>)> {
        let shape = self.path.as_ref().map_or(Some(Shape::any()), shape).unwrap_or_else(Shape::any);
        let hosts = if self.hosts.is_empty() { vec!["*".to_owned()] } else { self.hosts.clone() };
        let methods: Vec<_> = match self.methods.is_empty() {
            true => vec![None],
            false => self.methods.iter().map(|method| Some(method.as_str())).collect(),
        };
        let of_host =
            |host: String| methods.iter().map(|method| (host.clone(), shape.clone(), *method)).collect::<Vec<_>>();
        hosts.into_iter().flat_map(of_host).collect()
    }
}

fn shape(path: &PathMatch) -> Option<Shape> {
    let pattern = match path {
        PathMatch::Exact(text) => PathPattern::Exact(text),
        PathMatch::Prefix(text) => PathPattern::Prefix(text),
        PathMatch::Template(text) => PathPattern::Template(text),
        PathMatch::Regex(text) => PathPattern::Regex(text),
    };
    pattern.shape()
}

fn lower_case<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::<String>::deserialize(deserializer)?;
    Ok(hosts.iter().map(|host| host.to_ascii_lowercase()).collect())
}

/// Reports faults of a `match` in a spec that the schema cannot express.
pub(super) fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(matching) = spec.get("match") else { return };
    let path = path.field("match");
    let kind = spec.get("targetRef").and_then(|target| target.get("kind")).and_then(Node::text);
    if let Some(kind) = kind.filter(|kind| *kind != "HTTPRoute") {
        let message = format!("only an `HTTPRoute` is found by `match`, and the target is a {}", quote(kind));
        report.error(matching.at, &path, message);
    }
    if matches!(&matching.value, Value::Map(fields) if fields.is_empty()) {
        report.error(matching.at, &path, "expected `hosts`, `path` or `methods`");
    }
    if let Some(written) = matching.get("path") {
        path_rule(written, &path.field("path"), report);
    }
}

/// Reports a path that no request can take, since requests for it are refused.
fn path_rule(written: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    type Read = fn(String) -> PathMatch;
    let kinds: [(&str, Read); 3] =
        [("exact", PathMatch::Exact), ("prefix", PathMatch::Prefix), ("template", PathMatch::Template)];
    for (field, read) in kinds {
        let Some((node, text)) = written.get(field).and_then(|node| Some((node, node.text()?))) else { continue };
        if text.starts_with('/') && shape(&read(text.to_owned())).is_none() {
            let message = format!(
                "no request can take it: {} can be read in several ways (`;`, `\\`, `//`, dot segments, escaped slashes and \
                 escapes of escapes)",
                quote(text)
            );
            report.error(node.at, &path.field(field), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, read};

    fn read_policy(target: &str, matching: &str) -> Result<OverlayMatch, String> {
        let document = format!(
            "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{name: p}}\n\
             spec:\n  targetRef: {target}\n  request: [{{policy: headers}}]\n  match: {matching}\n"
        );
        let bundle = read(&[File { name: "f".to_owned(), bytes: document.into_bytes() }]);
        let bundle = bundle.map_err(|errors| errors.to_string())?;
        Ok(bundle.route_policies[0].spec.matching.clone().unwrap())
    }

    const ROUTE: &str = "{kind: HTTPRoute, name: admin}";

    fn check_fails(target: &str, matching: &str, expect: &str) {
        let said = read_policy(target, matching).unwrap_err();
        assert_eq!(said, format!("f:7:{expect}"), "{matching}");
    }

    #[test]
    fn reads_hosts_path_and_methods() {
        let read =
            read_policy(ROUTE, "{hosts: [A.example.com, '*.b'], path: {prefix: /admin}, methods: [GET]}").unwrap();
        let expect = OverlayMatch {
            hosts: vec!["a.example.com".to_owned(), "*.b".to_owned()],
            path: Some(PathMatch::Prefix("/admin".to_owned())),
            methods: vec!["GET".to_owned()],
        };
        assert_eq!(read, expect);
        assert_eq!(read.claims().len(), 2);
    }

    #[test]
    fn refuses_what_cannot_be() {
        check_fails(ROUTE, "{}", "10: RoutePolicy `p`: spec.match: expected `hosts`, `path` or `methods`");
        check_fails(
            "{kind: MeshGatewayRoute, name: admin, optional: true}",
            "{path: {prefix: /a}}",
            "10: RoutePolicy `p`: spec.match: only an `HTTPRoute` is found by `match`, and the target is a `MeshGatewayRoute`",
        );
        for path in ["/a;b", "/a/../b", "//a", "/a%2fb", "/%252e"] {
            let said = read_policy(ROUTE, &format!("{{path: {{exact: '{path}'}}}}")).unwrap_err();
            assert!(
                said.starts_with("f:7:25: RoutePolicy `p`: spec.match.path.exact: no request can take it"),
                "{said}"
            );
        }
        check_fails(
            ROUTE,
            "{path: {prefix: /a, exact: /b}}",
            "17: RoutePolicy `p`: spec.match.path: expected exactly one of `exact`, `prefix`, `template`, `regex`",
        );
        check_fails(
            ROUTE,
            "{host: [a]}",
            "11: RoutePolicy `p`: spec.match.host: unknown field `host`: did you mean `hosts`?",
        );
    }
}
