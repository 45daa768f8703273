//! `targetRef`: what a resource is attached to, and which traffic an entry of it applies to.

use std::{collections::BTreeMap, fmt};

use postern_base::{
    diagnostic::{Path, quote},
    node::NodeIdentity,
    yaml::{Node, Value},
};
use postern_engine::schema::{Field, Kind, Object};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{format, report::Report};

/// The schema of a resource's target.
pub(super) const TARGET: Kind = Kind::Object(&Object {
    fields: &[
        kind(&["Mesh", "MeshSubset", "Service", "ServiceSubset", "Proxy", "MeshGatewayRoute", "HTTPRoute"]),
        ROUTE_OR_NAME,
        TAGS,
        OPTIONAL,
    ],
    exactly_one_of: &[],
});

/// The schema of an entry's destination.
pub(super) const DESTINATION: Kind = Kind::Object(&Object {
    fields: &[kind(&["Mesh", "Service", "MeshGatewayRoute", "HTTPRoute"]), ROUTE_OR_NAME, OPTIONAL],
    exactly_one_of: &[],
});

/// The schema of an entry's destination that is a whole service, for what belongs to its connections and endpoints.
pub(super) const DESTINATION_SERVICE: Kind =
    Kind::Object(&Object { fields: &[kind(&["Mesh", "Service"]), NAME, OPTIONAL], exactly_one_of: &[] });

/// The schema of an entry's destination that is one or more whole services, which tags of endpoints can select.
pub(super) const SERVICES: Kind = Kind::Object(&Object {
    fields: &[kind(&["Mesh", "MeshSubset", "Service", "ServiceSubset"]), NAME, TAGS, OPTIONAL],
    exactly_one_of: &[],
});

/// The schema of an entry's source.
pub(super) const SOURCE: Kind = Kind::Object(&Object {
    fields: &[kind(&["Mesh", "MeshSubset", "Service", "ServiceSubset"]), NAME, TAGS, OPTIONAL],
    exactly_one_of: &[],
});

/// The schema of a target that selects nodes.
pub(super) const NODES: Kind = Kind::Object(&Object {
    fields: &[kind(&["Mesh", "MeshSubset", "Service", "ServiceSubset", "Proxy"]), NAME, TAGS, OPTIONAL],
    exactly_one_of: &[],
});

const NAME: Field = Field::optional("name", Kind::Name, "What it is called; not for `Mesh` and `MeshSubset`.");
const ROUTE_OR_NAME: Field = Field::optional(
    "name",
    Kind::RouteName,
    "What it is called; not for `Mesh` and `MeshSubset`. The name of a route may look like a path: `/api/v1/users`.",
);
const TAGS: Field = Field::optional(
    "tags",
    Kind::Map { key: &Kind::Text, value: &Kind::Text },
    "All of these tags; for `MeshSubset` and `ServiceSubset` only.",
);
const OPTIONAL: Field = Field::optional(
    "optional",
    Kind::Boolean,
    "Whether what it names may be missing: a route or Service that nobody declares is then no error, and nodes that are \
     not there yet are not warned of. Not for `Mesh`.",
)
.or("false");

const fn kind(words: &'static [&'static str]) -> Field {
    Field::required("kind", Kind::Choice(words), "What kind of thing it is.")
}

/// What a resource or an entry applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum TargetRef {
    /// The whole mesh.
    Mesh,
    /// The proxies with some tags.
    MeshSubset {
        /// The tags, all of which must match: at least one.
        tags: BTreeMap<String, String>,
        /// Whether what it names may be absent.
        #[serde(default, skip_serializing_if = "is_false")]
        optional: bool,
    },
    /// The proxies of a service.
    Service {
        /// The name of the service.
        name: String,
        /// Whether what it names may be absent.
        #[serde(default, skip_serializing_if = "is_false")]
        optional: bool,
    },
    /// The proxies of a service with some tags.
    ServiceSubset {
        /// The name of the service.
        name: String,
        /// The tags, all of which must match: at least one.
        tags: BTreeMap<String, String>,
        /// Whether what it names may be absent.
        #[serde(default, skip_serializing_if = "is_false")]
        optional: bool,
    },
    /// One proxy.
    Proxy {
        /// The node id.
        name: String,
        /// Whether what it names may be absent.
        #[serde(default, skip_serializing_if = "is_false")]
        optional: bool,
    },
    /// A route of a Gateway.
    MeshGatewayRoute {
        /// The name of the route.
        name: String,
        /// Whether what it names may be absent.
        #[serde(default, skip_serializing_if = "is_false")]
        optional: bool,
    },
    /// Any HTTP route. In a mesh that declares no routes, one of Envoy's own.
    #[serde(rename = "HTTPRoute")]
    HttpRoute {
        /// The name of the route.
        name: String,
        /// Whether what it names may be absent.
        #[serde(default, skip_serializing_if = "is_false")]
        optional: bool,
    },
}

/// A `spec` that is attached to a target.
pub trait Targeted {
    /// The target.
    fn target_ref(&self) -> &TargetRef;

    /// Whether more specific resources cannot change it.
    fn overrides(&self) -> bool;
}

/// Which nodes of its mesh a resource concerns.
#[derive(Debug, Clone, Copy)]
pub enum Reach<'a> {
    /// All nodes.
    Mesh,
    /// The nodes that a target selects.
    Nodes(&'a TargetRef),
    /// The nodes that a target selects. Several resources may apply to one node, by priority.
    Attached {
        /// The target of the resource.
        target: &'a TargetRef,
        /// Whether more specific resources cannot change it.
        overrides: bool,
    },
}

impl<'a> Reach<'a> {
    /// The reach of a `spec` that is attached to a target.
    pub fn attached(spec: &'a impl Targeted) -> Self {
        Self::Attached { target: spec.target_ref(), overrides: spec.overrides() }
    }

    /// The reach of a resource for the nodes that a target selects. `None` means all nodes.
    pub fn nodes(target: Option<&'a TargetRef>) -> Self {
        target.map_or(Self::Mesh, Self::Nodes)
    }

    /// The target that selects the nodes. `None` means all nodes.
    pub fn target(self) -> Option<&'a TargetRef> {
        match self {
            Self::Mesh => None,
            Self::Nodes(target) | Self::Attached { target, .. } => Some(target),
        }
    }
}

/// How specific a target is, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// The whole mesh.
    Mesh,
    /// Some proxies of the mesh, by tags.
    MeshSubset,
    /// A service.
    Service,
    /// Some proxies of a service, by tags.
    ServiceSubset,
    /// A proxy.
    Proxy,
    /// A route.
    Route,
}

impl TargetRef {
    /// The level of the target.
    pub fn level(&self) -> Level {
        match self {
            Self::Mesh => Level::Mesh,
            Self::MeshSubset { .. } => Level::MeshSubset,
            Self::Service { .. } => Level::Service,
            Self::ServiceSubset { .. } => Level::ServiceSubset,
            Self::Proxy { .. } => Level::Proxy,
            Self::MeshGatewayRoute { .. } | Self::HttpRoute { .. } => Level::Route,
        }
    }

    /// The name of the service. `None` if the target has none.
    pub fn service(&self) -> Option<&str> {
        match self {
            Self::Service { name, .. } | Self::ServiceSubset { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The name of the route. `None` if the target is not a route.
    pub fn route(&self) -> Option<&str> {
        match self {
            Self::MeshGatewayRoute { name, .. } | Self::HttpRoute { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The tags to match. `None` if the target has none.
    pub fn tags(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::MeshSubset { tags, .. } | Self::ServiceSubset { tags, .. } => Some(tags),
            _ => None,
        }
    }

    /// Whether the user wrote that what it names may be absent: no error and no warning then.
    pub fn is_optional(&self) -> bool {
        match self {
            Self::Mesh => false,
            Self::MeshSubset { optional, .. }
            | Self::Service { optional, .. }
            | Self::ServiceSubset { optional, .. }
            | Self::Proxy { optional, .. }
            | Self::MeshGatewayRoute { optional, .. }
            | Self::HttpRoute { optional, .. } => *optional,
        }
    }

    /// Whether it selects a node of its mesh. A route selects every node, since any node may have it.
    pub fn selects(&self, node: &NodeIdentity) -> bool {
        let service = self.service().is_none_or(|service| *service == node.service);
        let tags = self.tags().into_iter().flatten().all(|(name, value)| node.tags.get(name) == Some(value));
        let proxy = match self {
            Self::Proxy { name, .. } => *name == node.id,
            _ => true,
        };
        service && tags && proxy
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

impl fmt::Display for TargetRef {
    /// Writes "Service `web`", "MeshSubset {zone: a}".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Mesh => ("Mesh", None),
            Self::MeshSubset { .. } => ("MeshSubset", None),
            Self::Service { name, .. } => ("Service", Some(name)),
            Self::ServiceSubset { name, .. } => ("ServiceSubset", Some(name)),
            Self::Proxy { name, .. } => ("Proxy", Some(name)),
            Self::MeshGatewayRoute { name, .. } => ("MeshGatewayRoute", Some(name)),
            Self::HttpRoute { name, .. } => ("HTTPRoute", Some(name)),
        };
        f.write_str(kind)?;
        if let Some(name) = name {
            write!(f, " {}", quote(name))?;
        }
        if let Some(tags) = self.tags() {
            let tags: Vec<_> = tags.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            write!(f, " {{{}}}", tags.join(", "))?;
        }
        Ok(())
    }
}

/// Reports a name or tags that are missing or do not belong to the kind of target.
pub(super) fn rules(target: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(kind) = target.get("kind").and_then(Node::text) else { return };
    let (named, tagged) = match kind {
        "Mesh" => (false, false),
        "MeshSubset" => (false, true),
        "ServiceSubset" => (true, true),
        "Service" | "Proxy" | "MeshGatewayRoute" | "HTTPRoute" => (true, false),
        _ => return,
    };
    // A misspelled field is reported already.
    let known = ["kind", "name", "tags", "optional"];
    let mistyped = target.entries().iter().any(|(key, _)| !known.contains(&key.name.as_str()));
    if let Some(node) = target.get("optional").filter(|_| kind == "Mesh") {
        report.error(node.at, &path.field("optional"), "`Mesh` has no `optional`");
    }
    plain_name(target, kind, path, report);
    for (field, wanted) in [("name", named), ("tags", tagged)] {
        match target.get(field) {
            Some(node) if !wanted => {
                report.error(node.at, &path.field(field), format!("{} has no `{field}`", quote(kind)));
            }
            None if wanted && !mistyped => {
                report.error(target.at, &path.field(field), format!("{} needs `{field}`", quote(kind)));
            }
            Some(node) if matches!(&node.value, Value::Map(tags) if tags.is_empty()) => {
                report.error(node.at, &path.field(field), "expected at least one tag");
            }
            _ => {}
        }
    }
}

/// Reports a name that only a route can have. One that not even a route can have is reported already.
fn plain_name(target: &Node, kind: &str, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(node) = target.get("name").filter(|_| ["Service", "ServiceSubset", "Proxy"].contains(&kind)) else {
        return;
    };
    let Some(name) = node.text().filter(|name| format::route_name(name).is_ok()) else { return };
    if let Err(message) = format::name(name) {
        report.error(node.at, &path.field("name"), message);
    }
}

/// Checks the `targetRef` of a resource and those of all entries in `lists` by [`rules`].
pub(super) fn all_rules(spec: &Node, lists: &[&str], path: &Path<'_>, report: &mut Report<'_>) {
    if let Some(target) = spec.get("targetRef") {
        rules(target, &path.field("targetRef"), report);
    }
    for list in lists {
        for (index, entry) in spec.get(list).map_or(&[][..], Node::items).iter().enumerate() {
            if let Some(target) = entry.get("targetRef") {
                rules(target, &path.field(list).item(index).field("targetRef"), report);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, read};

    fn check(target: &str, expect: &[&str]) {
        let document = format!(
            "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{name: p}}\n\
             spec: {{request: [{{policy: headers}}], targetRef: {target}}}\n"
        );
        let found = read(&[File { name: "f".to_owned(), bytes: document.into_bytes() }]);
        let found = found.err().map(|errors| errors.to_string()).unwrap_or_default();
        let strip = |line: &str| line.replace("f:4:49: RoutePolicy `p`: spec.targetRef.", "");
        assert_eq!(found.lines().map(strip).collect::<Vec<_>>(), expect, "{target}");
    }

    #[test]
    fn wants_what_its_kind_has_and_nothing_else() {
        for right in [
            "{kind: Mesh}",
            "{kind: MeshSubset, tags: {zone: a}}",
            "{kind: Service, name: web}",
            "{kind: ServiceSubset, name: web, tags: {version: v1}}",
            "{kind: Proxy, name: web-1}",
            "{kind: MeshGatewayRoute, name: users}",
            "{kind: HTTPRoute, name: users}",
            "{kind: HTTPRoute, name: users, optional: true}",
            "{kind: HTTPRoute, name: /api/v1/users}",
            "{kind: MeshGatewayRoute, name: /api/v1/users}",
            "{kind: MeshSubset, tags: {zone: a}, optional: false}",
        ] {
            check(right, &[]);
        }
        check("{kind: MeshSubset}", &["tags: `MeshSubset` needs `tags`"]);
        check("{kind: Service}", &["name: `Service` needs `name`"]);
        check("{kind: ServiceSubset}", &["name: `ServiceSubset` needs `name`", "tags: `ServiceSubset` needs `tags`"]);
        check("{kind: Proxy}", &["name: `Proxy` needs `name`"]);
        check("{kind: HTTPRoute}", &["name: `HTTPRoute` needs `name`"]);
    }

    #[test]
    fn refuses_what_its_kind_has_not() {
        let at = |column: usize, rest: &str| format!("f:4:{column}: RoutePolicy `p`: spec.targetRef.{rest}");
        check("{kind: Mesh, name: a}", &[&at(68, "name: `Mesh` has no `name`")]);
        check("{kind: Proxy, name: a, tags: {a: b}}", &[&at(78, "tags: `Proxy` has no `tags`")]);
        check("{kind: MeshSubset, tags: {}}", &[&at(74, "tags: expected at least one tag")]);
        check("{kind: Mesh, optional: true}", &[&at(72, "optional: `Mesh` has no `optional`")]);
        let plain =
            "expected a name of at most 253 letters, digits, `.`, `_` and `-` that starts with a letter or digit";
        check("{kind: Service, name: /a}", &[&at(71, &format!("name: {plain}, found `/a`"))]);
        check("{kind: Proxy, name: 'a:b'}", &[&at(69, &format!("name: {plain}, found `a:b`"))]);
        let route =
            "the name of a route: at most 253 letters, digits and `._-/:*{}~`, starting with a letter, digit or `/`";
        check("{kind: HTTPRoute, name: 'a b'}", &[&at(73, &format!("name: expected {route}, found `a b`"))]);
        check("{kind: Service, name: 'a b'}", &[&at(71, &format!("name: expected {route}, found `a b`"))]);
        check("{kind: Service, nam: a}", &[&at(65, "nam: unknown field `nam`: did you mean `name`?")]);
    }

    #[test]
    fn selects_nodes_by_service_tags_and_id() {
        let node = NodeIdentity {
            id: "web-1".to_owned(),
            service: "web".to_owned(),
            tags: [("zone", "a"), ("version", "v1")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..NodeIdentity::default()
        };
        let check = |target: serde_json::Value, expect: bool| {
            let parsed: TargetRef = serde_json::from_value(target.clone()).unwrap();
            assert_eq!(parsed.selects(&node), expect, "{target}");
        };
        use serde_json::json;
        check(json!({"kind": "Mesh"}), true);
        check(json!({"kind": "MeshSubset", "tags": {"zone": "a"}}), true);
        check(json!({"kind": "MeshSubset", "tags": {"zone": "b"}}), false);
        check(json!({"kind": "MeshSubset", "tags": {"zone": "a", "other": "x"}}), false);
        check(json!({"kind": "Service", "name": "web"}), true);
        check(json!({"kind": "Service", "name": "api"}), false);
        check(json!({"kind": "ServiceSubset", "name": "web", "tags": {"version": "v1"}}), true);
        check(json!({"kind": "ServiceSubset", "name": "web", "tags": {"version": "v2"}}), false);
        check(json!({"kind": "ServiceSubset", "name": "api", "tags": {"version": "v1"}}), false);
        check(json!({"kind": "Proxy", "name": "web-1"}), true);
        check(json!({"kind": "Proxy", "name": "web-2"}), false);
        check(json!({"kind": "HTTPRoute", "name": "any"}), true);
    }

    #[test]
    fn shows_itself_as_a_user_would_say_it() {
        let tags = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        assert_eq!(TargetRef::Mesh.to_string(), "Mesh");
        let subset = TargetRef::ServiceSubset { name: "web".to_owned(), tags, optional: false };
        assert_eq!(subset.to_string(), "ServiceSubset `web` {zone: a}");
    }
}
