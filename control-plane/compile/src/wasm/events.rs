//! The events of a stream, in Envoy's order, and Envoy's behaviour after each callback.

use super::{
    CallError, Flow, HeaderMap, HeadersPause, LocalResponse, Properties, RootId, Stream, StreamId, Vm,
    abi::Direction,
    host::After,
    stream::{Access, Ending, Part, Stage, Waiting},
    vm::count,
};

impl Vm {
    /// Opens a stream. It stays on the configuration of `root` until it ends.
    pub fn open(&mut self, root: RootId, properties: Properties) -> Result<StreamId, CallError> {
        self.check_root(root)?;
        let id = StreamId(self.host_mut().next_context());
        self.host_mut().streams.insert(id, Stream::new(root, properties));
        self.call(id.0, "proxy_on_context_create", self.exports.context_create.clone(), (id.0, root.0))?;
        self.settle()?;
        Ok(id)
    }

    /// Delivers the request's headers. `end_of_stream` means that nothing follows.
    pub fn request_headers(
        &mut self,
        stream: StreamId,
        headers: HeaderMap,
        end_of_stream: bool,
    ) -> Result<Flow, CallError> {
        self.on_headers(stream, Direction::Request, headers, end_of_stream)
    }

    /// Delivers a part of the request's body.
    pub fn request_body(&mut self, stream: StreamId, chunk: &[u8], end_of_stream: bool) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Request, Waiting::Body { chunk: chunk.to_vec(), end_of_stream })
    }

    /// Delivers the request's trailers.
    pub fn request_trailers(&mut self, stream: StreamId, trailers: HeaderMap) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Request, Waiting::Trailers(trailers))
    }

    /// Delivers the response's headers. `end_of_stream` means that nothing follows.
    pub fn response_headers(
        &mut self,
        stream: StreamId,
        headers: HeaderMap,
        end_of_stream: bool,
    ) -> Result<Flow, CallError> {
        self.on_headers(stream, Direction::Response, headers, end_of_stream)
    }

    /// Delivers a part of the response's body.
    pub fn response_body(&mut self, stream: StreamId, chunk: &[u8], end_of_stream: bool) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Response, Waiting::Body { chunk: chunk.to_vec(), end_of_stream })
    }

    /// Delivers the response's trailers.
    pub fn response_trailers(&mut self, stream: StreamId, trailers: HeaderMap) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Response, Waiting::Trailers(trailers))
    }

    /// Ends a stream: the filter may log it, and forgets it. Returns its final state.
    pub fn close(&mut self, stream: StreamId) -> Result<Stream, CallError> {
        let ended = self.find(stream)?;
        ended.request.set_access(Access::Readable);
        ended.response.set_access(Access::Readable);
        self.call(stream.0, "proxy_on_log", self.exports.log.clone(), stream.0)?;
        self.call(stream.0, "proxy_on_done", self.exports.done.clone(), stream.0)?;
        self.call(stream.0, "proxy_on_delete", self.exports.delete.clone(), stream.0)?;
        // Actions on an ended stream are dropped.
        self.host_mut().after.retain(|action| !action.concerns(stream));
        self.settle()?;
        self.host_mut().streams.remove(&stream).ok_or(unknown(stream))
    }

    /// Resumes a paused message, and delivers what came meanwhile.
    pub(super) fn go_on(&mut self, id: StreamId, direction: Direction) -> Result<(), CallError> {
        let Ok(stream) = self.find(id) else { return Ok(()) };
        if stream.ending.is_some() || !stream.message(direction).is_paused() {
            return Ok(());
        }
        stream.message_mut(direction).go_on();
        while let Some(rest) = self.find(id)?.message_mut(direction).waiting.pop_front() {
            self.show_rest(id, direction, rest)?;
        }
        Ok(())
    }

    /// Answers in place of the upstream. As in Envoy, the answer passes the filter's response callbacks, unless the
    /// upstream's response has passed them already.
    pub(super) fn answer(&mut self, id: StreamId, response: LocalResponse) -> Result<(), CallError> {
        let Ok(stream) = self.find(id) else { return Ok(()) };
        if stream.ending.is_some() {
            return Ok(());
        }
        let (headers, chunk) = (response.to_headers(), response.body.clone());
        stream.ending = Some(Ending::Answered(response));
        stream.request.waiting.clear();
        if stream.response.stage != Stage::Before {
            stream.response.replace(headers, chunk);
            return Ok(());
        }
        self.show_headers(id, Direction::Response, headers, chunk.is_empty())?;
        if !chunk.is_empty() {
            self.show_rest(id, Direction::Response, Waiting::Body { chunk, end_of_stream: true })?;
        }
        Ok(())
    }

    pub(super) fn reset(&mut self, id: StreamId) {
        if let Ok(stream) = self.find(id) {
            stream.ending.get_or_insert(Ending::Reset);
        }
    }

    fn on_headers(
        &mut self,
        id: StreamId,
        direction: Direction,
        headers: HeaderMap,
        end_of_stream: bool,
    ) -> Result<Flow, CallError> {
        if self.find(id)?.ending.is_none() {
            self.show_headers(id, direction, headers, end_of_stream)?;
        }
        Ok(self.find(id)?.flow(direction))
    }

    fn on_rest(&mut self, id: StreamId, direction: Direction, rest: Waiting) -> Result<Flow, CallError> {
        let holds = self.host().setup.headers_pause == HeadersPause::HoldsBody;
        let stream = self.find(id)?;
        match stream.message(direction).stage {
            _ if stream.ending.is_some() => {}
            Stage::PausedInHeaders if holds => stream.message_mut(direction).waiting.push_back(rest),
            _ => self.show_rest(id, direction, rest)?,
        }
        Ok(self.find(id)?.flow(direction))
    }

    fn show_headers(
        &mut self,
        id: StreamId,
        direction: Direction,
        headers: HeaderMap,
        end_of_stream: bool,
    ) -> Result<(), CallError> {
        let number = count(headers.len());
        let message = self.find(id)?.message_mut(direction);
        message.headers = Part { map: headers, access: Access::Editable };
        message.stage = Stage::Flowing;
        let (name, callback) = self.exports.of(direction).headers.clone();
        let action = self.call(id.0, name, callback, (id.0, number, end_of_stream.into()))?;
        self.after_part(id, direction, action, Stage::PausedInHeaders)
    }

    fn show_rest(&mut self, id: StreamId, direction: Direction, rest: Waiting) -> Result<(), CallError> {
        let action = match rest {
            Waiting::Body { chunk, end_of_stream } => self.show_body(id, direction, chunk, end_of_stream),
            Waiting::Trailers(trailers) => self.show_trailers(id, direction, trailers),
        }?;
        self.after_part(id, direction, action, Stage::PausedLater)
    }

    /// Shows the filter all of the body that has not been sent on.
    fn show_body(
        &mut self,
        id: StreamId,
        direction: Direction,
        mut chunk: Vec<u8>,
        end_of_stream: bool,
    ) -> Result<Option<u32>, CallError> {
        let message = self.find(id)?.message_mut(direction);
        message.held.append(&mut chunk);
        message.body_access = Access::Editable;
        let size = count(message.held.len());
        let (name, callback) = self.exports.of(direction).body.clone();
        self.call(id.0, name, callback, (id.0, size, end_of_stream.into()))
    }

    fn show_trailers(
        &mut self,
        id: StreamId,
        direction: Direction,
        trailers: HeaderMap,
    ) -> Result<Option<u32>, CallError> {
        let number = count(trailers.len());
        self.find(id)?.message_mut(direction).trailers = Part { map: trailers, access: Access::Editable };
        let (name, callback) = self.exports.of(direction).trailers.clone();
        self.call(id.0, name, callback, (id.0, number))
    }

    /// Applies the action that a callback returned. A local response pauses the stream whatever was returned, and only
    /// the first one counts.
    fn after_part(
        &mut self,
        id: StreamId,
        direction: Direction,
        action: Option<u32>,
        paused: Stage,
    ) -> Result<(), CallError> {
        let asked = self.host().after.iter().any(|action| matches!(action, After::Answer(stream, _) if *stream == id));
        let stream = self.find(id)?;
        let answered = asked && stream.ending.is_none();
        let message = stream.message_mut(direction);
        match action {
            None | Some(0) if !answered => message.go_on(),
            _ if message.stage == Stage::PausedInHeaders => {}
            _ => message.stage = paused,
        }
        self.settle()
    }

    fn find(&mut self, id: StreamId) -> Result<&mut Stream, CallError> {
        self.check_alive()?;
        self.host_mut().streams.get_mut(&id).ok_or(unknown(id))
    }
}

fn unknown(stream: StreamId) -> CallError {
    CallError::Unknown { what: "stream", number: stream.0 }
}
