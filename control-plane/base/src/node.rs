//! The identity of a node (id, service, mesh, tags, version), read from the message that it opens a stream with, and
//! the limits on it. Which policies a node gets is decided elsewhere.

use std::collections::{BTreeMap, HashMap};

use envoy_types::pb::{
    envoy::config::core::v3::{Extension, Node, node::UserAgentVersionType},
    google::protobuf::{Struct, Value, value::Kind},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{NAME, shown};

/// The default mesh, of nodes and resources that do not name one.
pub const DEFAULT_MESH: &str = "default";

/// The tags that a node's locality is mapped to.
pub const LOCALITY_TAGS: [&str; 3] = ["region", "zone", "subZone"];

/// The extension of Envoy that runs the filter. An Envoy that was built without V8 does not have it.
pub const WASM_RUNTIME: &str = "envoy.wasm.runtime.v8";

/// The largest number of tags of a node.
pub const MOST_TAGS: usize = 64;

/// One node, as its bootstrap describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NodeIdentity {
    /// `node.id`: which one it is.
    pub id: String,
    /// `node.cluster`: the service that it belongs to.
    pub service: String,
    /// `node.metadata.mesh`.
    pub mesh: String,
    /// `node.metadata.tags`, and its locality as [`LOCALITY_TAGS`]; where both speak, the tags count.
    pub tags: BTreeMap<String, String>,
    /// `node.user_agent_build_version`, such as `1.40.0`: what it understands depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy: Option<String>,
    /// Whether it lists its extensions, and [`WASM_RUNTIME`] is not among them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lacks_wasm: bool,
    /// `node.metadata.largeRegexes`: its bootstrap allows regular expressions of any size.
    #[serde(default, skip_serializing_if = "is_false")]
    pub large_regexes: bool,
}

impl Default for NodeIdentity {
    /// A node that says nothing of itself.
    fn default() -> Self {
        let (id, service, tags, lacks_wasm, large_regexes) = Default::default();
        Self { id, service, mesh: DEFAULT_MESH.to_owned(), tags, envoy: None, lacks_wasm, large_regexes }
    }
}

/// Why the identity of a node is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A name is longer than anybody needs.
    #[error("`{field}` is {size} bytes long: at most {NAME} are taken")]
    TooLong {
        /// Which one.
        field: String,
        /// How long it is.
        size: usize,
    },
    /// There are more tags than anybody needs.
    #[error("`node.metadata.tags` has {0} tags: at most {MOST_TAGS} are taken")]
    TooManyTags(usize),
}

impl NodeIdentity {
    /// Reads the identity from a node's message. A tag that is neither a string, a number nor a boolean is ignored. A
    /// value that is too long is an error: cut, it could equal another node's.
    pub fn read(node: &Node) -> Result<Self, IdentityError> {
        let metadata = node.metadata.as_ref();
        let field =
            |name| metadata.and_then(|metadata| metadata.fields.get(name)).and_then(|value| value.kind.as_ref());
        let mut tags = BTreeMap::new();
        if let Some(locality) = &node.locality {
            let places = [("region", &locality.region), ("zone", &locality.zone), ("sub_zone", &locality.sub_zone)];
            for (tag, (name, place)) in
                LOCALITY_TAGS.into_iter().zip(places).filter(|(_, (_, place))| !place.is_empty())
            {
                tags.insert(tag.to_owned(), bounded(place, || format!("node.locality.{name}"))?);
            }
        }
        if let Some(Kind::StructValue(Struct { fields })) = field("tags") {
            read_tags(fields, &mut tags)?;
        }
        let mesh = match field("mesh") {
            Some(Kind::StringValue(mesh)) if !mesh.is_empty() => bounded(mesh, || "node.metadata.mesh".to_owned())?,
            _ => DEFAULT_MESH.to_owned(),
        };
        let id = bounded(&node.id, || "node.id".to_owned())?;
        Ok(Self {
            id,
            service: bounded(&node.cluster, || "node.cluster".to_owned())?,
            mesh,
            tags,
            envoy: version(node),
            lacks_wasm: !node.extensions.is_empty() && !node.extensions.iter().any(is_wasm_runtime),
            large_regexes: matches!(field("largeRegexes"), Some(Kind::BoolValue(true))),
        })
    }
}

fn is_wasm_runtime(extension: &Extension) -> bool {
    extension.name == WASM_RUNTIME && !extension.disabled
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The version from the build version, as numbers. A version in free text is ignored, since its length is not bounded.
fn version(node: &Node) -> Option<String> {
    match node.user_agent_version_type.as_ref()? {
        UserAgentVersionType::UserAgentBuildVersion(build) => {
            let version = build.version.as_ref()?;
            Some(format!("{}.{}.{}", version.major_number, version.minor_number, version.patch))
        }
        UserAgentVersionType::UserAgentVersion(_) => None,
    }
}

fn read_tags(fields: &HashMap<String, Value>, tags: &mut BTreeMap<String, String>) -> Result<(), IdentityError> {
    if fields.len() > MOST_TAGS {
        return Err(IdentityError::TooManyTags(fields.len()));
    }
    for (name, value) in fields {
        let Some(value) = scalar(value) else { continue };
        let name = bounded(name, || format!("the name of a tag in node.metadata.tags, `{}`", shown(name)))?;
        let value = bounded(&value, || format!("node.metadata.tags.{name}"))?;
        tags.insert(name, value);
    }
    Ok(())
}

/// The name, or an error if it is longer than [`NAME`]. `field` renders the name of the field for the error.
fn bounded(name: &str, field: impl FnOnce() -> String) -> Result<String, IdentityError> {
    let size = name.len();
    if size > NAME { Err(IdentityError::TooLong { field: field(), size }) } else { Ok(name.to_owned()) }
}

fn scalar(value: &Value) -> Option<String> {
    match value.kind.as_ref()? {
        Kind::StringValue(text) => Some(text.clone()),
        Kind::NumberValue(number) => Some(number.to_string()),
        Kind::BoolValue(truth) => Some(truth.to_string()),
        Kind::NullValue(_) | Kind::StructValue(_) | Kind::ListValue(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::Locality;

    use super::*;

    fn text(text: &str) -> Value {
        Value { kind: Some(Kind::StringValue(text.to_owned())) }
    }

    #[test]
    fn reads_service_mesh_tags_and_locality() {
        let tags = [
            ("version".to_owned(), text("v2")),
            ("zone".to_owned(), text("z1")),
            ("canary".to_owned(), Value { kind: Some(Kind::BoolValue(true)) }),
            ("weight".to_owned(), Value { kind: Some(Kind::NumberValue(2.0)) }),
            ("nothing".to_owned(), Value::default()),
        ];
        let tags = Value { kind: Some(Kind::StructValue(Struct { fields: tags.into() })) };
        let metadata = Struct { fields: [("mesh".to_owned(), text("m")), ("tags".to_owned(), tags)].into() };
        let locality = Locality { region: "eu".to_owned(), zone: "other".to_owned(), ..Default::default() };
        let node = Node {
            id: "a".to_owned(),
            cluster: "web".to_owned(),
            metadata: Some(metadata),
            locality: Some(locality),
            ..Default::default()
        };
        let tags = [("canary", "true"), ("region", "eu"), ("version", "v2"), ("weight", "2"), ("zone", "z1")];
        let expect = NodeIdentity {
            id: "a".to_owned(),
            service: "web".to_owned(),
            mesh: "m".to_owned(),
            tags: tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..NodeIdentity::default()
        };
        assert_eq!(NodeIdentity::read(&node), Ok(expect));
    }

    #[test]
    fn tells_whether_an_envoy_can_run_wasm() {
        let extension = |name: &str| Extension { name: name.to_owned(), ..Default::default() };
        let null = extension("envoy.wasm.runtime.null");
        let disabled = Extension { disabled: true, ..extension(WASM_RUNTIME) };
        let check = |extensions: &[&Extension], lacks: bool| {
            let extensions: Vec<_> = extensions.iter().copied().cloned().collect();
            let node = NodeIdentity::read(&Node { extensions, ..Default::default() }).unwrap();
            assert_eq!(node.lacks_wasm, lacks, "{node:?}");
        };
        check(&[], false);
        check(&[&null, &extension(WASM_RUNTIME)], false);
        check(&[&null], true);
        check(&[&null, &disabled], true);
    }

    #[test]
    fn reads_whether_the_bootstrap_allows_large_regexes() {
        let check = |value: Kind, expect: bool| {
            let fields = [("largeRegexes".to_owned(), Value { kind: Some(value) })].into();
            let node = Node { metadata: Some(Struct { fields }), ..Default::default() };
            assert_eq!(NodeIdentity::read(&node).unwrap().large_regexes, expect);
        };
        check(Kind::BoolValue(true), true);
        check(Kind::BoolValue(false), false);
        check(Kind::StringValue("true".to_owned()), false);
    }

    #[test]
    fn a_bare_node_is_of_the_default_mesh() {
        let node = Node { id: "a".to_owned(), ..Default::default() };
        let expect = NodeIdentity { id: "a".to_owned(), mesh: DEFAULT_MESH.to_owned(), ..Default::default() };
        assert_eq!(NodeIdentity::read(&node), Ok(expect));
    }

    #[test]
    fn refuses_what_is_too_long_by_its_name() {
        let long = "x".repeat(NAME + 1);
        let check = |node: Node, expect: &str| {
            let error = NodeIdentity::read(&node).unwrap_err().to_string();
            assert_eq!(error, format!("`{expect}` is 257 bytes long: at most 256 are taken"));
        };
        let metadata = |field: &str, value: Value| Some(Struct { fields: [(field.to_owned(), value)].into() });
        let tags = |name: &str, value: &str| {
            let fields = [(name.to_owned(), text(value))].into();
            metadata("tags", Value { kind: Some(Kind::StructValue(Struct { fields })) })
        };
        check(Node { id: long.clone(), ..Default::default() }, "node.id");
        check(Node { cluster: long.clone(), ..Default::default() }, "node.cluster");
        check(Node { metadata: metadata("mesh", text(&long)), ..Default::default() }, "node.metadata.mesh");
        check(Node { metadata: tags("stage", &long), ..Default::default() }, "node.metadata.tags.stage");
        let locality = Some(Locality { sub_zone: long.clone(), ..Default::default() });
        check(Node { locality, ..Default::default() }, "node.locality.sub_zone");
        let name = NodeIdentity::read(&Node { metadata: tags(&long, "v"), ..Default::default() }).unwrap_err();
        assert!(name.to_string().len() < 400 && name.to_string().contains("node.metadata.tags"), "{name}");
        let fields = (0..=MOST_TAGS).map(|number| (number.to_string(), text("v"))).collect();
        let many = metadata("tags", Value { kind: Some(Kind::StructValue(Struct { fields })) });
        let many = NodeIdentity::read(&Node { metadata: many, ..Default::default() });
        assert_eq!(many, Err(IdentityError::TooManyTags(MOST_TAGS + 1)));
        let longest = Node { id: "x".repeat(NAME), ..Default::default() };
        assert!(NodeIdentity::read(&longest).is_ok());
    }
}
