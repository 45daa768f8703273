//! Records for auditors, bounded in size, that nothing a caller sends can break or forge: lines of JSON ([`line`]), or
//! messages ([`message`]).

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

/// A record and where it goes. Whoever drives a run writes it, and never fails a request if that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// One JSON object, without a line's end; empty if it goes nowhere as a line.
    pub line: String,
    /// Whether the line goes to the host's log.
    pub log: bool,
    /// The collector that the line is posted to, if there is one.
    pub collector: Option<Arc<Collector>>,
    /// The collector that is called with it, if there is one.
    pub grpc: Option<GrpcRecord>,
}

/// Who collects records over HTTP.
#[derive(Debug, PartialEq, Eq)]
pub struct Collector {
    /// The service, by the name of its cluster.
    pub service: Arc<str>,
    /// Where it takes them.
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
    /// The service that is called with them.
    pub(crate) grpc: Option<Arc<str>>,
}

/// A record under way, in the forms that its destinations take.
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

    /// One of the fields that every record may have.
    pub(crate) fn put(&mut self, name: &str, value: &Value) {
        if let Some(line) = &mut self.line {
            line.put(name, value);
        }
        if let Some(message) = &mut self.message {
            message.put(name, value);
        }
    }

    /// The same for text that may be any bytes.
    pub(crate) fn put_bytes(&mut self, name: &str, bytes: &[u8]) {
        self.put(name, &lossy(bytes));
    }

    /// One of the user's own fields.
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

/// Bytes as text, with U+FFFD for what is none.
pub(crate) fn lossy(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into())
}

/// A text that is not too long, with `…` in place of the rest.
fn cut_text<'a>(text: &'a str, cut: &mut bool) -> Cow<'a, str> {
    if text.len() <= LONGEST_TEXT {
        return text.into();
    }
    *cut = true;
    let start = text.get(..text.floor_char_boundary(LONGEST_TEXT)).unwrap_or_default();
    [start, "…"].concat().into()
}
