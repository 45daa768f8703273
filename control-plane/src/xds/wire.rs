//! Messages of clients → requests of a session. What cannot be understood gets a status that says why.

use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
};
use prost::Message;
use tonic::Status;

use super::{
    content::Variant,
    session::{Request, Wish},
};
use crate::{node::NodeIdentity, snapshot::ResourceType};

/// Which types a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of them: the aggregated service.
    Aggregated,
    /// One.
    Single(ResourceType),
}

/// A request, in either variant of the protocol.
pub trait ClientMessage: Message + Default + 'static {
    /// The variant.
    const VARIANT: Variant;

    /// Who asks, if it says so.
    fn node(&self) -> Option<&Node>;

    /// The type that it is about.
    fn type_url(&self) -> &str;

    /// What it says about that type.
    fn into_request(self, kind: ResourceType) -> Request;
}

impl ClientMessage for DiscoveryRequest {
    const VARIANT: Variant = Variant::StateOfTheWorld;

    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn type_url(&self) -> &str {
        &self.type_url
    }

    fn into_request(self, kind: ResourceType) -> Request {
        Request {
            kind,
            nonce: self.response_nonce,
            error: self.error_detail.map(|status| status.message),
            wish: Wish::All { names: self.resource_names, version: self.version_info },
        }
    }
}

impl ClientMessage for DeltaDiscoveryRequest {
    const VARIANT: Variant = Variant::Incremental;

    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn type_url(&self) -> &str {
        &self.type_url
    }

    fn into_request(self, kind: ResourceType) -> Request {
        Request {
            kind,
            nonce: self.response_nonce,
            error: self.error_detail.map(|status| status.message),
            wish: Wish::Changes {
                subscribe: self.resource_names_subscribe,
                unsubscribe: self.resource_names_unsubscribe,
                initial: self.initial_resource_versions.into_iter().collect(),
            },
        }
    }
}

/// The node that the first message of a stream must name. Later ones may leave it out.
#[expect(clippy::result_large_err, reason = "the status is what the client gets")]
pub fn node_of(first: &impl ClientMessage) -> Result<NodeIdentity, Status> {
    let node = first.node().map(NodeIdentity::read).unwrap_or_default();
    if node.id.is_empty() {
        return Err(Status::invalid_argument("the first request of a stream must name its node: `node.id` is empty"));
    }
    Ok(node)
}

impl Scope {
    /// What a message asks of the session. `None` for a type that is not served: the other types of the stream go on.
    #[expect(clippy::result_large_err, reason = "the status is what the client gets")]
    pub fn read(self, message: impl ClientMessage) -> Result<Option<Request>, Status> {
        let url = message.type_url();
        let kind = match (self, ResourceType::from_type_url(url)) {
            (Self::Single(kind), _) if url.is_empty() => Some(kind),
            (Self::Single(kind), named) if named != Some(kind) => {
                let message = format!("`type_url` is `{url}`, but this service serves `{}`", kind.type_url());
                return Err(Status::invalid_argument(message));
            }
            (Self::Aggregated, None) if url.is_empty() => {
                return Err(Status::invalid_argument("`type_url` is empty: an aggregated stream carries many types"));
            }
            (_, named) => named,
        };
        Ok(kind.map(|kind| message.into_request(kind)))
    }
}
