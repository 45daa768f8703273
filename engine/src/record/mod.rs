//! Records for auditors: lines of JSON (`line`) or messages (`message`). They are bounded in size, and nothing that
//! a caller sends can break or forge one.

mod line;
mod message;

use std::{borrow::Cow, sync::Arc};

use self::{line::Line, message::Message};
use crate::cel::Value;

/// The service that takes records by gRPC, and its method.
pub const GRPC_METHOD: [&str; 2] = ["postern.audit.v1.AuditLog", "Record"];

/// The longest record, in bytes.
const LONGEST_RECORD: usize = 8 << 10;
/// The longest text in it, in bytes before escaping.
const LONGEST_TEXT: usize = 1 << 10;
const DEEPEST: usize = 16;

/// A record and where it goes. The driver of a run writes it; if that fails, the request does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// One JSON object without a line end; empty if no destination takes a line.
    pub line: String,
    /// Whether the line goes to the host's log.
    pub log: bool,
    /// The collector that the line is posted to, if there is one.
    pub collector: Option<Arc<Collector>>,
    /// The call to a collector by gRPC, if there is one.
    pub grpc: Option<GrpcRecord>,
}

/// A collector that takes records over HTTP.
#[derive(Debug, PartialEq, Eq)]
pub struct Collector {
    /// The service, by the name of its cluster.
    pub service: Arc<str>,
    /// The path that it takes them at.
    pub path: Arc<str>,
}

/// A record for a collector that serves `postern.audit.v1.AuditLog` ([`GRPC_METHOD`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcRecord {
    /// The service, by the name of its cluster.
    pub service: Arc<str>,
    /// A `postern.audit.v1.RecordRequest`.
    pub message: Vec<u8>,
}

/// Where the records of a step go.
#[derive(Debug)]
pub(crate) struct Destinations {
    pub(crate) log: bool,
    pub(crate) collector: Option<Arc<Collector>>,
    /// The service that is called with them by gRPC.
    pub(crate) grpc: Option<Arc<str>>,
}

/// A record that is being written, in the forms that its destinations take.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    destinations: &'a Destinations,
    line: Option<Line>,
    message: Option<Message>,
}

impl<'a> Draft<'a> {
    /// A record that starts with the name of the step that writes it.
    pub(crate) fn new(step: &str, destinations: &'a Destinations) -> Self {
        let as_line = destinations.log || destinations.collector.is_some();
        Self {
            destinations,
            line: as_line.then(|| Line::new(step)),
            message: destinations.grpc.is_some().then(|| Message::new(step)),
        }
    }

    /// Writes one of the fields that every record may have.
    pub(crate) fn put(&mut self, name: &str, value: &Value) {
        if let Some(line) = &mut self.line {
            line.put(name, value);
        }
        if let Some(message) = &mut self.message {
            message.put(name, value);
        }
    }

    /// Like [`Self::put`], for text that may be any bytes.
    pub(crate) fn put_bytes(&mut self, name: &str, bytes: &[u8]) {
        self.put(name, &lossy(bytes));
    }

    /// Writes a field of the user's own.
    pub(crate) fn put_own(&mut self, name: &str, value: &Value) {
        if let Some(line) = &mut self.line {
            line.put(name, value);
        }
        if let Some(message) = &mut self.message {
            message.put_own(name, value);
        }
    }

    pub(crate) fn finish(self) -> Record {
        let Destinations { log, collector, grpc } = self.destinations;
        Record {
            line: self.line.map(Line::finish).unwrap_or_default(),
            log: *log,
            collector: collector.clone(),
            grpc: grpc.clone().zip(self.message).map(|(service, message)| {
                let message = message.finish();
                GrpcRecord { service, message }
            }),
        }
    }
}

/// Bytes as text, with U+FFFD for what is not UTF-8.
pub(crate) fn lossy(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into())
}

/// A text of bounded length. `…` replaces the rest, and `cut` is set.
fn cut_text<'a>(text: &'a str, cut: &mut bool) -> Cow<'a, str> {
    if text.len() <= LONGEST_TEXT {
        return text.into();
    }
    *cut = true;
    let start = text.get(..text.floor_char_boundary(LONGEST_TEXT)).unwrap_or_default();
    [start, "…"].concat().into()
}
