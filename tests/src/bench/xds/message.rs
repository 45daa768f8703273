//! The messages of a stream, in bytes. Requests are encoded whole; of responses only the head is read.

use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
};
use prost::{Message, bytes::Bytes};

use super::{case::Variant, site};

/// The two types that a stream wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Clusters,
    Filter,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Clusters, Self::Filter];

    const fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Filter => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        }
    }

    pub(super) fn of(head: &Head) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == head.type_url)
    }

    /// The names to subscribe to: all clusters, or the one resource of the filter's configuration.
    fn names(self) -> Vec<String> {
        match self {
            Self::Clusters => Vec::new(),
            Self::Filter => vec![postern_compile::snapshot::FILTER_NAME.to_owned()],
        }
    }
}

/// The head of a response: the fields that both variants have under the same numbers. The resources are skipped.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Head {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// The path of a variant's service.
pub(super) const fn path(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        Variant::Delta => "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
    }
}

/// Asks for a type. Only the first request of a stream names its node.
pub(super) fn subscription(variant: Variant, kind: Kind, node: Option<&str>) -> Bytes {
    let node = node.map(|id| Node { id: id.to_owned(), cluster: "bench".to_owned(), ..Default::default() });
    let type_url = kind.type_url().to_owned();
    match variant {
        Variant::Sotw => {
            frame(&DiscoveryRequest { node, type_url, resource_names: kind.names(), ..Default::default() })
        }
        Variant::Delta => {
            let resource_names_subscribe = kind.names();
            frame(&DeltaDiscoveryRequest { node, type_url, resource_names_subscribe, ..Default::default() })
        }
    }
}

/// Accepts a response.
pub(super) fn acceptance(variant: Variant, kind: Kind, head: Head) -> Bytes {
    let Head { version: version_info, type_url, nonce: response_nonce } = head;
    match variant {
        Variant::Sotw => frame(&DiscoveryRequest {
            version_info,
            type_url,
            response_nonce,
            resource_names: kind.names(),
            ..Default::default()
        }),
        Variant::Delta => frame(&DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() }),
    }
}

/// The number of the change that a response carries.
pub(super) fn change(response: &[u8]) -> Option<usize> {
    let place = memchr::memmem::find(response, site::MARK)?;
    let rest = response.get(place + site::MARK.len()..)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()
}

/// A message as gRPC puts it into a body: a flag for its compression, its length, and itself.
fn frame(message: &impl Message) -> Bytes {
    let body = message.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], &body].concat().into()
}

/// Takes messages out of a body that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of a message that is not whole yet.
    begun: Vec<u8>,
}

impl Frames {
    const HEAD: usize = 5;

    /// Adds a piece. Each message that it completes is handed to `take`.
    pub(super) fn push(&mut self, piece: &[u8], mut take: impl FnMut(&[u8])) {
        let joined = (!self.begun.is_empty()).then(|| [&self.begun, piece].concat());
        let mut rest = joined.as_deref().unwrap_or(piece);
        while let Some((message, after)) = Self::split(rest) {
            take(message);
            rest = after;
        }
        let begun = rest.to_vec();
        self.begun = begun;
    }

    fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<{ Self::HEAD }>()?;
        let [_, length @ ..] = *head;
        rest.split_at_checked(u32::from_be_bytes(length).try_into().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

    use super::*;

    #[test]
    fn reads_the_head_of_both_variants() {
        let (type_url, nonce) = (Kind::Filter.type_url().to_owned(), "7".to_owned());
        let version = "v".to_owned();
        let expect = Head { version: version.clone(), type_url: type_url.clone(), nonce: nonce.clone() };
        let (version_info, resources) = (version.clone(), vec![Default::default(); 3]);
        let sotw = DiscoveryResponse {
            version_info,
            resources,
            type_url: type_url.clone(),
            nonce: nonce.clone(),
            ..Default::default()
        };
        let resources = vec![Default::default(); 3];
        let delta =
            DeltaDiscoveryResponse { system_version_info: version, resources, type_url, nonce, ..Default::default() };
        assert_eq!(Head::decode(sotw.encode_to_vec().as_slice()).unwrap(), expect);
        assert_eq!(Head::decode(delta.encode_to_vec().as_slice()).unwrap(), expect);
        assert_eq!(Kind::of(&expect), Some(Kind::Filter));
    }

    #[test]
    fn finds_the_number_of_a_change() {
        assert_eq!(change(b"\x0a\x1ebench-change-12.bench.test\x12"), Some(12));
        assert_eq!(change(b"bench-change"), None);
        assert_eq!(change(b"bench-change-.test"), None);
    }

    #[test]
    fn puts_messages_together_however_they_are_cut() {
        let bodies = ["a", "", "some more"];
        let bytes: Vec<u8> =
            bodies.iter().flat_map(|body| [&[0, 0, 0, 0, body.len() as u8], body.as_bytes()].concat()).collect();
        for size in 1..=bytes.len() {
            let (mut frames, mut messages) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.push(piece, |message| messages.push(String::from_utf8_lossy(message).into_owned()));
            }
            assert_eq!(messages, bodies, "in pieces of {size}");
        }
    }
}
