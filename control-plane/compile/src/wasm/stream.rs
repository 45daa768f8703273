//! One HTTP stream: its messages, and the filter's effects on them.

use std::collections::{BTreeMap, VecDeque};

use super::{HeaderMap, Properties, RootId, abi::Direction};

/// The state of a message after the filter has seen a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// It continues.
    Continue,
    /// It is paused by the filter.
    Pause,
    /// The filter answered in its place; see [`Stream::local_response`].
    Answered,
    /// The filter reset the stream.
    Reset,
}

/// An HTTP stream as the filter has left it.
#[derive(Debug)]
pub struct Stream {
    pub(super) root: RootId,
    pub(super) given: Properties,
    pub(super) set: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) request: Message,
    pub(super) response: Message,
    pub(super) ending: Option<Ending>,
}

/// How the filter ended a stream early.
#[derive(Debug)]
pub(super) enum Ending {
    Answered(LocalResponse),
    Reset,
}

/// A local response of the filter (`send_local_response`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalResponse {
    /// The status.
    pub status: u32,
    /// The details for access logs.
    pub details: Vec<u8>,
    /// Headers in addition to those that Envoy adds.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The gRPC status, if the filter gave one.
    pub grpc_status: Option<u32>,
}

impl LocalResponse {
    /// The headers of the response in Envoy. (For a gRPC request Envoy answers with trailers, which is not
    /// implemented.)
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

    pub(super) fn provide(&mut self, given: Properties) {
        self.given = given;
    }

    /// The request as it is sent upstream.
    pub fn request(&self) -> &Message {
        &self.request
    }

    /// The response as it is sent downstream: the upstream's or the filter's own, after the filter's response
    /// callbacks, as in Envoy.
    pub fn response(&self) -> &Message {
        &self.response
    }

    /// The local response as the filter gave it. `None` if there is none.
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

    /// A property that the filter set. Access logs see it in the filter state as `wasm.<name>`.
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

/// A request or response.
#[derive(Debug, Default)]
pub struct Message {
    pub(super) headers: Part,
    pub(super) trailers: Part,
    pub(super) body: Vec<u8>,
    /// The body that the filter sees now and that has not been sent on.
    pub(super) held: Vec<u8>,
    pub(super) body_access: Access,
    pub(super) stage: Stage,
    /// Parts that came during a pause, and that the filter has not seen.
    pub(super) waiting: VecDeque<Waiting>,
}

/// Headers or trailers, and how the filter may access them now.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) map: HeaderMap,
    pub(super) access: Access,
}

/// How the filter may access a part of a message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    #[default]
    Closed,
    Readable,
    Editable,
}

/// The progress of a message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Before,
    Flowing,
    PausedInHeaders,
    PausedLater,
}

/// A part of a message that waits for the end of a pause.
#[derive(Debug)]
pub(super) enum Waiting {
    Body { chunk: Vec<u8>, end_of_stream: bool },
    Trailers(HeaderMap),
}

impl Message {
    /// The headers as the filter left them.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers.map
    }

    /// The part of the body that has been sent on, as the filter left it.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The trailers as the filter left them.
    pub fn trailers(&self) -> &HeaderMap {
        &self.trailers.map
    }

    /// Whether it is paused by the filter.
    pub fn is_paused(&self) -> bool {
        matches!(self.stage, Stage::PausedInHeaders | Stage::PausedLater)
    }

    /// Resumes the message: sends on what was held, and ends the filter's access.
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

    /// Replaces the whole message.
    pub(super) fn replace(&mut self, headers: HeaderMap, body: Vec<u8>) {
        *self = Self { body, stage: Stage::Flowing, ..Self::default() };
        self.headers.map = headers;
    }
}
