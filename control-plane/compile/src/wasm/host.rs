//! The state of a VM that host calls read and change.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use wasmtime::{Memory, TypedFunc};

use super::{
    HeaderMap, LocalResponse, LogLevel, LogLine, RootId, Stream, StreamId,
    abi::{Direction, Map},
    callouts::Callouts,
    limits::Limiter,
    metrics::Metrics,
    setup::Setup,
    stream::{Access, Part},
};

/// The data of a wasmtime store.
pub(super) struct Host {
    pub(super) setup: Setup,
    pub(super) limiter: Limiter,
    pub(super) guest: GuestParts,
    pub(super) roots: BTreeMap<RootId, Root>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// The context whose callback is running, and the one that the module selected instead (`effective`).
    pub(super) current: u32,
    pub(super) effective: Option<u32>,
    /// Actions for when the running callback has returned.
    pub(super) after: VecDeque<After>,
    pub(super) log: Vec<LogLine>,
    pub(super) metrics: Metrics,
    pub(super) callouts: Callouts,
    pub(super) now: Duration,
    pub(super) offered: Offered,
    pub(super) random: u64,
    last_context: u32,
}

/// The exports of a module that are needed to return bytes to it.
#[derive(Default)]
pub(super) struct GuestParts {
    pub(super) memory: Option<Memory>,
    pub(super) allocate: Option<TypedFunc<u32, u32>>,
    /// Whether the module is allocating for the host. Nothing else is returned to it meanwhile.
    pub(super) allocating: bool,
}

/// The state of a root context.
#[derive(Debug, Default)]
pub(super) struct Root {
    /// The configuration, while it is offered.
    pub(super) configuration: Option<Vec<u8>>,
    pub(super) tick_period: Option<Duration>,
    /// Whether it delayed its end when it was retired.
    pub(super) finishing: bool,
}

/// An action that a callback requested, and that waits until it has returned.
#[derive(Debug)]
pub(super) enum After {
    GoOn(StreamId, Direction),
    Answer(StreamId, LocalResponse),
    Reset(StreamId),
    Delete(RootId),
}

impl After {
    pub(super) fn concerns(&self, stream: StreamId) -> bool {
        match self {
            Self::GoOn(other, _) | Self::Answer(other, _) | Self::Reset(other) => *other == stream,
            Self::Delete(_) => false,
        }
    }
}

/// The answer to a callout, readable during its callback.
#[derive(Debug, Default)]
pub(super) struct Offered {
    pub(super) http_headers: Option<HeaderMap>,
    pub(super) http_body: Option<Vec<u8>>,
    pub(super) http_trailers: Option<HeaderMap>,
    pub(super) grpc_initial: Option<HeaderMap>,
    pub(super) grpc_trailing: Option<HeaderMap>,
    pub(super) grpc_message: Vec<u8>,
    pub(super) status: u32,
    pub(super) status_text: Vec<u8>,
}

impl Host {
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            limiter: Limiter::new(setup.limits),
            now: setup.time,
            setup,
            guest: GuestParts::default(),
            roots: BTreeMap::new(),
            streams: BTreeMap::new(),
            current: 0,
            effective: None,
            after: VecDeque::new(),
            log: Vec::new(),
            metrics: Metrics::default(),
            callouts: Callouts::default(),
            offered: Offered::default(),
            random: 1,
            last_context: 0,
        }
    }

    /// A new number for a context, unique in this VM.
    pub(super) fn next_context(&mut self) -> u32 {
        self.last_context = self.last_context.saturating_add(1);
        self.last_context
    }

    pub(super) fn has_context(&self, context: u32) -> bool {
        self.roots.contains_key(&RootId(context)) || self.streams.contains_key(&StreamId(context))
    }

    /// The context that a host call applies to. A selected context that no longer exists is ignored.
    fn context(&self) -> u32 {
        self.effective.filter(|context| self.has_context(*context)).unwrap_or(self.current)
    }

    pub(super) fn stream_id(&self) -> Option<StreamId> {
        Some(StreamId(self.context())).filter(|id| self.streams.contains_key(id))
    }

    pub(super) fn stream(&self) -> Option<&Stream> {
        self.streams.get(&StreamId(self.context()))
    }

    pub(super) fn stream_mut(&mut self) -> Option<&mut Stream> {
        self.streams.get_mut(&StreamId(self.context()))
    }

    /// The root that a host call applies to: the context itself, or the parent of its stream.
    pub(super) fn root_id(&self) -> RootId {
        self.stream().map_or(RootId(self.context()), |stream| stream.root)
    }

    pub(super) fn root_mut(&mut self) -> Option<&mut Root> {
        let root = self.root_id();
        self.roots.get_mut(&root)
    }

    pub(super) fn add_line(&mut self, level: LogLevel, text: &[u8]) {
        self.log.push(LogLine { level, text: String::from_utf8_lossy(text).into_owned() });
    }

    /// The clock, in nanoseconds since 1970.
    pub(super) fn nanoseconds(&self) -> u64 {
        u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX)
    }

    /// A property of the stream, else one that the filter set, else one of all contexts.
    pub(super) fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        // Some SDKs add a NUL at the end of the path, which Envoy accepts.
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let of_stream = self.stream().and_then(|stream| stream.given.get(path).or_else(|| stream.set.get(path)));
        of_stream.or_else(|| self.setup.properties.get(path)).cloned()
    }

    /// A header map, if the filter may read it now.
    pub(super) fn map(&self, map: Map) -> Option<&HeaderMap> {
        match map {
            Map::Headers(direction) => readable(&self.stream()?.message(direction).headers),
            Map::Trailers(direction) => readable(&self.stream()?.message(direction).trailers),
            Map::GrpcInitialMetadata => self.offered.grpc_initial.as_ref(),
            Map::GrpcTrailingMetadata => self.offered.grpc_trailing.as_ref(),
            Map::HttpCallHeaders => self.offered.http_headers.as_ref(),
            Map::HttpCallTrailers => self.offered.http_trailers.as_ref(),
        }
    }

    /// A header map, if the filter may change it now.
    pub(super) fn map_mut(&mut self, map: Map) -> Option<&mut HeaderMap> {
        let part = match map {
            Map::Headers(direction) => &mut self.stream_mut()?.message_mut(direction).headers,
            Map::Trailers(direction) => &mut self.stream_mut()?.message_mut(direction).trailers,
            _ => return None,
        };
        (part.access == Access::Editable).then_some(&mut part.map)
    }
}

fn readable(part: &Part) -> Option<&HeaderMap> {
    (part.access != Access::Closed).then_some(&part.map)
}
