//! The events of a stream, in the order that Envoy gives them, and what Envoy does after each.

use super::{
    CallError, Flow, HeaderMap, HeadersPause, LocalResponse, Properties, RootId, Stream, StreamId, Vm,
    abi::Direction,
    host::After,
    stream::{Access, Ending, Part, Stage, Waiting},
    vm::count,
};

impl Vm {
    /// A stream begins, under the configuration of `root` to its end.
    pub fn open(&mut self, root: RootId, properties: Properties) -> Result<StreamId, CallError> {
        self.check_root(root)?;
        let id = StreamId(self.host_mut().next_context());
        self.host_mut().streams.insert(id, Stream::new(root, properties));
        self.call(id.0, "proxy_on_context_create", self.exports.context_create.clone(), (id.0, root.0))?;
        self.settle()?;
        Ok(id)
    }

    /// The request's headers come; with `end_of_stream` nothing follows them.
    pub fn request_headers(
        &mut self,
        stream: StreamId,
        headers: HeaderMap,
        end_of_stream: bool,
    ) -> Result<Flow, CallError> {
        self.on_headers(stream, Direction::Request, headers, end_of_stream)
    }

    /// A piece of the request's body comes.
    pub fn request_body(&mut self, stream: StreamId, chunk: &[u8], end_of_stream: bool) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Request, Waiting::Body { chunk: chunk.to_vec(), end_of_stream })
    }

    /// The request's trailers come.
    pub fn request_trailers(&mut self, stream: StreamId, trailers: HeaderMap) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Request, Waiting::Trailers(trailers))
    }

    /// The response's headers come; with `end_of_stream` nothing follows them.
    pub fn response_headers(
        &mut self,
        stream: StreamId,
        headers: HeaderMap,
        end_of_stream: bool,
    ) -> Result<Flow, CallError> {
        self.on_headers(stream, Direction::Response, headers, end_of_stream)
    }

    /// A piece of the response's body comes.
    pub fn response_body(&mut self, stream: StreamId, chunk: &[u8], end_of_stream: bool) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Response, Waiting::Body { chunk: chunk.to_vec(), end_of_stream })
    }

    /// The response's trailers come.
    pub fn response_trailers(&mut self, stream: StreamId, trailers: HeaderMap) -> Result<Flow, CallError> {
        self.on_rest(stream, Direction::Response, Waiting::Trailers(trailers))
    }

    /// The stream ends: the filter may log it, and forgets it. Gives back what became of it.
    pub fn close(&mut self, stream: StreamId) -> Result<Stream, CallError> {
        let ended = self.find(stream)?;
        ended.request.set_access(Access::Readable);
        ended.response.set_access(Access::Readable);
        self.call(stream.0, "proxy_on_log", self.exports.log.clone(), stream.0)?;
        self.call(stream.0, "proxy_on_done", self.exports.done.clone(), stream.0)?;
        self.call(stream.0, "proxy_on_delete", self.exports.delete.clone(), stream.0)?;
        // A stream that is over cannot go on, be answered or reset.
        self.host_mut().after.retain(|action| !action.concerns(stream));
        self.settle()?;
        self.host_mut().streams.remove(&stream).ok_or(unknown(stream))
    }

    /// A paused message goes on, and what came behind it reaches the filter.
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

    /// Answers in place of the upstream. As in Envoy the answer passes the filter's own response callbacks, unless
    /// the upstream's response has passed them already.
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

    /// The filter sees all of the body that has not gone on yet.
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

    /// Carries out a callback's action. Who asked for a local response pauses, whatever it returned; only a stream's
    /// first one counts.
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
