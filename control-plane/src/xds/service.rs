//! The gRPC face of xDS: it moves messages between a stream and its [`Session`], and events to the fleet's status.

use std::{pin::Pin, sync::Arc, time::SystemTime};

use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::AggregatedDiscoveryService,
    },
};
use tokio::sync::{mpsc, watch};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

use super::session::{Event, Outcome, Reaction, Request, Response, Session};
use crate::{
    fleet::Refusal,
    gate,
    node::NodeIdentity,
    publication::Publication,
    serve::Hub,
    snapshot::{ResourceType, Snapshot},
};

/// How many responses may wait for a client that reads slowly. Newer snapshots wait, merged, behind them.
const WAITING_RESPONSES: usize = 8;

/// The aggregated discovery service.
#[derive(Debug, Clone)]
pub struct Ads {
    hub: Arc<Hub>,
}

impl Ads {
    /// Serves what the hub publishes.
    pub fn new(hub: Arc<Hub>) -> Self {
        Self { hub }
    }
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: tonic::Request<Streaming<DiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (sender, receiver) = mpsc::channel(WAITING_RESPONSES);
        let hub = Arc::clone(&self.hub);
        tokio::spawn(async move {
            if let Err(status) = converse(&hub, request.into_inner(), &sender).await {
                tracing::warn!(code = ?status.code(), message = status.message(), "xDS stream ended");
                // The client may be gone, and then nobody needs to be told.
                let _ = sender.send(Err(status)).await;
            }
        });
        Ok(tonic::Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn delta_aggregated_resources(
        &self,
        _request: tonic::Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("delta xDS is not served yet: set `api_type: GRPC` in the bootstrap's `ads_config`"))
    }
}

type Sender = mpsc::Sender<Result<DiscoveryResponse, Status>>;

/// Serves one stream to its end.
async fn converse(hub: &Hub, mut requests: Streaming<DiscoveryRequest>, sender: &Sender) -> Result<(), Status> {
    let Some(first) = requests.message().await? else {
        return Ok(());
    };
    let node = NodeIdentity::read(first.node.as_ref().unwrap_or(&Node::default()));
    if node.id.is_empty() {
        return Err(Status::invalid_argument("the first request of a stream must name its node: `node.id` is empty"));
    }
    let memory = hub.fleet().connect(&node.id, &node.service, SystemTime::now());
    tracing::info!(node = node.id, service = node.service, "connected");
    let mut stream = NodeStream { hub, sender, node, session: Session::new(memory) };
    let result = stream.run(first, requests).await;
    tracing::info!(node = stream.node.id, "disconnected");
    hub.fleet().disconnect(&stream.node.id, stream.session.into_memory(), SystemTime::now());
    result
}

struct NodeStream<'a> {
    hub: &'a Hub,
    sender: &'a Sender,
    node: NodeIdentity,
    session: Session,
}

impl NodeStream<'_> {
    async fn run(&mut self, first: DiscoveryRequest, mut requests: Streaming<DiscoveryRequest>) -> Result<(), Status> {
        let mut publications = self.hub.publications();
        self.on_request(first, &mut publications).await?;
        loop {
            tokio::select! {
                request = requests.message() => match request? {
                    Some(request) => self.on_request(request, &mut publications).await?,
                    None => return Ok(()),
                },
                changed = publications.changed() => {
                    if changed.is_err() {
                        return Err(Status::unavailable("the control plane is shutting down"));
                    }
                    self.on_snapshot(&mut publications).await?;
                }
            }
        }
    }

    async fn on_request(&mut self, request: DiscoveryRequest, publications: &mut Publications) -> Result<(), Status> {
        if request.type_url.is_empty() {
            return Err(Status::invalid_argument("`type_url` is empty: an aggregated stream carries many types"));
        }
        let Some(kind) = ResourceType::from_type_url(&request.type_url) else {
            tracing::debug!(node = self.node.id, type_url = request.type_url, "asked for a type that is not served");
            return Ok(());
        };
        let request = Request {
            version: request.version_info,
            nonce: request.response_nonce,
            names: request.resource_names,
            error: request.error_detail.map(|status| status.message),
        };
        // Not marked as seen: the session brings only this type up to date, `changed` the others.
        let snapshot = publications.borrow().as_ref().map(|publication| publication.snapshot_for(&self.node));
        let reaction = self.session.on_request(kind, request, snapshot.as_deref());
        self.carry_out(reaction, snapshot.as_deref()).await
    }

    async fn on_snapshot(&mut self, publications: &mut Publications) -> Result<(), Status> {
        let Some(publication) = publications.borrow_and_update().clone() else {
            return Ok(());
        };
        let snapshot = publication.snapshot_for(&self.node);
        let reaction = self.session.on_snapshot(&snapshot);
        self.carry_out(reaction, Some(&snapshot)).await
    }

    async fn carry_out(&self, reaction: Reaction, snapshot: Option<&Snapshot>) -> Result<(), Status> {
        for event in reaction.events {
            self.record(event, snapshot);
        }
        for response in reaction.responses {
            tracing::debug!(node = self.node.id, kind = %response.kind, version = response.set.version.short(), "sent");
            let sent = self.sender.send(Ok(encode(response))).await;
            sent.map_err(|_| Status::cancelled("the client went away"))?;
        }
        Ok(())
    }

    fn record(&self, event: Event, snapshot: Option<&Snapshot>) {
        let Event { kind, version, outcome } = event;
        let (node, shown) = (self.node.id.as_str(), version.short());
        match outcome {
            Outcome::Acked => {
                tracing::info!(node, %kind, version = shown, "accepted");
                self.hub.fleet().acked(node, kind, version);
            }
            Outcome::Restored => {
                tracing::warn!(node, %kind, version = shown, "back on its last good version");
                self.hub.fleet().restored(node, kind, version);
            }
            Outcome::Nacked(message) => {
                let reason = filter_reason(kind, snapshot);
                let why = reason.as_deref().unwrap_or("not known here");
                tracing::error!(node, %kind, version = shown, message, reason = why, "refused");
                self.hub.fleet().nacked(node, kind, Refusal::new(version, message, reason, SystemTime::now()));
            }
        }
    }
}

type Publications = watch::Receiver<Option<Arc<Publication>>>;

/// Envoy's words for a refused filter do not say why; the filter's own do, and the engine has them here too.
fn filter_reason(kind: ResourceType, snapshot: Option<&Snapshot>) -> Option<String> {
    let snapshot = snapshot.filter(|_| kind == ResourceType::ExtensionConfig)?;
    Some(gate::diagnose(snapshot.plan())?.to_string())
}

fn encode(response: Response) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: response.set.version.as_str().to_owned(),
        resources: response.set.resources.iter().map(|resource| resource.body.clone()).collect(),
        type_url: response.kind.type_url().to_owned(),
        nonce: response.nonce,
        ..Default::default()
    }
}
