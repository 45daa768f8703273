//! One stream: a response body that reads requests, follows publications and yields responses when it is polled.
//!
//! HTTP/2 polls it only while its client reads. Publications are merged meanwhile: only the latest is sent.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::{Instant, SystemTime},
};

use axum::{body::Body, http::HeaderMap};
use http_body::Frame;
use postern_base::{bounded, digest::Digest, node::NodeIdentity, via_cache::ViaCache};
use postern_compile::{snapshot::ResourceType, support::unsupported};
use postern_release::{fleet::Joined, publication::Publication};
use prost::bytes::Bytes;
use tokio::time::Sleep;
use tokio_stream::{Stream, wrappers::WatchStream};
use tonic::{Status, Streaming};

use super::{
    Shared,
    connection::{ConnectionHandle, Used},
    decode::Decode,
    frame::frames,
    peer::Peer,
    rate::Rate,
    record::record,
    watchdog::Watched,
};
use crate::{
    redirect::Source,
    xds::{
        content::Variant,
        limits::{MOST_NAME_BYTES, MOST_NAMES, REQUEST_BURST, TIME_TO_FIRST_REQUEST},
        offer::Offers,
        session::{Reaction, Request, Response, Session, Subscribed, Wish},
        wire::{ClientMessage, Scope, node_of},
    },
};

/// The cluster name of the control plane in our bootstraps.
const OUR_CLUSTER: &str = "postern";

/// The body of a stream's response.
pub(super) struct StreamBody<M> {
    shared: Arc<Shared>,
    scope: Scope,
    /// Where the client gets what it does not get on this stream; `None` for an aggregated stream.
    source: Option<Source>,
    requests: Streaming<M>,
    publications: WatchStream<Option<Arc<Publication>>>,
    /// The client's identity, after its first request.
    peer: Option<Box<Peer>>,
    /// The node's snapshot, while it is being made.
    awaited: Option<Box<Awaited>>,
    responses: VecDeque<Response>,
    /// The second frame of the current response.
    rest: Option<Bytes>,
    end: End,
    opened: Instant,
    rate: Rate,
    timer: Option<Pin<Box<Sleep>>>,
    watched: Watched,
    _used: Option<Used>,
}

/// A pending snapshot: its group is being compiled, or it is being rewritten for this stream's source.
struct Awaited {
    revision: Digest,
    offers: Pin<Box<dyn Future<Output = Option<Arc<Offers>>> + Send>>,
}

impl Awaited {
    fn of(release: &Arc<Publication>, peer: &Peer, source: Option<Source>, shared: &Arc<Shared>) -> Self {
        let (node, shared) = (peer.node.clone(), Arc::clone(shared));
        let make = move |release: &Publication| {
            let offers = shared.offers.of(&release.snapshot_for(&node));
            let Some(source) = source else { return offers };
            offers.by_way_of(&source).unwrap_or_else(|error| {
                tracing::error!(node = node.id, "its sources cannot be named: {error}");
                offers
            })
        };
        Self { revision: release.revision().clone(), offers: Box::pin(release.prepare(make)) }
    }
}

/// How far a stream has ended.
enum End {
    NotYet,
    With(Box<Status>),
    Told,
}

impl<M: ClientMessage> StreamBody<M> {
    /// A new stream. `called` is the name by which the client calls us.
    pub(super) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        called: &str,
        requests: Body,
        line: Option<Arc<ConnectionHandle>>,
    ) -> Self {
        let now = Instant::now();
        let incremental = M::VARIANT == Variant::Incremental;
        let source = Source::Streams { cluster: cluster_name(called), incremental };
        Self {
            requests: Streaming::new_request(Decode::default(), requests, None, Some(shared.limits.message_bytes)),
            publications: WatchStream::new(shared.publications.follow()),
            _used: line.as_ref().map(ConnectionHandle::used),
            watched: shared.watchdog.watch(line),
            shared,
            scope,
            source: (scope != Scope::Aggregated).then_some(source),
            peer: None,
            awaited: None,
            responses: VecDeque::new(),
            rest: None,
            end: End::NotYet,
            opened: now,
            rate: Rate::new(now),
            timer: None,
        }
    }

    /// Waits for the next event, and handles it. Returns an error when the stream ends: with the code OK if the client
    /// closed it.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if let Poll::Ready(message) = Pin::new(&mut self.requests).poll_next(context) {
            let message = message.unwrap_or_else(|| Err(Status::ok("")))?;
            return Poll::Ready(self.on_message(message));
        }
        if self.peer.is_some()
            && let Poll::Ready(publication) = Pin::new(&mut self.publications).poll_next(context)
        {
            let publication = publication.ok_or_else(|| Status::unavailable("the control plane is shutting down"))?;
            self.on_publication(publication);
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(taken) = self.poll_awaited(context) {
            return Poll::Ready(taken);
        }
        ready!(self.poll_timer(context));
        Poll::Ready(self.on_time())
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let deadline = match &self.peer {
            Some(peer) => peer.session.deadline(),
            None => Some(self.opened + TIME_TO_FIRST_REQUEST),
        };
        let Some(deadline) = deadline.map(tokio::time::Instant::from_std) else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context)
    }

    fn on_time(&mut self) -> Result<(), Status> {
        self.timer = None;
        let Some(peer) = &mut self.peer else {
            return Err(Status::deadline_exceeded(format!("no request came within {TIME_TO_FIRST_REQUEST:?}")));
        };
        let reaction = peer.session.on_deadline(Instant::now());
        self.carry_out(reaction);
        Ok(())
    }

    fn on_message(&mut self, message: M) -> Result<(), Status> {
        let now = Instant::now();
        let per_second = self.shared.limits.requests_per_second;
        if !self.rate.take(per_second, REQUEST_BURST, now) {
            let message = format!("more than {per_second} requests a second came on this stream");
            return Err(Status::resource_exhausted(message));
        }
        if self.peer.is_none() {
            let peer = self.join(node_of(&message)?);
            self.shared.fleet.came_via(&peer.node.id, message.node().and_then(ViaCache::read));
            self.peer = Some(Box::new(peer));
        }
        // Shortened before it is kept for the log.
        let type_url = bounded::shown(message.type_url()).into_owned();
        let request = self.scope.read(message)?;
        let Some(peer) = &mut self.peer else { return Ok(()) };
        match request {
            Some(request) => {
                let request = within_limits(request, &peer.session)?;
                let reaction = peer.session.on_request(request, now);
                self.carry_out(reaction);
            }
            None => tracing::debug!(node = peer.node.id, type_url, "asked for a type that is not served"),
        }
        Ok(())
    }

    fn join(&self, node: NodeIdentity) -> Peer {
        let fleet = &self.shared.fleet;
        let Joined { stream, memory } = match self.scope {
            Scope::Aggregated => fleet.connect_aggregated(&node, SystemTime::now()),
            Scope::Single(_) => fleet.connect(&node, SystemTime::now()),
        };
        tracing::info!(node = node.id, service = node.service, stream, "connected");
        Peer { node, stream, session: Session::new(M::VARIANT, stream, memory.recall()) }
    }

    /// Takes the node's snapshot of a publication, or starts to make it. An earlier pending snapshot is dropped. A node
    /// that is not supported gets none.
    fn on_publication(&mut self, publication: Option<Arc<Publication>>) {
        let (Some(peer), Some(publication)) = (&self.peer, publication) else { return };
        // Subscriptions are held without an answer: an empty one would take away what such an Envoy has.
        if unsupported(&peer.node).is_some() {
            return;
        }
        let release = publication.shared_release_for(&peer.node);
        let compiled = release.compiled_for(&peer.node).filter(|_| self.source.is_none());
        self.awaited = None;
        match compiled {
            Some(snapshot) => self.on_snapshot(release.revision().clone(), self.shared.offers.of(&snapshot)),
            None => self.awaited = Some(Box::new(Awaited::of(&release, peer, self.source.clone(), &self.shared))),
        }
    }

    fn on_snapshot(&mut self, revision: Digest, offers: Arc<Offers>) {
        let Some(peer) = &mut self.peer else { return };
        let reaction = peer.session.on_snapshot(revision, offers, Instant::now());
        self.carry_out(reaction);
    }

    /// Waits for the pending snapshot, if there is one.
    fn poll_awaited(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let Some(awaited) = &mut self.awaited else { return Poll::Pending };
        let made = ready!(awaited.offers.as_mut().poll(context));
        let revision = awaited.revision.clone();
        self.awaited = None;
        let offers = made.ok_or_else(|| Status::internal("the resources of this node could not be made"))?;
        self.on_snapshot(revision, offers);
        Poll::Ready(Ok(()))
    }

    fn carry_out(&mut self, reaction: Reaction) {
        let Some(peer) = &self.peer else { return };
        for response in &reaction.responses {
            let (kind, version) = (response.kind(), response.content.version.short());
            self.shared.traffic.pushes.increment(kind);
            tracing::debug!(node = peer.node.id, %kind, version, nonce = response.nonce, "sent");
        }
        if !reaction.events.is_empty() {
            record(&self.shared, peer, reaction.events);
        }
        self.responses.extend(reaction.responses);
    }

    /// The next frame of the queued responses.
    fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        if let Some(rest) = self.rest.take() {
            return Some(Frame::data(rest));
        }
        if let Some(response) = self.responses.pop_front() {
            let (first, rest) = frames(&response);
            self.rest = rest;
            return Some(Frame::data(first));
        }
        self.responses = VecDeque::new();
        match std::mem::replace(&mut self.end, End::Told) {
            End::With(status) => Some(Frame::trailers(trailers(&status))),
            other => {
                self.end = other;
                None
            }
        }
    }

    fn finish(&mut self, status: Status) {
        let node = self.peer.as_ref().map_or("unknown", |peer| peer.node.id.as_str());
        if status.code() != tonic::Code::Ok {
            tracing::warn!(node, code = ?status.code(), message = status.message(), "xDS stream ended");
        }
        self.end = End::With(Box::new(status));
    }
}

/// The cluster by which an Envoy calls us. Envoy puts that name in `:authority`, unless it is configured to put
/// something else, such as an address; then the name is the one in our bootstraps.
fn cluster_name(called: &str) -> String {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = !called.is_empty() && called.len() <= bounded::NAME && called.bytes().all(is_name);
    // An address would be a valid cluster name too.
    let is_address = called.parse::<std::net::IpAddr>().is_ok();
    if fits && !is_address { called.to_owned() } else { OUR_CLUSTER.to_owned() }
}

/// Checks that a request would not subscribe to too many names, or too long ones. Virtual hosts beyond the limits are
/// ignored, because the callers of an Envoy cause these subscriptions and must not end its stream.
pub(crate) fn within_limits(mut request: Request, session: &Session) -> Result<Request, Status> {
    let Subscribed { names, bytes } = session.subscribed_after(&request);
    if names <= MOST_NAMES && bytes <= MOST_NAME_BYTES {
        return Ok(request);
    }
    let kind = request.kind;
    match &mut request.wish {
        Wish::Changes { subscribe, .. } if kind == ResourceType::VirtualHost => subscribe.clear(),
        _ => {
            let message = match names <= MOST_NAMES {
                false => format!("{names} names of {kind} are subscribed to: at most {MOST_NAMES} are served"),
                true => format!("names of {bytes} bytes are subscribed to: at most {MOST_NAME_BYTES} are served"),
            };
            return Err(Status::resource_exhausted(message));
        }
    }
    Ok(request)
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // If the message is no valid header, the status has its code only, which is what clients act on.
    if status.add_header(&mut trailers).is_err() {
        trailers.insert(Status::GRPC_STATUS, axum::http::HeaderValue::from(status.code() as i32));
    }
    trailers
}

impl<M: ClientMessage> http_body::Body for StreamBody<M> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.watched.taken();
        loop {
            if let Some(frame) = self.next_frame() {
                self.shared.watchdog.handed_out(&self.watched);
                return Poll::Ready(Some(Ok(frame)));
            }
            if matches!(self.end, End::Told) {
                return Poll::Ready(None);
            }
            if let Err(status) = ready!(self.poll_event(context)) {
                self.finish(status);
            }
        }
    }
}

impl<M> Drop for StreamBody<M> {
    fn drop(&mut self) {
        self.shared.open_streams.fetch_sub(1, Ordering::Relaxed);
        self.shared.watchdog.forget(&self.watched);
        if let Some(peer) = &self.peer {
            tracing::info!(node = peer.node.id, stream = peer.stream, "disconnected");
            self.shared.fleet.disconnect(&peer.node.id, peer.stream, SystemTime::now());
        }
    }
}
