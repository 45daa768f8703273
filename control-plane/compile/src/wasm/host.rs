//! The state behind the host calls of one VM.

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

/// What wasmtime hands to every host call.
pub(super) struct Host {
    pub(super) setup: Setup,
    pub(super) limiter: Limiter,
    pub(super) guest: GuestParts,
    pub(super) roots: BTreeMap<RootId, Root>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// The context whose callback is under way, and the one that the module chose instead.
    pub(super) current: u32,
    pub(super) effective: Option<u32>,
    /// What is carried out once the callback has returned.
    pub(super) after: VecDeque<After>,
    pub(super) log: Vec<LogLine>,
    pub(super) metrics: Metrics,
    pub(super) callouts: Callouts,
    pub(super) now: Duration,
    pub(super) offered: Offered,
    pub(super) random: u64,
    last_context: u32,
}

/// What the host needs of the module to hand it bytes.
#[derive(Default)]
pub(super) struct GuestParts {
    pub(super) memory: Option<Memory>,
    pub(super) allocate: Option<TypedFunc<u32, u32>>,
    /// Whether the module is allocating for us now; it gets nothing more meanwhile.
    pub(super) allocating: bool,
}

/// A root context.
#[derive(Debug, Default)]
pub(super) struct Root {
    /// Its configuration, while it is being configured.
    pub(super) configuration: Option<Vec<u8>>,
    pub(super) tick_period: Option<Duration>,
    /// Whether it asked for time to finish when it was retired.
    pub(super) finishing: bool,
}

/// What a callback asked for that waits for its end.
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

/// What a callout brought, readable during its callback.
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

    /// A number that no context of this VM has had.
    pub(super) fn next_context(&mut self) -> u32 {
        self.last_context = self.last_context.saturating_add(1);
        self.last_context
    }

    pub(super) fn has_context(&self, context: u32) -> bool {
        self.roots.contains_key(&RootId(context)) || self.streams.contains_key(&StreamId(context))
    }

    /// The context that a host call is about. One that is gone gives way to that of the callback.
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

    /// The root that a host call is about: the context itself or its parent.
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

    /// What the stream came with, then what the filter set itself, then what every context has.
    pub(super) fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        // Some SDKs end the last part of a path like the others, and Envoy does not mind.
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let of_stream = self.stream().and_then(|stream| stream.given.get(path).or_else(|| stream.set.get(path)));
        of_stream.or_else(|| self.setup.properties.get(path)).cloned()
    }

    /// A list of headers, if it can be read now.
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

    /// A list of headers, if it can be changed now.
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
