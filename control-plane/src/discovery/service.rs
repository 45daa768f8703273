//! The gRPC face of policy discovery: it moves messages between streams, their [`Session`]s and the [`Registry`].

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use postern_proto::discovery::v1::{
    HealthCheckRequest, HealthCheckResponse, PolicyDiscoveryRequest, PolicyDiscoveryResponse,
    policy_discovery_server::{PolicyDiscovery, PolicyDiscoveryServer},
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

use super::{
    Answer, Registry, Session, Ticket,
    registry::ClientReport,
    session::{Reaction, Request, Update},
};
use crate::{
    bounded::{self, NAME},
    digest::Digest,
    node::NodeIdentity,
    serve::Hub,
    xds::service::Line,
};

/// How long a client may be silent.
pub const MAX_CLIENT_INACTIVE: Duration = Duration::from_secs(300);
/// Who asks, two digests and an error: a request is small.
const LARGEST_REQUEST: usize = 64 * 1024;
/// How long a stream may be open before its first request.
const TIME_TO_FIRST_REQUEST: Duration = Duration::from_secs(30);
/// How many clients may be connected.
const MOST_CLIENTS: usize = 10_000;

/// How long a client that does not read is waited for when its stream ends.
const LONGEST_FAREWELL: Duration = Duration::from_secs(5);

/// What ends a stream from outside: the status that its client is told.
type Cut = oneshot::Sender<Status>;

/// The policy discovery service.
#[derive(Debug, Clone)]
pub struct Discovery {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    hub: Arc<Hub>,
    registry: Mutex<Registry<Cut>>,
    /// Somebody answered, came or went.
    moved: Notify,
    longest_silence: Duration,
}

/// What every client that was connected has said about a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllAcked {
    /// The version.
    pub version: Digest,
    /// Who they are, and what each made of it.
    pub clients: Vec<ClientReport>,
}

impl Discovery {
    /// Serves what the hub publishes. A client that is silent for longer than that is forgotten.
    pub fn new(hub: Arc<Hub>, longest_silence: Duration) -> Self {
        let (registry, moved) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { hub, registry, moved, longest_silence }) }
    }

    /// As a gRPC service.
    pub fn into_server(self) -> PolicyDiscoveryServer<Self> {
        PolicyDiscoveryServer::new(self).max_decoding_message_size(LARGEST_REQUEST)
    }

    /// Waits until every connected client has answered the version in force. A version that is put in force meanwhile is
    /// waited for instead.
    pub async fn all_acked(&self) -> AllAcked {
        let mut publications = self.shared.hub.publications();
        loop {
            // Asked for before looking, so that what happens in between is not missed.
            let moved = self.shared.moved.notified();
            publications.mark_unchanged();
            if let Some(acked) = self.shared.look_whether_all_acked() {
                return acked;
            }
            tokio::select! {
                () = moved => {}
                // Without a hub nothing more is published, and the clients' answers are all that can come.
                Ok(()) = publications.changed() => {}
            }
        }
    }

    /// The clients that are connected.
    pub fn clients(&self) -> Vec<ClientReport> {
        self.shared.registry().report()
    }

    /// Forgets silent clients, for ever.
    pub async fn flush_inactive(&self) -> Infallible {
        let mut ticks = time::interval((self.shared.longest_silence / 4).max(Duration::from_millis(10)));
        loop {
            ticks.tick().await;
            self.shared.flush();
        }
    }
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry<Cut>> {
        // Each statement leaves it whole, so that a panic elsewhere does not spoil it.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registry with what the hub has in force now.
    fn up_to_date(&self) -> MutexGuard<'_, Registry<Cut>> {
        let publication = self.hub.publications().borrow().clone();
        let mut registry = self.registry();
        if let Some(publication) = publication {
            let snapshot = publication.snapshot_for(&NodeIdentity::default());
            if registry.publish(snapshot.policies(), SystemTime::now()) {
                tracing::info!(version = snapshot.policies().version().short(), "policies in force for discovery");
            }
        }
        registry
    }

    fn current(&self) -> Option<Arc<Update>> {
        self.up_to_date().current().cloned()
    }

    fn look_whether_all_acked(&self) -> Option<AllAcked> {
        let registry = self.up_to_date();
        let version = registry.current().filter(|_| registry.all_acked())?.version().clone();
        Some(AllAcked { version, clients: registry.report() })
    }

    fn flush(&self) {
        let flushed = self.registry().flush(Instant::now(), self.longest_silence);
        if flushed.is_empty() {
            return;
        }
        for (client, cut) in flushed {
            tracing::warn!(client, silence = ?self.longest_silence, "forgotten, since nothing was heard of it");
            let message = format!(
                "client `{client}` was not heard of for {:?}: send health checks, and open another stream",
                self.longest_silence
            );
            // A stream that has just ended by itself needs no end.
            let _ = cut.send(Status::unavailable(message));
        }
        self.moved.notify_waiters();
    }
}

#[tonic::async_trait]
impl PolicyDiscovery for Discovery {
    type StreamPoliciesStream = Pin<Box<dyn Stream<Item = Result<PolicyDiscoveryResponse, Status>> + Send>>;

    async fn stream_policies(
        &self,
        request: tonic::Request<Streaming<PolicyDiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::StreamPoliciesStream>, Status> {
        // One waits at most: a newer update takes the place of all that a slow client has not got yet.
        let (sender, receiver) = mpsc::channel(1);
        let shared = Arc::clone(&self.shared);
        // A connection that has only such streams is in use too.
        let used = request.extensions().get::<Arc<Line>>().map(Line::used);
        tokio::spawn(async move {
            let _used = used;
            if let Err(status) = converse(&shared, request.into_inner(), &sender).await {
                tracing::warn!(code = ?status.code(), message = status.message(), "policy discovery stream ended");
                // The client may be gone, or not read: then nobody can be told.
                let _ = time::timeout(LONGEST_FAREWELL, sender.send(Err(status))).await;
            }
        });
        Ok(tonic::Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn health_check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        let address = request.into_inner().client_address;
        check_address(&address)?;
        let mut registry = self.shared.up_to_date();
        let connected = registry.health_check(&address, Instant::now());
        let version_info = registry.current().map(|current| current.version().to_string()).unwrap_or_default();
        Ok(tonic::Response::new(HealthCheckResponse { connected, version_info }))
    }
}

type Sender = mpsc::Sender<Result<PolicyDiscoveryResponse, Status>>;

/// Serves one stream to its end.
async fn converse(
    shared: &Shared,
    mut requests: Streaming<PolicyDiscoveryRequest>,
    sender: &Sender,
) -> Result<(), Status> {
    let first = time::timeout(TIME_TO_FIRST_REQUEST, requests.message()).await;
    let late = |_| Status::deadline_exceeded(format!("no request came within {TIME_TO_FIRST_REQUEST:?}"));
    let Some(first) = first.map_err(late)?? else {
        return Ok(());
    };
    check_address(&first.client_address)?;
    if !shared.registry().has_room_for(&first.client_address, MOST_CLIENTS) {
        let message = format!("{MOST_CLIENTS} clients are connected for policies, and no more are served");
        return Err(Status::resource_exhausted(message));
    }
    let (cut, ended) = oneshot::channel();
    let (ticket, replaced) = shared.registry().connect(&first.client_address, Instant::now(), cut);
    if let Some(replaced) = replaced {
        let message = format!("another stream of client `{}` took the place of this one", ticket.address());
        let _ = replaced.send(Status::aborted(message));
    }
    tracing::info!(client = ticket.address(), "connected for policies");
    let mut stream = ClientStream { shared, sender, ticket, session: Session::default() };
    let result = tokio::select! {
        result = stream.run(first, requests) => result,
        Ok(status) = ended => Err(status),
    };
    tracing::info!(client = stream.ticket.address(), "disconnected from policies");
    shared.registry().disconnect(&stream.ticket);
    shared.moved.notify_waiters();
    result
}

struct ClientStream<'a> {
    shared: &'a Shared,
    sender: &'a Sender,
    ticket: Ticket,
    session: Session,
}

impl ClientStream<'_> {
    async fn run(
        &mut self,
        first: PolicyDiscoveryRequest,
        mut requests: Streaming<PolicyDiscoveryRequest>,
    ) -> Result<(), Status> {
        let mut publications = self.shared.hub.publications();
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
        if !request.client_address.is_empty() && request.client_address != self.ticket.address() {
            return Err(Status::invalid_argument(format!(
                "`client_address` was `{}` at the beginning of the stream and cannot change",
                self.ticket.address()
            )));
        }
        self.shared.registry().active(&self.ticket, Instant::now());
        check_length("version_info", &request.version_info)?;
        check_length("response_nonce", &request.response_nonce)?;
        let request = Request {
            version: request.version_info,
            nonce: request.response_nonce,
            error: request.error_detail.map(|detail| bounded::message(detail.message)),
        };
        let current = self.shared.current();
        let reaction = self.session.on_request(request, current.as_ref());
        self.carry_out(reaction, current).await
    }

    async fn on_publication(&mut self) -> Result<(), Status> {
        let Some(current) = self.shared.current() else { return Ok(()) };
        let reaction = self.session.on_update(&current);
        self.carry_out(reaction, Some(current)).await
    }

    async fn carry_out(&self, reaction: Reaction, current: Option<Arc<Update>>) -> Result<(), Status> {
        if let Some((answer, current)) = reaction.answer.zip(current) {
            self.record(answer, &current);
        }
        if let Some(update) = reaction.response {
            tracing::debug!(client = self.ticket.address(), version = update.version().short(), "sent policies");
            let sent = self.sender.send(Ok(encode(&update))).await;
            sent.map_err(|_| Status::cancelled("the client went away"))?;
        }
        Ok(())
    }

    fn record(&self, answer: Answer, current: &Update) {
        let (client, version) = (self.ticket.address(), current.version().short());
        match &answer {
            Answer::Accepted => tracing::info!(client, version, "accepted policies"),
            Answer::Refused(message) => tracing::error!(client, version, message, "refused policies"),
        }
        self.shared.registry().answered(&self.ticket, &current.nonce, answer);
        self.shared.moved.notify_waiters();
    }
}

fn check_address(address: &str) -> Result<(), Status> {
    if address.is_empty() {
        return Err(Status::invalid_argument("`client_address` is empty: it says which client asks"));
    }
    check_length("client_address", address)
}

fn check_length(field: &str, name: &str) -> Result<(), Status> {
    if name.len() > NAME {
        return Err(Status::invalid_argument(format!("`{field}` is longer than {NAME} bytes")));
    }
    Ok(())
}

fn encode(update: &Update) -> PolicyDiscoveryResponse {
    PolicyDiscoveryResponse {
        version_info: update.version().as_str().to_owned(),
        policies: update.set.policies().to_vec(),
        nonce: update.nonce.clone(),
        plan: update.set.plan().clone(),
    }
}
