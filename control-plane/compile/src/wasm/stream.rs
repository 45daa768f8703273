//! One HTTP stream: what went in, and what the filter made of it.

use std::collections::{BTreeMap, VecDeque};

use super::{HeaderMap, Properties, RootId, abi::Direction};

/// What became of a message when the filter had seen a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It waits for the filter.
    Pause,
    /// The filter answered in its place: see [`Stream::local_response`].
    Answered,
    /// The filter reset the stream.
    Reset,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    pub(super) root: RootId,
    pub(super) given: Properties,
    pub(super) set: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) request: Message,
    pub(super) response: Message,
    pub(super) ending: Option<Ending>,
}

/// How the filter cut a stream short.
#[derive(Debug)]
pub(super) enum Ending {
    Answered(LocalResponse),
    Reset,
}

/// A response that the filter asked for (`send_local_response`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalResponse {
    /// Its status.
    pub status: u32,
    /// Why, for access logs.
    pub details: Vec<u8>,
    /// Headers beside those that Envoy adds.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
    /// Its status on a gRPC stream, if the filter gave one.
    pub grpc_status: Option<u32>,
}

impl LocalResponse {
    /// The headers that Envoy makes of it. (For a gRPC request Envoy answers with trailers, which we do not.)
    pub(super) fn to_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::from([(":status", self.status.to_string())]);
        self.headers.iter().for_each(|(name, value)| headers.add(name, value));
        if !self.body.is_empty() {
            headers.set("content-length", self.body.len().to_string());
            if headers.get("content-type").is_none() {
                headers.add("content-type", "text/plain");
            }
        }
        headers
    }
}

impl Stream {
    pub(super) fn new(root: RootId, given: Properties) -> Self {
        let (request, response) = (Message::default(), Message::default());
        Self { root, given, set: BTreeMap::new(), request, response, ending: None }
    }

    /// The request as it goes on to the upstream.
    pub fn request(&self) -> &Message {
        &self.request
    }

    /// The response as it goes on to the client: the upstream's or, once the filter answered itself, its own after it
    /// passed the filter's response callbacks, as it does in Envoy.
    pub fn response(&self) -> &Message {
        &self.response
    }

    /// The answer that the filter gave in place of the upstream, as it gave it.
    pub fn local_response(&self) -> Option<&LocalResponse> {
        match &self.ending {
            Some(Ending::Answered(response)) => Some(response),
            Some(Ending::Reset) | None => None,
        }
    }

    /// Whether the filter reset the stream.
    pub fn is_reset(&self) -> bool {
        matches!(self.ending, Some(Ending::Reset))
    }

    /// A property that the filter set, under its name (access logs see it as `wasm.<name>` of the filter state).
    pub fn property(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.set.get(name.as_ref()).map(Vec::as_slice)
    }

    /// All properties that the filter set.
    pub fn properties(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.set.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    pub(super) fn message(&self, direction: Direction) -> &Message {
        match direction {
            Direction::Request => &self.request,
            Direction::Response => &self.response,
        }
    }

    pub(super) fn message_mut(&mut self, direction: Direction) -> &mut Message {
        match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }
    }

    pub(super) fn flow(&self, direction: Direction) -> Flow {
        match &self.ending {
            Some(Ending::Answered(_)) => Flow::Answered,
            Some(Ending::Reset) => Flow::Reset,
            None if self.message(direction).is_paused() => Flow::Pause,
            None => Flow::Continue,
        }
    }
}

/// A request or a response.
#[derive(Debug, Default)]
pub struct Message {
    pub(super) headers: Part,
    pub(super) trailers: Part,
    pub(super) body: Vec<u8>,
    /// What the filter sees as the body now: not gone on yet.
    pub(super) held: Vec<u8>,
    pub(super) body_access: Access,
    pub(super) stage: Stage,
    /// What came while a pause kept it from the filter.
    pub(super) waiting: VecDeque<Waiting>,
}

/// A list of headers, and what the filter may do with it now.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) map: HeaderMap,
    pub(super) access: Access,
}

/// What the filter may do with a part of a message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    #[default]
    Closed,
    Readable,
    Editable,
}

/// How far a message has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Before,
    Flowing,
    PausedInHeaders,
    PausedLater,
}

/// A part of a message that waits.
#[derive(Debug)]
pub(super) enum Waiting {
    Body { chunk: Vec<u8>, end_of_stream: bool },
    Trailers(HeaderMap),
}

impl Message {
    /// Its headers, as the filter left them.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers.map
    }

    /// As much of its body as has gone on, as the filter left it.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Its trailers, as the filter left them.
    pub fn trailers(&self) -> &HeaderMap {
        &self.trailers.map
    }

    /// Whether it waits for the filter.
    pub fn is_paused(&self) -> bool {
        matches!(self.stage, Stage::PausedInHeaders | Stage::PausedLater)
    }

    /// It goes on: what was held is gone, and the filter can no longer change it.
    pub(super) fn go_on(&mut self) {
        self.stage = Stage::Flowing;
        self.body.append(&mut self.held);
        self.set_access(Access::Closed);
    }

    pub(super) fn set_access(&mut self, access: Access) {
        self.headers.access = access;
        self.body_access = access;
        self.trailers.access = access;
    }

    /// Puts a whole other message in its place.
    pub(super) fn replace(&mut self, headers: HeaderMap, body: Vec<u8>) {
        *self = Self { body, stage: Stage::Flowing, ..Self::default() };
        self.headers.map = headers;
    }
}
