//! The decoder of requests.

use std::marker::PhantomData;

use tonic::{
    Status,
    codec::{BufferSettings, DecodeBuf, Decoder},
};

use crate::xds::wire::ClientMessage;

/// The initial size of a request's buffer: most ACKs fit.
const REQUEST_BUFFER: usize = 256;

/// Decodes requests, with a small buffer: thousands of streams wait for one.
pub(super) struct Decode<M>(PhantomData<fn() -> M>);

impl<M> Default for Decode<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M: ClientMessage> Decoder for Decode<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let message = M::decode(buffer);
        message.map(Some).map_err(|error| Status::invalid_argument(format!("the request cannot be decoded: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(REQUEST_BUFFER, REQUEST_BUFFER)
    }
}
