//! Answers to callouts, and the callbacks that deliver them to the filter.

use super::{CallError, CallId, Callout, HeaderMap, RootId, Vm, host::Offered, vm::count};

/// The number that Envoy reports for a connection that broke before an answer.
const BROKEN_CONNECTION: u32 = 11;

/// The result of an HTTP callout. (Envoy reports a time-out as a response 504, a failed connection as 503.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpReply {
    /// A response.
    Response {
        /// The headers, with `:status`.
        headers: HeaderMap,
        /// The body.
        body: Vec<u8>,
        /// The trailers.
        trailers: HeaderMap,
    },
    /// The stream was reset. The filter sees no headers.
    Reset,
}

impl HttpReply {
    /// A response without trailers.
    pub fn response(headers: impl Into<HeaderMap>, body: impl Into<Vec<u8>>) -> Self {
        Self::Response { headers: headers.into(), body: body.into(), trailers: HeaderMap::new() }
    }
}

impl Vm {
    /// Answers an HTTP callout, and ends it.
    pub fn reply_http(&mut self, call: CallId, reply: HttpReply) -> Result<(), CallError> {
        let CallId::Http(number) = call else { return Err(unknown(call)) };
        let root = self.owner(call)?;
        self.host_mut().callouts.under_way.remove(&call);
        let (offered, sizes) = match reply {
            HttpReply::Response { headers, body, trailers } => {
                let sizes = (count(headers.len()), count(body.len()), count(trailers.len()));
                let (http_headers, http_body, http_trailers) = (Some(headers), Some(body), Some(trailers));
                (Offered { http_headers, http_body, http_trailers, ..Offered::default() }, sizes)
            }
            HttpReply::Reset => {
                let status_text = b"reset".to_vec();
                (Offered { status: BROKEN_CONNECTION, status_text, ..Offered::default() }, (0, 0, 0))
            }
        };
        self.offer(offered, |vm| {
            let callback = vm.exports.http_call_response.clone();
            let parameters = (root.0, number, sizes.0, sizes.1, sizes.2);
            vm.call(root.0, "proxy_on_http_call_response", callback, parameters)
        })
    }

    /// Delivers a message to a gRPC callout. Ends a call; a stream continues until [`end_grpc`](Self::end_grpc).
    pub fn reply_grpc(&mut self, call: CallId, message: &[u8]) -> Result<(), CallError> {
        let (root, number) = self.grpc_owner(call)?;
        if matches!(self.host().callouts.under_way.get(&call), Some(Callout::Grpc(_))) {
            self.host_mut().callouts.under_way.remove(&call);
        }
        let offered = Offered { grpc_message: message.to_vec(), ..Offered::default() };
        self.offer(offered, |vm| {
            let callback = vm.exports.grpc_receive.clone();
            vm.call(root.0, "proxy_on_grpc_receive", callback, (root.0, number, count(message.len())))
        })
    }

    /// Ends a gRPC callout with a status: a failed call, or any stream.
    pub fn end_grpc(&mut self, call: CallId, status: u32, text: &str) -> Result<(), CallError> {
        let (root, number) = self.grpc_owner(call)?;
        self.host_mut().callouts.under_way.remove(&call);
        let offered = Offered { status, status_text: text.into(), ..Offered::default() };
        self.offer(offered, |vm| {
            let callback = vm.exports.grpc_close.clone();
            vm.call(root.0, "proxy_on_grpc_close", callback, (root.0, number, status))
        })
    }

    /// Delivers the initial metadata of a gRPC stream.
    pub fn grpc_initial_metadata(&mut self, call: CallId, metadata: HeaderMap) -> Result<(), CallError> {
        let (root, number) = self.grpc_owner(call)?;
        let size = count(metadata.len());
        let offered = Offered { grpc_initial: Some(metadata), ..Offered::default() };
        self.offer(offered, |vm| {
            let callback = vm.exports.grpc_initial_metadata.clone();
            vm.call(root.0, "proxy_on_grpc_receive_initial_metadata", callback, (root.0, number, size))
        })
    }

    /// Delivers the trailing metadata of a gRPC stream.
    pub fn grpc_trailing_metadata(&mut self, call: CallId, metadata: HeaderMap) -> Result<(), CallError> {
        let (root, number) = self.grpc_owner(call)?;
        let size = count(metadata.len());
        let offered = Offered { grpc_trailing: Some(metadata), ..Offered::default() };
        self.offer(offered, |vm| {
            let callback = vm.exports.grpc_trailing_metadata.clone();
            vm.call(root.0, "proxy_on_grpc_receive_trailing_metadata", callback, (root.0, number, size))
        })
    }

    /// Makes an answer readable during a callback.
    fn offer(
        &mut self,
        offered: Offered,
        call: impl FnOnce(&mut Self) -> Result<Option<()>, CallError>,
    ) -> Result<(), CallError> {
        self.host_mut().offered = offered;
        let outcome = call(self);
        self.host_mut().offered = Offered::default();
        outcome?;
        self.settle()
    }

    fn owner(&self, call: CallId) -> Result<RootId, CallError> {
        self.check_alive()?;
        self.host().callouts.under_way.get(&call).map(Callout::root).ok_or(unknown(call))
    }

    fn grpc_owner(&self, call: CallId) -> Result<(RootId, u32), CallError> {
        match call {
            CallId::Grpc(number) => Ok((self.owner(call)?, number)),
            CallId::Http(_) => Err(unknown(call)),
        }
    }
}

fn unknown(call: CallId) -> CallError {
    let (CallId::Http(number) | CallId::Grpc(number)) = call;
    CallError::Unknown { what: "callout", number }
}
