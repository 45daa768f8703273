//! Callouts in progress: what the filter sent to whom. Answers are in [`replies`](super::replies).

use std::{collections::BTreeMap, time::Duration};

use super::{HeaderMap, RootId, abi::Status};

/// The id of a callout in a VM. HTTP and gRPC are numbered independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallId {
    /// An HTTP callout.
    Http(u32),
    /// A gRPC callout.
    Grpc(u32),
}

/// A callout in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callout {
    /// An HTTP request.
    Http(HttpCall),
    /// A gRPC call with one message in each direction.
    Grpc(GrpcCall),
    /// A gRPC stream.
    GrpcStream(GrpcStream),
}

/// An HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpCall {
    /// The root context that made it.
    pub root: RootId,
    /// The cluster that it is sent to.
    pub cluster: Vec<u8>,
    /// The headers, with `:method`, `:path` and `:authority`.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: HeaderMap,
    /// The time-out. `None` means none.
    pub timeout: Option<Duration>,
}

/// A gRPC call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcCall {
    /// The root context that made it.
    pub root: RootId,
    /// The upstream as the filter gave it: a cluster's name, or Envoy's message `GrpcService`.
    pub upstream: Vec<u8>,
    /// The gRPC service.
    pub service: Vec<u8>,
    /// The gRPC method.
    pub method: Vec<u8>,
    /// The initial metadata.
    pub metadata: HeaderMap,
    /// The message.
    pub message: Vec<u8>,
    /// The time-out.
    pub timeout: Duration,
}

/// A gRPC stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcStream {
    /// The root context that opened it.
    pub root: RootId,
    /// The upstream as the filter gave it: a cluster's name, or Envoy's message `GrpcService`.
    pub upstream: Vec<u8>,
    /// The gRPC service.
    pub service: Vec<u8>,
    /// The gRPC method.
    pub method: Vec<u8>,
    /// The initial metadata.
    pub metadata: HeaderMap,
    /// The messages that the filter sent so far.
    pub sent: Vec<GrpcMessage>,
    /// Whether the filter closed its side without a last message.
    pub closed: bool,
}

/// A message of a gRPC stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcMessage {
    /// The bytes of the message.
    pub bytes: Vec<u8>,
    /// Whether it is the last message of the filter.
    pub last: bool,
}

impl Callout {
    /// The root context that made the callout.
    pub fn root(&self) -> RootId {
        match self {
            Self::Http(call) => call.root,
            Self::Grpc(call) => call.root,
            Self::GrpcStream(stream) => stream.root,
        }
    }
}

/// The callouts in progress of a VM.
#[derive(Debug, Default)]
pub(super) struct Callouts {
    pub(super) under_way: BTreeMap<CallId, Callout>,
    last_http: u32,
    last_grpc: u32,
}

impl Callouts {
    /// Adds a callout and returns its number. As in Envoy, gRPC calls have odd numbers and streams even ones.
    pub(super) fn add(&mut self, callout: Callout) -> Result<u32, Status> {
        let (id, number) = match &callout {
            Callout::Http(_) => {
                self.last_http = self.last_http.checked_add(1).ok_or(Status::InternalFailure)?;
                (CallId::Http(self.last_http), self.last_http)
            }
            Callout::Grpc(_) | Callout::GrpcStream(_) => {
                let parity = u32::from(matches!(callout, Callout::Grpc(_)));
                let step = if self.last_grpc % 2 == parity { 2 } else { 1 };
                self.last_grpc = self.last_grpc.checked_add(step).ok_or(Status::InternalFailure)?;
                (CallId::Grpc(self.last_grpc), self.last_grpc)
            }
        };
        self.under_way.insert(id, callout);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grpc_calls_odd_and_streams_even() {
        let [upstream, service, method] = [Vec::new(), Vec::new(), Vec::new()];
        let (metadata, message, root) = (HeaderMap::new(), Vec::new(), RootId(1));
        let stream = Callout::GrpcStream(GrpcStream {
            root,
            upstream: upstream.clone(),
            service: service.clone(),
            method: method.clone(),
            metadata: metadata.clone(),
            sent: Vec::new(),
            closed: false,
        });
        let timeout = Duration::ZERO;
        let call = Callout::Grpc(GrpcCall { root, upstream, service, method, metadata, message, timeout });
        let mut callouts = Callouts::default();
        let numbers = [&call, &call, &stream, &stream, &call].map(|callout| callouts.add(callout.clone()).unwrap());
        assert_eq!(numbers, [1, 3, 4, 6, 7]);
    }
}
