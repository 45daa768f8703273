//! One stream of an Envoy: relayed while the control plane is there, and otherwise served from what is kept.
//!
//! A stream never changes from one to the other: it ends, and the Envoy, which keeps its configuration, asks again.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use postern_base::{bounded, node::NodeIdentity, via_cache::ViaCache};
use tokio::{sync::mpsc, time};
use tonic::{Code, Status, Streaming};

use super::{
    deference::Deference,
    kept::Kept,
    protocol::Protocol,
    shared::Shared,
    shelf::ShelfError,
    tracker::Tracker,
    upstream::{Link, Missed},
};
use crate::xds::{
    Offers,
    limits::{REQUEST_BURST, TIME_TO_FIRST_REQUEST},
    service::{Rate, within_limits},
    session::{Memory, Reaction, Session},
    wire::{ClientMessage, Scope, node_of},
};

/// The time in which the control plane answers a claim of an Envoy that is not right any more.
const TIME_TO_CONTRADICT: time::Duration = time::Duration::from_secs(1);

/// A stream of an Envoy.
pub(super) struct Stream<P: Protocol> {
    pub(super) shared: Arc<Shared>,
    pub(super) requests: Streaming<P::Request>,
    pub(super) responses: mpsc::Sender<Result<P::Response, Status>>,
    rate: Rate,
}

impl<P: Protocol> Stream<P> {
    pub(super) fn new(
        shared: Arc<Shared>,
        requests: Streaming<P::Request>,
        responses: mpsc::Sender<Result<P::Response, Status>>,
    ) -> Self {
        Self { shared, requests, responses, rate: Rate::new(Instant::now()) }
    }

    /// Handles the stream to its end.
    pub(super) async fn run(mut self) {
        let mut node = NodeIdentity::default();
        let Err(status) = self.handle(&mut node).await else { return };
        if status.code() != Code::Ok {
            tracing::warn!(node = node.id, code = ?status.code(), message = status.message(), "xDS stream ended");
            // The client may be gone, and then needs no status.
            let _ = self.responses.try_send(Err(status));
        }
    }

    async fn handle(&mut self, node: &mut NodeIdentity) -> Result<(), Status> {
        let first = time::timeout(TIME_TO_FIRST_REQUEST, self.next_request()).await;
        let late = |_| Status::deadline_exceeded(format!("no request came within {TIME_TO_FIRST_REQUEST:?}"));
        let first = first.map_err(late)??;
        *node = node_of(&first)?;
        match self.shared.upstream.open::<P>().await {
            Ok(link) => self.relay(node, first, link).await,
            Err(Missed::Refused(status)) => Err(*status),
            Err(Missed::Gone(reason)) => self.serve(node, first, &reason).await,
        }
    }

    /// The next request. The code of the error is OK if the client closed the stream.
    async fn next_request(&mut self) -> Result<P::Request, Status> {
        let request = self.requests.message().await.map_err(|status| match status.code() {
            // Its connection broke.
            Code::Unknown | Code::Cancelled => Status::ok(""),
            _ => status,
        });
        let request = request?.ok_or_else(|| Status::ok(""))?;
        let per_second = self.shared.options.requests_per_second;
        if self.rate.take(per_second, REQUEST_BURST, Instant::now()) {
            return Ok(request);
        }
        Err(Status::resource_exhausted(format!("more than {per_second} requests a second came on this stream")))
    }

    async fn send(&self, response: P::Response) -> Result<(), Status> {
        let sent = time::timeout(self.shared.options.stall_timeout, self.responses.send(Ok(response))).await;
        let sent = sent.map_err(|_| Status::aborted("a response was not read in time"))?;
        sent.map_err(|_| Status::ok(""))
    }

    async fn relay(&mut self, node: &NodeIdentity, first: P::Request, mut link: Link<P>) -> Result<(), Status> {
        let shelf = Arc::clone(&self.shared.shelf);
        let before = match shelf.recall(node) {
            Ok(kept) => kept.sets.clone(),
            Err(ShelfError::Nothing { .. }) => Default::default(),
            Err(error) => {
                tracing::warn!("{error}; it is replaced when the node accepts something");
                Default::default()
            }
        };
        let ownership = shelf.own(node, self.shared.next_stream());
        if !ownership.is_held() {
            tracing::warn!(node = node.id, "another stream has this node id: what this one accepts is not kept");
        }
        let served = shelf.last_served(node);
        tracing::info!(node = node.id, service = node.service, "relayed");
        let mut tracker = Tracker::new(P::Request::VARIANT, before);
        // A claim of the Envoy is right only once the control plane has had the time to say otherwise.
        let interval = shelf.contact_interval();
        let mut ticks = time::interval_at(time::Instant::now() + interval.min(TIME_TO_CONTRADICT), interval);
        self.pass_on(&mut tracker, &link, marked::<P>(first, served)).await?;
        loop {
            let deadline = tracker.deadline().filter(|_| ownership.is_held());
            let deadline = deadline.map_or_else(far_away, time::Instant::from_std);
            tokio::select! {
                request = self.next_request() => self.pass_on(&mut tracker, &link, request?).await?,
                response = link.responses.message() => {
                    let response = Self::received(response)?;
                    match P::read(&response) {
                        Ok(received) => received.into_iter().for_each(|received| tracker.on_response(received)),
                        // It is the Envoy's to refuse.
                        Err(error) => tracing::warn!(node = node.id, %error, "a response that cannot be read is not kept"),
                    }
                    self.send(response).await?;
                }
                _ = ticks.tick() => {
                    if ownership.is_held() && tracker.is_current() {
                        shelf.contact(node, SystemTime::now());
                    }
                }
                () = time::sleep_until(deadline) => {}
            }
            if ownership.is_held()
                && let Some(sets) = tracker.take(Instant::now())
            {
                shelf.keep(node, sets, SystemTime::now());
            }
        }
    }

    /// Passes a request on to the control plane.
    async fn pass_on(&self, tracker: &mut Tracker, link: &Link<P>, mut message: P::Request) -> Result<(), Status> {
        // A type that is not kept is relayed all the same.
        if let Some(request) = Scope::Aggregated.read(message.clone())? {
            let doubts = tracker.on_request(&request, Instant::now());
            P::take_back(&mut message, &doubts);
        }
        let sent = time::timeout(self.shared.options.stall_timeout, link.requests.send(message)).await;
        let gone = || Status::unavailable("the control plane takes no requests any more");
        sent.map_err(|_| gone())?.map_err(|_| gone())
    }

    /// A response of the control plane, or the status with which the stream ends.
    fn received(response: Result<Option<P::Response>, Status>) -> Result<P::Response, Status> {
        match response {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(Status::unavailable("the control plane ended the stream")),
            Err(status) => match status.code() {
                Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::ResourceExhausted => {
                    Err(Status::new(status.code(), status.message()))
                }
                _ => Err(Status::unavailable(format!("the control plane is gone: {}", status.message()))),
            },
        }
    }

    async fn serve(&mut self, node: &NodeIdentity, first: P::Request, reason: &str) -> Result<(), Status> {
        let shelf = Arc::clone(&self.shared.shelf);
        let mut back = self.shared.upstream.await_return();
        let (kept, left) = shelf
            .serve(node, SystemTime::now())
            .map_err(|error| Status::unavailable(format!("the control plane is gone ({reason}), and {error}")))?;
        tracing::warn!(node = node.id, reason, "the control plane is gone: served from what the node accepted last");
        shelf.serving(node, SystemTime::now());
        let expiry = time::Instant::now() + left;
        let mut ticks = time::interval(shelf.contact_interval());
        let mut served = Served::new::<P>(&kept, self.shared.next_stream());
        let responses = served.answer::<P>(first)?;
        self.send_all(responses).await?;
        loop {
            let deadline = served.session.deadline().map_or_else(far_away, time::Instant::from_std);
            let reaction = tokio::select! {
                request = self.next_request() => served.answer::<P>(request?)?,
                () = time::sleep_until(deadline) => served.session.on_deadline(Instant::now()),
                _ = ticks.tick() => { shelf.serving(node, SystemTime::now()); continue }
                _ = back.changed() => {
                    shelf.serving(node, SystemTime::now());
                    return Err(Status::unavailable("the control plane is back: ask again"));
                }
                () = time::sleep_until(expiry) => {
                    return Err(Status::unavailable("what is kept of the node is too old now (`--max-age`)"));
                }
            };
            self.send_all(reaction).await?;
        }
    }

    async fn send_all(&self, reaction: Reaction) -> Result<(), Status> {
        for response in &reaction.responses {
            let written = P::write(response).map_err(|error| Status::internal(error.to_string()))?;
            self.send(written).await?;
        }
        Ok(())
    }
}

/// A stream that is served from what is kept.
struct Served {
    kept: Arc<Kept>,
    session: Session,
    deference: Deference,
}

impl Served {
    fn new<P: Protocol>(kept: &Arc<Kept>, stream: u64) -> Self {
        let snapshot = Arc::new(postern_compile::snapshot::Snapshot::of_accepted(kept.sets.clone()));
        let mut session = Session::new(P::Request::VARIANT, stream, Memory::default());
        let revision = snapshot.revision().clone();
        // Nobody has asked for anything yet, so that nothing is to be sent.
        let _nothing = session.on_snapshot(revision, Offers::of(snapshot), Instant::now());
        Self { kept: Arc::clone(kept), session, deference: Deference::new() }
    }

    fn answer<P: Protocol>(&mut self, message: P::Request) -> Result<Reaction, Status> {
        let type_url = bounded::shown(message.type_url()).into_owned();
        let request = Scope::Aggregated.read(message)?;
        let request = request.map(|request| within_limits(request, &self.session)).transpose()?;
        let Some(request) = request.and_then(|request| self.deference.admit(request, &self.kept.sets)) else {
            tracing::debug!(type_url, "not answered from what is kept");
            return Ok(Reaction::default());
        };
        Ok(self.session.on_request(request, Instant::now()))
    }
}

/// The first request of a stream, in which this cache names itself.
fn marked<P: Protocol>(mut first: P::Request, served: Option<postern_base::via_cache::Span>) -> P::Request {
    let cache = ViaCache { version: env!("CARGO_PKG_VERSION").to_owned(), served };
    P::node(&mut first).into_iter().for_each(|node| cache.write(node));
    first
}

/// A time that does not come.
fn far_away() -> time::Instant {
    time::Instant::now() + time::Duration::from_secs(86_400)
}
