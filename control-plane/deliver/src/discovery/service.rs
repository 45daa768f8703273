//! The gRPC service of policy discovery: moves messages between streams, their [`Session`]s and the registry of
//! clients.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use postern_base::{bounded, digest::Digest};
use postern_proto::discovery::v1::{
    HealthCheckRequest, HealthCheckResponse, PolicyDiscoveryRequest, PolicyDiscoveryResponse,
    policy_discovery_server::{PolicyDiscovery, PolicyDiscoveryServer},
};
use postern_release::publication::Audience;
use tokio::{
    sync::{mpsc, oneshot},
    time,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

use super::{
    Clients, Session, Ticket, clients,
    identity::{self, IdentityError, check_address, check_length},
    report::GroupReport,
    session::{Reaction, Request},
    update::Update,
};
use crate::xds::service::ConnectionHandle;

/// The maximum size of a request, which has an identity, two digests, an error and 64 tags.
const LARGEST_REQUEST: usize = 64 * 1024;
/// The time limit for the first request of a stream.
const TIME_TO_FIRST_REQUEST: Duration = Duration::from_secs(30);
/// The maximum number of connected clients.
const MOST_CLIENTS: usize = 10_000;

/// The longest time that a client may leave a response unread.
const LONGEST_STALL: Duration = Duration::from_secs(30);
/// The longest wait for a client that does not read, when its stream ends.
const LONGEST_FAREWELL: Duration = Duration::from_secs(5);

/// Options of policy discovery.
#[derive(Debug, Clone, Args)]
#[group(id = "discovery-options")]
#[command(next_help_heading = "Policy discovery")]
pub struct Options {
    /// How long a client that owes an answer may be silent, in seconds, before nobody waits for it; its stream goes on
    #[arg(long = "discovery-max-inactive", value_name = "SECONDS", value_parser = seconds, default_value = "300")]
    pub max_inactive: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_inactive: Duration::from_secs(300) }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a number of seconds from 1 to 86400".to_owned()),
    }
}

/// The policy discovery service.
#[derive(Debug, Clone)]
pub struct Discovery {
    clients: Arc<Clients>,
    options: Options,
}

impl Discovery {
    /// The service for these clients.
    pub fn new(clients: Arc<Clients>, options: Options) -> Self {
        Self { clients, options }
    }

    /// The service as tonic's server.
    pub fn into_server(self) -> PolicyDiscoveryServer<Self> {
        PolicyDiscoveryServer::new(self).max_decoding_message_size(LARGEST_REQUEST)
    }

    /// Waits until every client has answered the version that it is to have, by accepting or refusing it. Silent
    /// clients are not waited for. If another version is put in force meanwhile, that one is waited for instead.
    pub async fn all_acked(&self) -> Vec<GroupReport> {
        self.clients.all_acked().await
    }

    /// Like [`Self::all_acked`], for the clients of one version. `None` if no connected client is to have it, or none
    /// any longer.
    pub async fn group_all_acked(&self, version: &Digest) -> Option<GroupReport> {
        self.clients.group_all_acked(version).await
    }

    /// The connected clients, by the version that they are to have.
    pub async fn report(&self) -> Vec<GroupReport> {
        self.clients.report().await
    }

    /// Marks silent clients at intervals, so that they are no longer waited for. Never returns.
    pub async fn flush_inactive(&self) -> Infallible {
        let longest = self.options.max_inactive;
        let mut ticks = time::interval((longest / 4).max(Duration::from_millis(10)));
        loop {
            ticks.tick().await;
            let flushed = self.clients.registry().flush(Instant::now(), longest);
            for client in &flushed {
                tracing::warn!(client, silence = ?longest, "not waited for, since nothing was heard of it");
            }
            if !flushed.is_empty() {
                self.clients.changed();
            }
        }
    }
}

impl From<IdentityError> for Status {
    fn from(error: IdentityError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

#[tonic::async_trait]
impl PolicyDiscovery for Discovery {
    type StreamPoliciesStream = Pin<Box<dyn Stream<Item = Result<PolicyDiscoveryResponse, Status>> + Send>>;

    async fn stream_policies(
        &self,
        request: tonic::Request<Streaming<PolicyDiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::StreamPoliciesStream>, Status> {
        // At most one update is queued: a newer one replaces all that a slow client has not received yet.
        let (sender, receiver) = mpsc::channel(1);
        let clients = Arc::clone(&self.clients);
        // A connection with only such streams is in use too.
        let used = request.extensions().get::<Arc<ConnectionHandle>>().map(ConnectionHandle::used);
        tokio::spawn(async move {
            let _used = used;
            if let Err(status) = converse(&clients, request.into_inner(), &sender).await {
                tracing::warn!(code = ?status.code(), message = status.message(), "policy discovery stream ended");
                // If the client is gone or does not read, it cannot be told.
                let _ = time::timeout(LONGEST_FAREWELL, sender.send(Err(status))).await;
            }
        });
        Ok(tonic::Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn health_check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        // So is a connection with only such calls, if they are frequent enough.
        let _used = request.extensions().get::<Arc<ConnectionHandle>>().map(ConnectionHandle::used);
        let address = request.into_inner().client_address;
        check_address(&address)?;
        self.clients.catch_up().await;
        let (connected, version) = self.clients.registry().health_check(&address, Instant::now());
        let version_info = version.map(|version| version.to_string()).unwrap_or_default();
        Ok(tonic::Response::new(HealthCheckResponse { connected, version_info }))
    }
}

type Sender = mpsc::Sender<Result<PolicyDiscoveryResponse, Status>>;

/// Serves one stream to its end.
async fn converse(
    clients: &Arc<Clients>,
    mut requests: Streaming<PolicyDiscoveryRequest>,
    sender: &Sender,
) -> Result<(), Status> {
    let first = time::timeout(TIME_TO_FIRST_REQUEST, requests.message()).await;
    let late = |_| Status::deadline_exceeded(format!("no request came within {TIME_TO_FIRST_REQUEST:?}"));
    let Some(first) = first.map_err(late)?? else {
        return Ok(());
    };
    let audience = Arc::new(identity::read(&first)?);
    let (cut, ended) = oneshot::channel();
    let mut stream = ClientStream::open(clients, sender, &first, audience, cut)?;
    let result = tokio::select! {
        result = stream.run(first, requests) => result,
        Ok(status) = ended => Err(status),
        // Without this, a disconnect would be noticed only when something is sent.
        () = sender.closed() => Ok(()),
    };
    tracing::info!(client = stream.ticket.address(), "disconnected from policies");
    clients.registry().disconnect(&stream.ticket);
    clients.changed();
    result
}

struct ClientStream<'a> {
    clients: &'a Arc<Clients>,
    sender: &'a Sender,
    audience: Arc<Audience>,
    ticket: Ticket,
    session: Session,
}

impl<'a> ClientStream<'a> {
    fn open(
        clients: &'a Arc<Clients>,
        sender: &'a Sender,
        first: &PolicyDiscoveryRequest,
        audience: Arc<Audience>,
        cut: clients::Cut,
    ) -> Result<Self, Status> {
        let address = &first.client_address;
        let mut registry = clients.registry();
        if !registry.has_room_for(address, MOST_CLIENTS) {
            let message = format!("{MOST_CLIENTS} clients are connected for policies, and no more are served");
            return Err(Status::resource_exhausted(message));
        }
        let (ticket, replaced) = registry.connect(address, Arc::clone(&audience), Instant::now(), cut);
        drop(registry);
        if let Some(replaced) = replaced {
            let message = format!("another stream of client `{address}` took the place of this one");
            // A stream that has just ended need not be ended.
            let _ = replaced.send(Status::aborted(message));
        }
        let service = audience.node().map(|node| node.service.as_str());
        tracing::info!(client = address, service, plan = audience.wants_plan(), "connected for policies");
        Ok(Self { clients, sender, audience, ticket, session: Session::default() })
    }

    async fn run(
        &mut self,
        first: PolicyDiscoveryRequest,
        mut requests: Streaming<PolicyDiscoveryRequest>,
    ) -> Result<(), Status> {
        let mut publications = self.clients.publications();
        self.clients.welcome(&self.ticket, &self.audience).await;
        self.clients.changed();
        self.on_request(first).await?;
        loop {
            tokio::select! {
                request = requests.message() => match request? {
                    Some(request) => self.on_request(request).await?,
                    None => return Ok(()),
                },
                changed = publications.changed() => {
                    if changed.is_err() {
                        return Err(Status::unavailable("the control plane is shutting down"));
                    }
                    self.on_publication().await?;
                }
            }
        }
    }

    async fn on_request(&mut self, request: PolicyDiscoveryRequest) -> Result<(), Status> {
        identity::check(&request, self.ticket.address(), &self.audience)?;
        self.clients.registry().active(&self.ticket, Instant::now());
        check_length("version_info", &request.version_info)?;
        check_length("response_nonce", &request.response_nonce)?;
        let request = Request {
            version: request.version_info,
            nonce: request.response_nonce,
            error: request.error_detail.map(|detail| bounded::message(detail.message)),
        };
        let due = self.due().await;
        let reaction = self.session.on_request(request, due.as_ref());
        self.carry_out(reaction, due).await
    }

    async fn on_publication(&mut self) -> Result<(), Status> {
        let Some(due) = self.due().await else { return Ok(()) };
        let reaction = self.session.on_update(&due);
        self.carry_out(reaction, Some(due)).await
    }

    /// The update that the client is to have by what is in force now.
    async fn due(&self) -> Option<Arc<Update>> {
        self.clients.catch_up().await;
        self.clients.registry().due(&self.ticket).cloned()
    }

    async fn carry_out(&self, reaction: Reaction, due: Option<Arc<Update>>) -> Result<(), Status> {
        if let Some((answer, due)) = reaction.answer.zip(due) {
            self.clients.record(&self.ticket, &due, answer);
        }
        let Some(update) = reaction.response else { return Ok(()) };
        tracing::debug!(client = self.ticket.address(), version = update.version().short(), "sent policies");
        self.clients.pushes.inc();
        match time::timeout(LONGEST_STALL, self.sender.send(Ok(encode(&update)))).await {
            Ok(sent) => sent.map_err(|_| Status::cancelled("the client went away")),
            Err(_) => Err(Status::unavailable(format!("nothing was read for {LONGEST_STALL:?}"))),
        }
    }
}

fn encode(update: &Update) -> PolicyDiscoveryResponse {
    PolicyDiscoveryResponse {
        version_info: update.version().as_str().to_owned(),
        policies: update.set.policies().to_vec(),
        nonce: update.nonce.clone(),
        plan: update.set.plan().clone(),
    }
}
