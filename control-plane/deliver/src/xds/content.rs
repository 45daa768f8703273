//! The content of a response without its nonce: encoded once, and shared by every stream that is sent it.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource as WireResource,
};
use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceType};
use prost::{Message, bytes::Bytes};

/// The variant of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// State of the world: each response has all resources of its type.
    StateOfTheWorld,
    /// Incremental: each response has what changed.
    Incremental,
}

/// A response without its nonce.
#[derive(Debug)]
pub struct Content {
    /// The variant of the protocol.
    pub variant: Variant,
    /// The type of its resources.
    pub kind: ResourceType,
    /// The version of all that the client is to have of the type after this response.
    pub version: Digest,
    /// The resources, sorted by name.
    pub resources: Vec<Arc<Resource>>,
    /// The names that were removed or do not exist (incremental only).
    pub removed: Vec<String>,
    /// Names that were asked for and match nothing (virtual hosts only).
    pub vacant: Vec<String>,
    /// The other names of a resource, by its own name (virtual hosts only).
    pub aliases: BTreeMap<String, Vec<String>>,
    encoded: OnceLock<Bytes>,
}

impl Content {
    /// A response with these resources only.
    pub(super) fn new(variant: Variant, kind: ResourceType, version: Digest, resources: Vec<Arc<Resource>>) -> Self {
        Self {
            variant,
            kind,
            version,
            resources,
            removed: Vec::new(),
            vacant: Vec::new(),
            aliases: BTreeMap::new(),
            encoded: OnceLock::new(),
        }
    }

    /// The names of its resources, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.resources.iter().map(|resource| resource.name.as_str()).collect()
    }

    /// Whether it has a resource of this name and version.
    pub(super) fn carries(&self, name: &str, version: &Digest) -> bool {
        let place = self.resources.binary_search_by(|resource| resource.name.as_str().cmp(name));
        place.ok().and_then(|place| self.resources.get(place)).is_some_and(|resource| resource.version == *version)
    }

    /// The encoded response without its nonce. Fields of a protobuf message may come in any order, so that the nonce
    /// can be put before or after these bytes.
    pub fn encoded(&self) -> Bytes {
        let encode = || match self.variant {
            Variant::StateOfTheWorld => self.state_of_the_world().encode_to_vec().into(),
            Variant::Incremental => self.incremental().encode_to_vec().into(),
        };
        self.encoded.get_or_init(encode).clone()
    }

    fn state_of_the_world(&self) -> DiscoveryResponse {
        DiscoveryResponse {
            version_info: self.version.as_str().to_owned(),
            resources: self.resources.iter().map(|resource| resource.body.clone()).collect(),
            type_url: self.kind.type_url().to_owned(),
            ..Default::default()
        }
    }

    fn incremental(&self) -> DeltaDiscoveryResponse {
        let resources = self.resources.iter().map(|resource| WireResource {
            name: resource.name.clone(),
            aliases: self.aliases.get(&resource.name).cloned().unwrap_or_default(),
            version: resource.version.as_str().to_owned(),
            resource: Some(resource.body.clone()),
            ..Default::default()
        });
        // An unknown host is answered by a resource without a body, under exactly the requested name.
        let vacant = self.vacant.iter().map(|name| WireResource {
            name: name.clone(),
            aliases: vec![name.clone()],
            ..Default::default()
        });
        DeltaDiscoveryResponse {
            system_version_info: self.version.as_str().to_owned(),
            resources: resources.chain(vacant).collect(),
            type_url: self.kind.type_url().to_owned(),
            removed_resources: self.removed.clone(),
            ..Default::default()
        }
    }
}
