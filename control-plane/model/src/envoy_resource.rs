//! `EnvoyResource`: a resource in Envoy's own format, served unchanged. For what `Gateway` and `Service` cannot
//! express.

use std::fmt;

use envoy_types::pb::google::protobuf::Any;
use postern_base::{
    bounded::RESOURCE_NAME,
    diagnostic::{Path, one_of, push_field, quote},
    resource_type::ResourceType,
    yaml::{Node, Origin, Value},
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value as Json;

use super::{
    kind::{self, Absence, KindSchema, Spec},
    raw_routes::{self, RawRoute},
    report::Report,
    target_ref::{self, Level, Reach, TargetRef},
};
use crate::protobuf_json::{Fault, Faults, Unknown, read_any_at};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "EnvoyResource",
    about: "A resource of Envoy, served as it is. Of several of one type and name, a node gets the most specific.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["EnvoyResource"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "What is served."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::MayOpen,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: EnvoyResource
metadata: { name: legacy }
spec:
  targetRef: { kind: Service, name: edge }
  resource:
    \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: legacy
    type: STRICT_DNS
    connect_timeout: 1s
    load_assignment:
      cluster_name: legacy
      endpoints:
        - lb_endpoints:
            - endpoint: { address: { socket_address: { address: legacy.internal, port_value: 8080 } } }
";

const SPEC: Object = Object {
    fields: &[
        Field::optional("targetRef", target_ref::NODES, "The nodes that get it; all of the mesh if left out."),
        Field::optional(
            OMIT,
            Kind::Boolean,
            "Whether the nodes do not get the resource of this type and name that a less specific `EnvoyResource` declares.",
        )
        .or("false"),
        Field::required(
            RESOURCE,
            Kind::EnvoyMessage,
            "The resource, as Envoy's documentation writes it, with its type in `@type`.",
        ),
    ],
    exactly_one_of: &[],
};

const RESOURCE: &str = "resource";
const OMIT: &str = "omit";
const TYPE: &str = "@type";

/// The `spec` of an `EnvoyResource`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvoyResource {
    /// The nodes that get it. `None` means all of its mesh.
    #[serde(default, rename = "targetRef", skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Whether the nodes do not get the resource of this type and name of a less specific level.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub omit: bool,
    /// The resource that is served.
    pub resource: RawResource,
}

impl EnvoyResource {
    /// How specific its target is. A more specific resource replaces those of its type and name.
    pub fn level(&self) -> Level {
        self.target_ref.as_ref().map_or(Level::Mesh, TargetRef::level)
    }
}

/// A resource of a type that is served, with a name, valid by the descriptors of its type at any depth.
#[derive(Clone, PartialEq)]
pub struct RawResource {
    kind: ResourceType,
    name: String,
    body: Any,
    /// What the user wrote, for the revision's digest.
    written: Json,
}

impl RawResource {
    /// The type of the resource.
    pub fn kind(&self) -> ResourceType {
        self.kind
    }

    /// The name in subscriptions.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The encoded resource.
    pub fn body(&self) -> &Any {
        &self.body
    }

    /// The short name of its type, such as `Listener`.
    pub fn type_name(&self) -> &'static str {
        short_name(self.kind.type_url())
    }

    /// The path of its name in the document.
    pub fn name_field(&self) -> String {
        let field = name_fields(self.kind).iter().find(|field| self.written.get(field).is_some());
        push_field(format!("spec.{RESOURCE}"), field.unwrap_or(&"name"))
    }

    /// The named routes inside it.
    pub fn routes(&self) -> Vec<RawRoute> {
        raw_routes::named_routes(&self.written, &format!("spec.{RESOURCE}"))
    }

    /// Checks and encodes the JSON at a path, or returns all faults.
    fn read(json: &Json, path: &Path<'_>) -> Result<Self, Faults> {
        let (body, mut faults) = match read_any_at(json, path, Unknown::Refused) {
            Ok(body) => (body, Vec::new()),
            Err(Faults(faults)) => (Any::default(), faults),
        };
        let mut fault = |path: &Path<'_>, message| faults.push(Fault { path: path.to_string(), message });
        let kind = json.get(TYPE).and_then(Json::as_str).and_then(ResourceType::from_type_url);
        let fields = kind.map_or(&[][..], name_fields);
        let name = fields.iter().find_map(|field| json.get(field));
        match (kind, fields.first()) {
            // A name of another type is reported already.
            (Some(_), Some(field)) if name.is_none_or(|name| name.as_str() == Some("")) => {
                fault(&path.field(field), format!("missing required field {}", quote(field)));
            }
            // A subscription to a longer name is refused.
            (Some(_), Some(field)) if name.and_then(Json::as_str).is_some_and(|name| name.len() > RESOURCE_NAME) => {
                fault(&path.field(field), format!("expected a name of at most {RESOURCE_NAME} bytes"));
            }
            (None, _) if !body.type_url.is_empty() => {
                let served = ResourceType::ALL.map(|kind| short_name(kind.type_url()));
                let message =
                    format!("{} is not served by itself: expected {}", quote(&body.type_url), one_of(&served));
                fault(&path.field(TYPE), message);
            }
            // An empty mapping, which `read_any_at` reads as no message.
            (None, _) if faults.is_empty() => {
                faults.push(Fault { path: path.to_string(), message: format!("missing required field `{TYPE}`") });
            }
            _ => {}
        }
        match (kind, name.and_then(Json::as_str)) {
            (Some(kind), Some(name)) if faults.is_empty() => {
                Ok(Self { kind, name: name.to_owned(), body, written: json.clone() })
            }
            _ => Err(Faults(faults)),
        }
    }
}

/// The fields that may hold a resource's name: the name in JSON, and the one in the `.proto` file if it differs.
fn name_fields(kind: ResourceType) -> &'static [&'static str] {
    match kind {
        ResourceType::Endpoints => &["cluster_name", "clusterName"],
        _ => &["name"],
    }
}

fn short_name(type_url: &'static str) -> &'static str {
    type_url.rsplit('.').next().unwrap_or(type_url)
}

impl fmt::Debug for RawResource {
    /// Without the content: it can hold a private key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:?}", self.type_name(), self.name)
    }
}

impl Serialize for RawResource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawResource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&Json::deserialize(deserializer)?, &Path::Root).map_err(D::Error::custom)
    }
}

impl Spec for EnvoyResource {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::nodes(self.target_ref.as_ref())
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        target_ref::all_rules(spec, &[], path, report);
        let Some(resource) = spec.get(RESOURCE) else { return };
        if matches!(spec.get(OMIT), Some(Node { value: Value::Bool(true), .. })) {
            content_of_omitted(resource, &path.field(RESOURCE), report);
        }
        infinities(resource, &path.field(RESOURCE), report);
        let json = resource.to_json();
        if !json.is_object() {
            return;
        }
        let Err(Faults(faults)) = RawResource::read(&json, &Path::Root.field(RESOURCE)) else { return };
        let places = Origin::new(spec);
        for Fault { path: field, message } in faults {
            report.error_in(places.find(&field), Some(format!("{path}.{field}")), message);
        }
    }
}

/// Reports content of a resource that is omitted: it would never be served.
fn content_of_omitted(resource: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let Value::Map(entries) = &resource.value else { return };
    let is_content = |name: &str| ![TYPE, "name", "cluster_name", "clusterName"].contains(&name);
    for (key, value) in entries.iter().filter(|(key, _)| is_content(&key.name)) {
        let message = format!("a resource with `{OMIT}: true` has only `{TYPE}` and its name");
        report.error(value.at, &path.field(&key.name), message);
    }
}

/// Reports `.inf` and `.nan`, which JSON cannot represent: they would be read as absent fields.
fn infinities(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    match &node.value {
        Value::Float(number) if !number.is_finite() => {
            let message =
                "expected a finite number: protobuf JSON has `\"Infinity\"`, `\"-Infinity\"` and `\"NaN\"`, in quotes";
            report.error(node.at, path, message);
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                infinities(item, &path.item(index), report);
            }
        }
        Value::Map(entries) => {
            for (key, value) in entries {
                infinities(value, &path.field(&key.name), report);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, read};

    const HEAD: &str = "apiVersion: postern/v1\nkind: EnvoyResource\nmetadata: {name: raw}\nspec:\n  resource:\n";

    fn check(resource: &str, expect: Result<(ResourceType, &str), &[&str]>) {
        let bytes = format!("{HEAD}{resource}").into_bytes();
        match (read(&[File { name: "r".to_owned(), bytes }]), expect) {
            (Ok(bundle), Ok((kind, name))) => {
                let resource = &bundle.envoy_resources[0].spec.resource;
                assert_eq!((resource.kind(), resource.name()), (kind, name));
            }
            (Err(errors), Err(lines)) => assert_eq!(errors.to_string().lines().collect::<Vec<_>>(), lines),
            (outcome, _) => panic!("{outcome:?}"),
        }
    }

    fn typed(url: &str, rest: &str) -> String {
        format!("    \"@type\": type.googleapis.com/{url}\n{rest}")
    }

    #[test]
    fn takes_every_type_that_is_served_and_its_name() {
        for kind in ResourceType::ALL {
            let field = name_fields(kind)[0];
            let resource = format!("    {{\"@type\": {}, {field}: a/b}}", kind.type_url());
            check(&resource, Ok((kind, "a/b")));
        }
        let endpoints = typed("envoy.config.endpoint.v3.ClusterLoadAssignment", "    clusterName: a\n");
        check(&endpoints, Ok((ResourceType::Endpoints, "a")));
    }

    #[test]
    fn wants_a_type_that_is_served_and_a_name() {
        check(
            &typed("envoy.config.cluster.v3.Cluster", ""),
            Err(&["r:6:5: EnvoyResource `raw`: spec.resource.name: missing required field `name`"]),
        );
        check(
            &typed("envoy.config.endpoint.v3.ClusterLoadAssignment", "    clusterName: ''\n"),
            Err(&["r:6:5: EnvoyResource `raw`: spec.resource.cluster_name: missing required field `cluster_name`"]),
        );
        check(
            &typed("envoy.config.core.v3.Node", "    id: a\n"),
            Err(&[
                "r:6:14: EnvoyResource `raw`: spec.resource[\"@type\"]: `type.googleapis.com/envoy.config.core.v3.Node` \
                is not served by itself: expected one of `Secret`, `Cluster`, `ClusterLoadAssignment`, \
                `TypedExtensionConfig`, `Listener`, `RouteConfiguration`, `VirtualHost`",
            ]),
        );
        check("    name: a\n", Err(&["r:6:5: EnvoyResource `raw`: spec.resource: missing required field `@type`"]));
        check("    {}\n", Err(&["r:6:5: EnvoyResource `raw`: spec.resource: missing required field `@type`"]));
        check("    []\n", Err(&["r:6:5: EnvoyResource `raw`: spec.resource: expected a mapping, found a list"]));
    }

    #[test]
    fn reports_every_error_at_its_line() {
        check(
            &typed("envoy.config.cluster.v3.Clster", "    name: a\n"),
            Err(&["r:6:14: EnvoyResource `raw`: spec.resource[\"@type\"]: unknown type \
                `type.googleapis.com/envoy.config.cluster.v3.Clster`: did you mean \
                `type.googleapis.com/envoy.config.cluster.v3.Cluster`?"]),
        );
        check(
            &typed(
                "envoy.config.cluster.v3.Cluster",
                "    connect_timeout: 5\n    lb_policy: RANDM\n    load_assignment:\n      endpoints:\n        - priorty: 1\n",
            ),
            Err(&[
                "r:6:5: EnvoyResource `raw`: spec.resource.name: missing required field `name`",
                "r:7:22: EnvoyResource `raw`: spec.resource.connect_timeout: expected a duration in seconds such as `1.5s`, \
                 found a number",
                "r:8:16: EnvoyResource `raw`: spec.resource.lb_policy: unknown value `RANDM` of \
                 `envoy.config.cluster.v3.Cluster.LbPolicy`: did you mean `RANDOM`?",
                "r:11:20: EnvoyResource `raw`: spec.resource.load_assignment.endpoints[0].priorty: unknown field `priorty` of \
                 `envoy.config.endpoint.v3.LocalityLbEndpoints`: did you mean `priority`?",
            ]),
        );
    }

    #[test]
    fn refuses_numbers_that_json_cannot_say() {
        let metadata = "    name: a\n    metadata: {filter_metadata: {x: {y: [1, .inf]}}}\n";
        check(
            &typed("envoy.config.cluster.v3.Cluster", metadata),
            Err(&[
                "r:8:45: EnvoyResource `raw`: spec.resource.metadata.filter_metadata.x.y[1]: expected a finite number: \
                protobuf JSON has `\"Infinity\"`, `\"-Infinity\"` and `\"NaN\"`, in quotes",
            ]),
        );
    }

    #[test]
    fn an_omitted_resource_has_only_its_type_and_name() {
        let document = |resource: &str| {
            let head = HEAD.replace("spec:\n", "spec:\n  targetRef: {kind: Proxy, name: p}\n  omit: true\n");
            read(&[File { name: "r".to_owned(), bytes: format!("{head}{resource}").into_bytes() }])
        };
        let cluster = typed("envoy.config.cluster.v3.Cluster", "    name: a\n");
        let bundle = document(&cluster).unwrap();
        assert!(bundle.envoy_resources[0].spec.omit);
        let errors = document(&(cluster + "    connect_timeout: 1s\n")).unwrap_err().to_string();
        let expect = "r:10:22: EnvoyResource `raw`: spec.resource.connect_timeout: \
            a resource with `omit: true` has only `@type` and its name";
        assert_eq!(errors, expect);
        let endpoints = typed("envoy.config.endpoint.v3.ClusterLoadAssignment", "    cluster_name: a\n");
        assert!(document(&endpoints).is_ok());
    }

    #[test]
    fn a_more_specific_resource_may_have_the_type_and_name_of_another() {
        let document = |name: &str, target: &str| {
            let head = HEAD.replace("raw", name).replace("spec:\n", &format!("spec:\n  targetRef: {target}\n"));
            head + &typed("envoy.config.cluster.v3.Cluster", "    name: x\n")
        };
        let read = |other: &str| {
            let both = [document("a", "{kind: Service, name: s}"), document("b", other)].join("---\n");
            read(&[File { name: "r".to_owned(), bytes: both.into_bytes() }])
        };
        assert_eq!(read("{kind: Proxy, name: p}").unwrap().envoy_resources.len(), 2);
        assert_eq!(read("{kind: Service, name: t}").unwrap().envoy_resources.len(), 2);
        let errors = read("{kind: Service, name: s}").unwrap_err().to_string();
        let expect = "r:17:11: EnvoyResource `b`: spec.resource.name: Cluster `x` is already declared by EnvoyResource `a` \
            (r:8) for the same target";
        assert_eq!(errors, expect);
    }

    #[test]
    fn refuses_two_resources_of_one_type_and_name() {
        let document = |name: &str, rest: &str| {
            HEAD.replace("raw", name) + &typed("envoy.config.cluster.v3.Cluster", &format!("    name: {rest}\n"))
        };
        let bytes = [document("b", "x"), document("a", "x"), document("c", "y")].join("---\n").into_bytes();
        let errors = read(&[File { name: "r".to_owned(), bytes }]).unwrap_err().to_string();
        let expect = "r:15:11: EnvoyResource `a`: spec.resource.name: Cluster `x` is already declared by EnvoyResource `b` (r:7) for the same target";
        assert_eq!(errors, expect);
    }

    #[test]
    fn shows_no_content() {
        let json = serde_json::json!({TYPE: ResourceType::Secret.type_url(), "name": "a",
            "generic_secret": {"secret": {"inline_string": "hidden"}}});
        let resource = RawResource::read(&json, &Path::Root).unwrap();
        assert_eq!(format!("{resource:?}"), "Secret \"a\"");
    }
}
