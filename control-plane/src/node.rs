//! What a node says of itself, and what decides which policies it gets. Parsed once, when its stream opens.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::config::core::v3::{Node, node::UserAgentVersionType},
    google::protobuf::{Struct, Value, value::Kind},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The mesh of nodes and resources that name none.
pub const DEFAULT_MESH: &str = "default";

/// The tags that a node's locality becomes.
pub const LOCALITY_TAGS: [&str; 3] = ["region", "zone", "subZone"];

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
}

impl Default for NodeIdentity {
    /// A node that says nothing of itself.
    fn default() -> Self {
        let (id, service, tags) = Default::default();
        Self { id, service, mesh: DEFAULT_MESH.to_owned(), tags, envoy: None }
    }
}

impl NodeIdentity {
    /// What a node's message says. A tag that is no text, number or truth value says nothing.
    pub fn read(node: &Node) -> Self {
        let metadata = node.metadata.as_ref();
        let field =
            |name| metadata.and_then(|metadata| metadata.fields.get(name)).and_then(|value| value.kind.as_ref());
        let mut tags = BTreeMap::new();
        if let Some(locality) = &node.locality {
            let places = [&locality.region, &locality.zone, &locality.sub_zone];
            let places = LOCALITY_TAGS.into_iter().zip(places).filter(|(_, place)| !place.is_empty());
            tags.extend(places.map(|(name, place)| (name.to_owned(), place.clone())));
        }
        if let Some(Kind::StructValue(Struct { fields })) = field("tags") {
            tags.extend(fields.iter().filter_map(|(name, value)| Some((name.clone(), scalar(value)?))));
        }
        let mesh = match field("mesh") {
            Some(Kind::StringValue(mesh)) if !mesh.is_empty() => mesh.clone(),
            _ => DEFAULT_MESH.to_owned(),
        };
        Self { id: node.id.clone(), service: node.cluster.clone(), mesh, tags, envoy: version(node) }
    }
}

/// The version that a node tells, in numbers: a text of its own choice would be of any length.
fn version(node: &Node) -> Option<String> {
    match node.user_agent_version_type.as_ref()? {
        UserAgentVersionType::UserAgentBuildVersion(build) => {
            let version = build.version.as_ref()?;
            Some(format!("{}.{}.{}", version.major_number, version.minor_number, version.patch))
        }
        UserAgentVersionType::UserAgentVersion(_) => None,
    }
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
            envoy: None,
        };
        assert_eq!(NodeIdentity::read(&node), expect);
    }

    #[test]
    fn a_bare_node_is_of_the_default_mesh() {
        let node = Node { id: "a".to_owned(), ..Default::default() };
        let expect = NodeIdentity { id: "a".to_owned(), mesh: DEFAULT_MESH.to_owned(), ..Default::default() };
        assert_eq!(NodeIdentity::read(&node), expect);
    }
}
