//! Decodes messages of clients into requests of a session. Malformed messages get a status with the reason.

use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    google::rpc::Status as GrpcStatus,
};
use postern_base::{
    bounded::{self, NAME, RESOURCE_NAME},
    node::NodeIdentity,
};
use postern_compile::snapshot::ResourceType;
use prost::Message;
use tonic::Status;

use super::{
    content::Variant,
    limits::MOST_NAMES,
    session::{Request, Wish},
};

/// The types that a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All types: the aggregated service.
    Aggregated,
    /// One type.
    Single(ResourceType),
}

/// A request message, in either variant of the protocol.
pub trait ClientMessage: Message + Default + 'static {
    /// The variant.
    const VARIANT: Variant;

    /// The node, if the message names one.
    fn node(&self) -> Option<&Node>;

    /// The type URL.
    fn type_url(&self) -> &str;

    /// The request in the message. Fails with a status if names or versions are too long or too many.
    fn into_request(self, kind: ResourceType) -> Result<Request, Status>;
}

impl ClientMessage for DiscoveryRequest {
    const VARIANT: Variant = Variant::StateOfTheWorld;

    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn type_url(&self) -> &str {
        &self.type_url
    }

    fn into_request(self, kind: ResourceType) -> Result<Request, Status> {
        short("version_info", &self.version_info)?;
        Ok(Request {
            kind,
            nonce: nonce(self.response_nonce)?,
            error: refusal(self.error_detail),
            wish: Wish::All { names: names("resource_names", self.resource_names, kind)?, version: self.version_info },
        })
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

    fn into_request(self, kind: ResourceType) -> Result<Request, Status> {
        few("initial_resource_versions", self.initial_resource_versions.len())?;
        for (name, version) in &self.initial_resource_versions {
            short("initial_resource_versions", version)?;
            if kind != ResourceType::VirtualHost {
                within("initial_resource_versions", name, RESOURCE_NAME)?;
            }
        }
        let is_short = |(name, _): &(String, String)| name.len() <= RESOURCE_NAME;
        Ok(Request {
            kind,
            nonce: nonce(self.response_nonce)?,
            error: refusal(self.error_detail),
            wish: Wish::Changes {
                subscribe: names("resource_names_subscribe", self.resource_names_subscribe, kind)?,
                unsubscribe: names("resource_names_unsubscribe", self.resource_names_unsubscribe, kind)?,
                initial: self.initial_resource_versions.into_iter().filter(is_short).collect(),
            },
        })
    }
}

/// The names to subscribe to. Virtual hosts that cannot exist are ignored, because callers of an Envoy choose these
/// names and must not be able to end its stream. All other invalid names are an error.
fn names(field: &str, mut names: Vec<String>, kind: ResourceType) -> Result<Vec<String>, Status> {
    if kind == ResourceType::VirtualHost {
        names.retain(|name| name.len() <= RESOURCE_NAME);
        names.truncate(MOST_NAMES);
        return Ok(names);
    }
    few(field, names.len())?;
    names.iter().try_for_each(|name| within(field, name, RESOURCE_NAME))?;
    Ok(names)
}

fn short(field: &str, name: &str) -> Result<(), Status> {
    within(field, name, NAME)
}

fn within(field: &str, name: &str, most: usize) -> Result<(), Status> {
    let size = name.len();
    if size <= most {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("`{field}` is {size} bytes long: at most {most} are taken")))
}

fn few(field: &str, number: usize) -> Result<(), Status> {
    if number <= MOST_NAMES {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("`{field}` has {number} entries: at most {MOST_NAMES} are taken")))
}

fn nonce(nonce: String) -> Result<String, Status> {
    short("response_nonce", &nonce).map(|()| nonce)
}

/// The client's error message, shortened to the limit.
fn refusal(detail: Option<GrpcStatus>) -> Option<String> {
    detail.map(|status| bounded::message(status.message))
}

/// The node that the first message of a stream must name. Later messages may omit it.
pub fn node_of(first: &impl ClientMessage) -> Result<NodeIdentity, Status> {
    let node = first.node().map(NodeIdentity::read).transpose();
    let node = node.map_err(|error| Status::invalid_argument(error.to_string()))?.unwrap_or_default();
    if node.id.is_empty() {
        return Err(Status::invalid_argument("the first request of a stream must name its node: `node.id` is empty"));
    }
    Ok(node)
}

impl Scope {
    /// The request in a message. `None` for a type that is not served: the other types of the stream are not affected.
    pub fn read(self, message: impl ClientMessage) -> Result<Option<Request>, Status> {
        let url = message.type_url();
        short("type_url", url)?;
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
        kind.map(|kind| message.into_request(kind)).transpose()
    }
}
