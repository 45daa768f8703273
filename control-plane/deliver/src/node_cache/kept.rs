//! What is kept of one node, and its encoding in a file.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use envoy_types::pb::google::protobuf::Any;
use postern_base::{digest::Digest, via_cache::Span};
use postern_compile::snapshot::{Author, Resource, ResourceSet, ResourceType};
use prost::Message;

/// The resources that a node accepted, by type.
pub(super) type Sets = BTreeMap<ResourceType, ResourceSet>;

/// What is kept of one node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    /// The resources that it accepted.
    pub(super) sets: Sets,
    /// When the control plane was last in contact with it.
    pub(super) contact: SystemTime,
    /// When it was last served from the cache.
    pub(super) served: Option<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct WireNode {
    /// In milliseconds since 1970.
    #[prost(uint64, tag = "1")]
    contact: u64,
    /// In seconds since 1970.
    #[prost(message, optional, tag = "2")]
    served: Option<WireSpan>,
    #[prost(message, repeated, tag = "3")]
    sets: Vec<WireSet>,
}

#[derive(Clone, PartialEq, Message)]
struct WireSpan {
    #[prost(uint64, tag = "1")]
    from: u64,
    #[prost(uint64, tag = "2")]
    until: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WireSet {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(message, repeated, tag = "3")]
    resources: Vec<WireResource>,
}

#[derive(Clone, PartialEq, Message)]
struct WireResource {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(message, optional, tag = "3")]
    body: Option<Any>,
}

impl Kept {
    /// The size of its resources, in bytes.
    pub(super) fn size(sets: &Sets) -> usize {
        let resources = sets.values().flat_map(|set| &set.resources);
        resources.map(|resource| resource.body.value.len().saturating_add(resource.name.len())).sum()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let resource = |resource: &Arc<Resource>| WireResource {
            name: resource.name.clone(),
            version: resource.version.as_str().to_owned(),
            body: Some(resource.body.clone()),
        };
        let set = |(kind, set): (&ResourceType, &ResourceSet)| WireSet {
            type_url: kind.type_url().to_owned(),
            version: set.version.as_str().to_owned(),
            resources: set.resources.iter().map(resource).collect(),
        };
        let since = self.contact.duration_since(UNIX_EPOCH).unwrap_or_default();
        let wire = WireNode {
            contact: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            served: self.served.map(|Span { from, until }| WireSpan { from, until }),
            sets: self.sets.iter().map(set).collect(),
        };
        wire.encode_to_vec()
    }

    /// Decodes what [`Self::encode`] wrote. The error says what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let wire = WireNode::decode(bytes).map_err(|error| error.to_string())?;
        let contact = UNIX_EPOCH.checked_add(Duration::from_millis(wire.contact)).ok_or("its time is no time")?;
        let sets = wire.sets.into_iter().map(|set| {
            let kind = ResourceType::from_type_url(&set.type_url).ok_or("it has a type that is not served")?;
            Ok((kind, set.read()?))
        });
        let served = wire.served.map(|WireSpan { from, until }| Span { from, until });
        Ok(Self { sets: sets.collect::<Result<_, &str>>()?, contact, served })
    }
}

impl WireSet {
    fn read(self) -> Result<ResourceSet, &'static str> {
        let resource = |wire: WireResource| {
            let version = Digest::from_hex(&wire.version).ok_or("a version is no digest")?;
            let body = wire.body.ok_or("a resource has no content")?;
            Ok((wire.name.clone(), Arc::new(Resource { name: wire.name, version, body, author: Author::Postern })))
        };
        let resources = self.resources.into_iter().map(resource).collect::<Result<BTreeMap<_, _>, &str>>()?;
        let version = Digest::from_hex(&self.version).ok_or("a version is no digest")?;
        Ok(ResourceSet { version, resources: resources.into_values().collect() })
    }
}

/// A resource as a control plane sent it. A version that is no digest, which Postern sends none of, becomes the digest
/// of the content.
pub(super) fn resource(name: String, version: &str, body: Any) -> Arc<Resource> {
    let version = Digest::from_hex(version).unwrap_or_else(|| Digest::of(&body.value));
    Arc::new(Resource { name, version, body, author: Author::Postern })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_decoded_as_it_was_encoded() {
        let body = Any { type_url: "t".to_owned(), value: vec![1, 2, 3] };
        let set = ResourceSet { version: Digest::of(b"v"), resources: vec![resource("a".to_owned(), "odd", body)] };
        let kept = Kept {
            sets: [(ResourceType::Cluster, set), (ResourceType::Listener, ResourceSet::from_iter([]))].into(),
            contact: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            served: Some(Span { from: 1, until: 2 }),
        };
        assert_eq!(Kept::decode(&kept.encode()), Ok(kept));
        assert!(Kept::decode(b"\xff\xff").is_err());
    }
}
