//! The two variants of xDS as this cache sees them: wire messages to plain values and back.

use std::{collections::BTreeSet, sync::Arc};

use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            Resource as WireResource, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::protobuf::Any,
};
use postern_compile::snapshot::{Resource, ResourceType};
use prost::{DecodeError, Message, Name};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Channel};

use super::{
    kept::resource,
    tracker::{Doubts, Received},
};
use crate::xds::{session::Response, wire::ClientMessage};

/// The largest response of the control plane that is relayed, in bytes: the filter's code may be in it.
const LARGEST_RESPONSE: usize = 256 << 20;

/// A variant of the aggregated protocol.
pub(super) trait Protocol: Send + 'static {
    type Request: ClientMessage + Clone + Send;
    type Response: Message + Default + Send;

    /// Opens a stream to the control plane.
    fn open(
        channel: Channel,
        requests: ReceiverStream<Self::Request>,
    ) -> impl Future<Output = Result<Streaming<Self::Response>, Status>> + Send;

    /// The node that a request names.
    fn node(request: &mut Self::Request) -> Option<&mut Node>;

    /// Takes back claims, so that the control plane sends what they are about.
    fn take_back(request: &mut Self::Request, doubts: &Doubts);

    /// What is in a response. `None` if its type is not kept.
    fn read(response: &Self::Response) -> Result<Option<Received>, DecodeError>;

    /// A response of our own.
    fn write(response: &Response) -> Result<Self::Response, DecodeError>;
}

/// State of the world.
#[derive(Debug)]
pub(super) struct World;

/// Incremental.
#[derive(Debug)]
pub(super) struct Changes;

impl Protocol for World {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    async fn open(
        channel: Channel,
        requests: ReceiverStream<DiscoveryRequest>,
    ) -> Result<Streaming<DiscoveryResponse>, Status> {
        let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(LARGEST_RESPONSE);
        Ok(client.stream_aggregated_resources(requests).await?.into_inner())
    }

    fn node(request: &mut DiscoveryRequest) -> Option<&mut Node> {
        request.node.as_mut()
    }

    fn take_back(request: &mut DiscoveryRequest, doubts: &Doubts) {
        if doubts.version {
            request.version_info.clear();
        }
    }

    fn read(response: &DiscoveryResponse) -> Result<Option<Received>, DecodeError> {
        let Some(kind) = ResourceType::from_type_url(&response.type_url) else { return Ok(None) };
        let resources = response.resources.iter().map(unwrapped).collect::<Result<_, _>>()?;
        let (nonce, version) = (response.nonce.clone(), response.version_info.clone());
        Ok(Some(Received { kind, nonce, version, resources, removed: Vec::new() }))
    }

    fn write(response: &Response) -> Result<DiscoveryResponse, DecodeError> {
        let content = DiscoveryResponse::decode(response.content.encoded())?;
        Ok(DiscoveryResponse { nonce: response.nonce.clone(), ..content })
    }
}

impl Protocol for Changes {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    async fn open(
        channel: Channel,
        requests: ReceiverStream<DeltaDiscoveryRequest>,
    ) -> Result<Streaming<DeltaDiscoveryResponse>, Status> {
        let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(LARGEST_RESPONSE);
        Ok(client.delta_aggregated_resources(requests).await?.into_inner())
    }

    fn node(request: &mut DeltaDiscoveryRequest) -> Option<&mut Node> {
        request.node.as_mut()
    }

    fn take_back(request: &mut DeltaDiscoveryRequest, doubts: &Doubts) {
        // The name stays: the control plane must still remove what is gone.
        for (name, version) in &mut request.initial_resource_versions {
            if doubts.names.contains(name) {
                version.clear();
            }
        }
    }

    fn read(response: &DeltaDiscoveryResponse) -> Result<Option<Received>, DecodeError> {
        let Some(kind) = ResourceType::from_type_url(&response.type_url) else { return Ok(None) };
        // One without content stands for a virtual host that does not exist.
        let full = response.resources.iter().filter_map(|it| Some((it, it.resource.clone()?)));
        let resources = full.map(|(it, body)| resource(it.name.clone(), &it.version, body)).collect();
        let removed: BTreeSet<_> = response.removed_resources.iter().cloned().collect();
        let (nonce, version) = (response.nonce.clone(), response.system_version_info.clone());
        Ok(Some(Received { kind, nonce, version, resources, removed: removed.into_iter().collect() }))
    }

    fn write(response: &Response) -> Result<DeltaDiscoveryResponse, DecodeError> {
        let content = DeltaDiscoveryResponse::decode(response.content.encoded())?;
        Ok(DeltaDiscoveryResponse { nonce: response.nonce.clone(), ..content })
    }
}

/// The name of a resource: the first field of every type that is served.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

/// A resource of a response in the state of the world, which may be wrapped to carry its name.
fn unwrapped(body: &Any) -> Result<Arc<Resource>, DecodeError> {
    if body.type_url != WireResource::type_url() {
        let name = Named::decode(body.value.as_slice())?.name;
        return Ok(resource(name, "", body.clone()));
    }
    let wrapped = WireResource::decode(body.value.as_slice())?;
    Ok(resource(wrapped.name, &wrapped.version, wrapped.resource.unwrap_or_default()))
}
